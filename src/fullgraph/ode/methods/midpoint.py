"""The explicit midpoint rule: the slope half way, order 2."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Midpoint"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 2),
    a=((), (1 / 2,)),
    b=(0.0, 1.0),
)


class Midpoint(ExplicitRungeKutta):
    """The explicit midpoint rule: the slope half way, order 2."""

    name = "midpoint"
    order = 2
    estimate_order = None
    citation = "C. Runge, Ueber die numerische Aufloesung von Differentialgleichungen, 1895"
    tableau = _TABLEAU
