"""Dormand and Prince's method of order 5(4), first same as last."""

from __future__ import annotations

from typing import Final

from fullgraph.ode.methods.base import ExplicitRungeKutta, Tableau

__all__ = ["Dopri5"]

_TABLEAU: Final = Tableau(
    c=(0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0),
    a=(
        (),
        (1 / 5,),
        (3 / 40, 9 / 40),
        (44 / 45, -56 / 15, 32 / 9),
        (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
        (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
        (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
    ),
    b=(35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0.0),
    error=(71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40),
    middle=(
        6025192743 / 60171106304,
        0.0,
        51252292925 / 130801643196,
        -2691868925 / 90256659456,
        187940372067 / 3189068634112,
        -1776094331 / 39487288512,
        11237099 / 470086768,
    ),
)


class Dopri5(ExplicitRungeKutta):
    """Dormand and Prince's method of order 5(4), first same as last."""

    name = "dopri5"
    order = 5
    estimate_order = 5
    citation = (
        "J. R. Dormand, P. J. Prince, Journal of Computational and Applied Mathematics 6, 1980; "
        "dense output: L. F. Shampine, Mathematics of Computation 46, 1986"
    )
    tableau = _TABLEAU
