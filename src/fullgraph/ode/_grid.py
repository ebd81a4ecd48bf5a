"""The times of fixed steps: output times, breakpoints, and equal steps between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.ode._problem import Problem

__all__ = ["Grid", "check_breakpoints", "make_grid"]

Array = Any
#: A step that is too long by less than this share of itself is not cut in two.
_SLACK = 1e-9


@dataclass(frozen=True)
class Grid:
    """Where fixed steps begin and end.

    Attributes
    ----------
    times : array
        The ends of all steps, the initial time first.
    outputs : list of int or None
        Places of the output times among `times`; None where they are the same.
    limits : pair of list of float or None
        For each step, the times before and after which the right-hand side may not be asked.
    jumps : tuple of int
        Places of the breakpoints among `times`.
    """

    times: Array
    outputs: list[int] | None
    limits: tuple[list[float], list[float]] | None
    jumps: tuple[int, ...] = ()


def check_breakpoints(problem: Problem, breakpoints: Any) -> list[float]:
    """Return those breakpoints that are inside the interval of a solve, in its direction."""
    if breakpoints is None:
        return []
    try:
        points = [float(point) for point in breakpoints]
        if not points:
            return []
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"breakpoints must be a sequence of numbers that are known before the solve, and is "
            f"{breakpoints!r}."
        ) from error
    values = known_times(problem, "breakpoints")
    low, high = min(values), max(values)
    inside = sorted({point for point in points if low < point < high})
    return inside if values[0] <= values[-1] else inside[::-1]


def known_times(problem: Problem, argument: str) -> list[float]:
    """Return the output times as Python floats, or raise where they are traced."""
    if problem.values is None:
        raise UsageError(
            f"{argument}= needs the values of ts, which are not known while the call is traced: "
            f"close over a NumPy array for ts, or leave {argument} out."
        )
    return problem.values


def make_grid(problem: Problem, step: Any, breakpoints: list[float]) -> Grid:
    """Return the grid of fixed steps.

    Each interval between two neighbours among output times and breakpoints is divided into equal
    steps, as few as keep them no longer than `step`.
    """
    if step is None and not breakpoints:
        return Grid(problem.ts, None, None)
    xp, library = problem.library.xp, problem.library
    values = known_times(problem, "step" if step is not None else "breakpoints")
    forward = values[0] <= values[-1]
    knots = sorted({*values, *breakpoints}, reverse=not forward)
    counts = [_count(a, b, step) for a, b in pairwise(knots)]
    points = problem.ts
    if breakpoints:
        own = {value: place for place, value in enumerate(values)}
        extra = [point for point in breakpoints if point not in own]
        own |= {point: len(values) + place for place, point in enumerate(extra)}
        points = xp.concat([points, library.array(extra, points.dtype, problem.device)])
        points = xp.take(points, _indices(problem, [own[knot] for knot in knots]), axis=0)
    times = _divided(problem, points, counts)
    ends = [0]
    for count in counts:
        ends.append(ends[-1] + count)
    where = dict(zip(knots, ends, strict=True))
    limits = _limits(problem, knots, counts, breakpoints) if breakpoints else None
    jumps = tuple(where[point] for point in breakpoints)
    return Grid(times, [where[value] for value in values], limits, jumps)


def _divided(problem: Problem, points: Array, counts: list[int]) -> Array:
    """Return points, and between each two of them as many equal steps as `counts` says."""
    library = problem.library
    xp = library.xp
    width, most = points[1:] - points[:-1], max(counts)
    if min(counts) == most:
        share = xp.arange(most, dtype=points.dtype, device=problem.device) / most
        starts = xp.reshape(points[:-1, None] + width[:, None] * share[None, :], (-1,))
        return xp.concat([starts, points[-1:]])
    left: list[int] = []
    share_of: list[float] = []
    for place, count in enumerate(counts):
        left += [place] * count
        share_of += [i / count for i in range(count)]
    index = _indices(problem, left)
    share = library.array(share_of, points.dtype, problem.device)
    starts = xp.take(points[:-1], index, axis=0) + xp.take(width, index, axis=0) * share
    return xp.concat([starts, points[-1:]])


def _indices(problem: Problem, values: Sequence[int]) -> Array:
    return problem.library.array(list(values), problem.library.integer, problem.device)


def _count(a: float, b: float, step: Any) -> int:
    return 1 if step is None else max(1, math.ceil(abs(b - a) / step * (1 - _SLACK)))


def _limits(
    problem: Problem, knots: list[float], counts: list[int], breakpoints: list[float]
) -> tuple[list[float], list[float]]:
    """Return the earliest and latest time at which each step may ask the right-hand side."""
    jumps = set(breakpoints)
    lower: list[float] = []
    upper: list[float] = []
    for a, b, count in zip(knots[:-1], knots[1:], counts, strict=True):
        low, high = inside(problem, a, b, a in jumps, b in jumps)
        low, high = min(low, high), max(low, high)
        lower += [low] * count
        upper += [high] * count
    return lower, upper


def inside(
    problem: Problem, a: float, b: float, a_jumps: bool, b_jumps: bool
) -> tuple[float, float]:
    """Return the ends of an interval, moved inwards by one unit in the last place at jumps."""
    eps = float(problem.library.xp.finfo(problem.layout.dtypes[0]).eps)
    direction = 1.0 if a <= b else -1.0

    def moved(value: float, way: float) -> float:
        return value + way * direction * max(abs(value), 1e-30) * eps

    return (moved(a, 1.0) if a_jumps else a), (moved(b, -1.0) if b_jumps else b)
