"""Euler's method: one slope, order 1."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Euler"]

_TABLEAU: Final = Tableau(
    c=(0.0,),
    a=((),),
    b=(1.0,),
)


class Euler(ExplicitRungeKutta):
    """Euler's method: one slope, order 1."""

    name = "euler"
    order = 1
    estimate_order = None
    citation = "L. Euler, Institutiones calculi integralis, 1768"
    tableau = _TABLEAU
