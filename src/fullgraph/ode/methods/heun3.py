"""Heun's method of order 3."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Heun3"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 3, 2 / 3),
    a=((), (1 / 3,), (0.0, 2 / 3)),
    b=(1 / 4, 0.0, 3 / 4),
)


class Heun3(ExplicitRungeKutta):
    """Heun's method of order 3."""

    name = "heun3"
    order = 3
    estimate_order = None
    citation = "K. Heun, Zeitschrift fuer Mathematik und Physik 45, 1900"
    tableau = _TABLEAU
