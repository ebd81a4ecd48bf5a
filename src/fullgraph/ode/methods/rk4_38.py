"""The 3/8 rule: order 4, with a smaller error constant than the classical method."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["RK438"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 3, 2 / 3, 1.0),
    a=((), (1 / 3,), (-1 / 3, 1.0), (1.0, -1.0, 1.0)),
    b=(1 / 8, 3 / 8, 3 / 8, 1 / 8),
)


class RK438(ExplicitRungeKutta):
    """The 3/8 rule: order 4, with a smaller error constant than the classical method."""

    name = "rk4_38"
    order = 4
    estimate_order = None
    citation = "W. Kutta, Zeitschrift fuer Mathematik und Physik 46, 1901"
    tableau = _TABLEAU
