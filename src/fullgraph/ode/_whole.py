"""A whole adaptive solve as one compiled loop, which writes its own outputs.

The outer loop goes over output times; inside, a while loop steps until the next of them is passed,
and the state there is read off the last step. So nothing is recorded and searched afterwards, and a
solve is one call however many steps it takes. It is for one problem (no batch, whose rows pass an
output at different steps) and for compiled loops that may contain a while loop.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fullgraph.ode._dense import between

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._adaptive_state import PlainCarry
    from fullgraph.ode._problem import Problem

__all__ = ["WholeCarry", "first_carry", "up_to_outputs"]

Array = Any
PyTree = Any
State = list[Array]

# The carry of a step; the last accepted step: its start, state and slope there, the middle of it;
# how many were accepted.
WholeCarry = tuple[Any, Array, State, State, State, Array]


def first_carry(carry: PlainCarry, *, middle: bool) -> WholeCarry:
    """Return what the loop starts with: no step taken yet."""
    time, state, slope = carry[0], carry[4], carry[5]
    return carry, time, list(state), list(slope), list(slope) if middle else [], carry[3]


def up_to_outputs(
    problem: Problem,
    step: Callable[[PlainCarry, Any], Any],
    most: Array,
    while_loop: Callable[..., Any],
) -> Callable[[WholeCarry, Array], tuple[WholeCarry, State]]:
    """Return the body of the loop over output times.

    Parameters
    ----------
    problem : Problem
    step : callable
        The body of adaptive steps, with dense records.
    most : 0-d array
        Most steps, in the dtype of time.
    while_loop : callable
        `fullgraph.while_loop`, or that of an adapter.
    """
    library, layout, fast = problem.library, problem.layout, problem.library.fast

    def up_to_output(carry: WholeCarry, t: Array) -> tuple[WholeCarry, State]:
        def going(now: WholeCarry) -> Array:
            s, h, _, tries, _, _ = now[0]
            return (s < t) & (h > 0) & (tries < most)

        def advance(now: WholeCarry) -> WholeCarry:
            plain, begun, state, slope, middle, count = now
            new, (_, _, _, half) = step(plain, None)
            took = new[0] > plain[0]

            def kept(after: State, before: State) -> State:
                return [fast.where(took, a, b) for a, b in zip(after, before, strict=True)]

            return (
                new,
                fast.where(took, plain[0], begun),
                kept(plain[4], state),
                kept(plain[5], slope),
                kept(half, middle),
                count + library.cast(took, count.dtype),
            )

        carry = while_loop(going, advance, carry)
        plain, begun, state, slope, middle, _ = carry
        length = plain[0] - begun
        share = (t - begun) / fast.where(length > 0, length, fast.ones_like(length))
        shares, lengths = layout.widths(share), layout.widths(length)
        found = []
        for i, (w, h) in enumerate(zip(shares, lengths, strict=True)):
            half = middle[i] if middle else None
            y = between(w, h, state[i], plain[4][i], slope[i], plain[5][i], half)
            y = fast.where(w == 0, state[i], y)
            found.append(fast.where(t <= plain[0], y, fast.full_like(y, math.nan)))
        return carry, found

    return up_to_output
