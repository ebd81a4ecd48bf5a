"""States at any time of a solve, and what all solves share: the direction of time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._dense import Records
    from fullgraph.ode._problem import Problem

__all__ = ["direction", "interpolant", "with_first"]

Array = Any
PyTree = Any
State = list[Array]


def with_first(xp: Any, first: Array, rest: Array) -> Array:
    """Return `rest` with one more row in front."""
    return xp.concat([first[None, ...], rest])


def direction(problem: Problem) -> Any:
    """Return 1.0 or -1.0, as an array where times are traced."""
    first, last = problem.ts[0, ...], problem.ts[-1, ...]
    values = problem.values
    if values is not None:
        return 1.0 if values[-1] >= values[0] else -1.0
    one = problem.library.xp.ones_like(first)
    return problem.library.xp.where(last >= first, one, -one)


def interpolant(
    problem: Problem, records: Callable[[], list[Records]], sign: Any
) -> Callable[[Any], PyTree]:
    """Return `Solution.interpolate`, which asks for the records when it is first called."""
    known: list[Records] = []

    def interpolate(t: Any) -> PyTree:
        library = problem.library
        xp = library.xp
        asked = library.array(t, problem.ts.dtype, problem.device)
        shape = tuple(int(n) for n in asked.shape)
        times = xp.reshape(asked, (-1,))
        given = problem.values
        if given is not None and library.known(times) and times.shape[0]:
            values = library.values(times)
            low, high = min(given[0], given[-1]), max(given[0], given[-1])
            outside = [value for value in values if not low <= value <= high]
            if outside:
                raise UsageError(
                    f"interpolate takes times between {low} and {high}, where the problem was "
                    f"solved, and got {outside[0]}."
                )
        if int(problem.ts.shape[0]) == 1:
            states = [xp.broadcast_to(y, (int(times.shape[0]), *y.shape)) for y in problem.y0]
        else:
            if not known:
                known.extend(records())
            states = _from_pieces(problem, known, sign * times)
        return problem.state([xp.reshape(s, (*shape, *s.shape[1:])) for s in states])

    return interpolate


def _from_pieces(problem: Problem, pieces: list[Records], times: Array) -> State:
    """Return states at times, NaN beyond what was reached."""
    xp, layout = problem.library.xp, problem.layout
    m, count = int(times.shape[0]), len(layout.shapes)
    t = xp.reshape(times, (-1, *([1] * len(layout.batch))))
    found: State = []
    for piece in pieces:
        states = piece.at(times)
        if not found:
            found = [xp.full_like(s, math.nan) for s in states]
        covered = (t >= piece.times[0, ...]) & (t <= piece.times[-1, ...])
        masks = [layout.spread(covered, i, (m,)) for i in range(count)]
        found = [xp.where(a, b, c) for a, b, c in zip(masks, states, found, strict=True)]
    return found
