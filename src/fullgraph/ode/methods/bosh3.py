"""Bogacki and Shampine's method of order 3(2), first same as last."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Bosh3"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 2, 3 / 4, 1.0),
    a=((), (1 / 2,), (0.0, 3 / 4), (2 / 9, 1 / 3, 4 / 9)),
    b=(2 / 9, 1 / 3, 4 / 9, 0.0),
    error=(2 / 9 - 7 / 24, 1 / 3 - 1 / 4, 4 / 9 - 1 / 3, -1 / 8),
)


class Bosh3(ExplicitRungeKutta):
    """Bogacki and Shampine's method of order 3(2), first same as last."""

    name = "bosh3"
    order = 3
    estimate_order = 3
    citation = "P. Bogacki, L. F. Shampine, Applied Mathematics Letters 2, 1989"
    tableau = _TABLEAU
