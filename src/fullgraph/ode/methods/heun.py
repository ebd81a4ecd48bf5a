"""Heun's method with Euler's as its error estimate: order 2(1)."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Heun"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1.0),
    a=((), (1.0,)),
    b=(1 / 2, 1 / 2),
    error=(-1 / 2, 1 / 2),
)


class Heun(ExplicitRungeKutta):
    """Heun's method with Euler's as its error estimate: order 2(1)."""

    name = "heun"
    order = 2
    estimate_order = 2
    citation = "K. Heun, Zeitschrift fuer Mathematik und Physik 45, 1900"
    tableau = _TABLEAU
