"""Fehlberg's method of order 2(1).

Its error estimate is small, 1/512 of the difference of two slopes: errors are some hundred times
larger than with other methods at the same tolerance. It is here because torchdiffeq has it.
"""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Fehlberg2"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 2, 1.0),
    a=((), (1 / 2,), (1 / 256, 255 / 256)),
    b=(1 / 512, 255 / 256, 1 / 512),
    error=(-1 / 512, 0.0, 1 / 512),
)


class Fehlberg2(ExplicitRungeKutta):
    """Fehlberg's method of order 2(1)."""

    name = "fehlberg2"
    order = 2
    estimate_order = 2
    citation = "E. Fehlberg, NASA Technical Report R-315, 1969"
    tableau = _TABLEAU
