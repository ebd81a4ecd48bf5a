"""The classical method of order 4."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["RK4"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 2, 1 / 2, 1.0),
    a=((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)),
    b=(1 / 6, 1 / 3, 1 / 3, 1 / 6),
)


class RK4(ExplicitRungeKutta):
    """The classical method of order 4."""

    name = "rk4"
    order = 4
    estimate_order = None
    citation = "W. Kutta, Zeitschrift fuer Mathematik und Physik 46, 1901"
    tableau = _TABLEAU
