"""Fixed steps: from a grid to a solution, or to records for dense output."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fullgraph.loops import scan
from fullgraph.ode._dense import Records
from fullgraph.ode._fixed import Plan, grid_rows, rhs_calls, run_steps
from fullgraph.ode._interpolate import direction, interpolant, with_first
from fullgraph.ode._loops import plain_loops
from fullgraph.ode._solution import Solution, Stats

if TYPE_CHECKING:
    from fullgraph.ode._grid import Grid
    from fullgraph.ode._loops import Loops
    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["grid_records", "solve_on_grid"]

Array = Any
PyTree = Any
State = list[Array]


def solve_on_grid(
    problem: Problem, method: Method, loops: Loops, grid: Grid, *, checkpoint: bool
) -> Solution:
    """Take fixed steps and return the solution."""
    xp = problem.library.xp
    steps = int(grid.times.shape[0]) - 1
    # The slope at a breakpoint is another one on its two sides.
    reuse = method.tableau.first_same_as_last and grid.limits is None
    final_only = grid.outputs == [0, steps] or steps == 0
    plan = Plan(
        problem,
        method,
        limited=grid.limits is not None,
        reuse=reuse and steps > 0,
        save="none" if final_only else "states",
    )
    final: State = problem.y0
    outputs: tuple[Any, ...] = ()
    if steps:
        with loops.running():
            final, outputs = run_steps(plan, loops, grid_rows(problem, grid), checkpoint=checkpoint)
    if steps == 0:
        ys = [leaf[None, ...] for leaf in problem.y0]
    elif final_only:
        ys = [xp.stack([a, b]) for a, b in zip(problem.y0, final, strict=True)]
    else:
        ys = [with_first(xp, a, b) for a, b in zip(problem.y0, outputs[0], strict=True)]
        if grid.outputs is not None:
            picked = problem.library.array(grid.outputs, problem.library.integer, problem.device)
            ys = [xp.take(leaf, picked, axis=0) for leaf in ys]
    batch = problem.layout.batch
    codes = xp.zeros(batch, dtype=problem.library.integer, device=problem.device)
    return Solution(
        problem.ts,
        problem.state(ys),
        problem.state(final),
        xp.broadcast_to(problem.ts[-1, ...], batch),
        codes,
        Stats(steps, 0, rhs_calls(method, steps, reuse=reuse) if steps else 0),
        interpolant(
            problem, lambda: grid_records(problem, method, loops, grid), direction(problem)
        ),
        lambda: 0,
    )


def grid_records(
    problem: Problem, method: Method, loops: Loops, grid: Grid, *, slopes: bool = True
) -> list[Records]:
    """Take fixed steps and keep what dense output needs, for each piece between breakpoints.

    Without `slopes` states between steps are linear.
    """
    xp, library = problem.library.xp, problem.library
    sign = direction(problem)
    plan = Plan(problem, method, limited=grid.limits is not None, save="states")
    with loops.running():
        _, outputs = run_steps(plan, loops, grid_rows(problem, grid))
    states = [with_first(xp, a, b) for a, b in zip(problem.y0, outputs[0], strict=True)]
    bounds = [0, *grid.jumps, int(grid.times.shape[0]) - 1]
    pieces = []
    for first, last in pairwise(bounds):
        times = grid.times[first : last + 1]
        own = [leaf[first : last + 1, ...] for leaf in states]
        limits = None
        if grid.limits is not None:
            lower, upper = grid.limits
            limits = (
                library.array(lower[first], times.dtype, problem.device),
                library.array(upper[first], times.dtype, problem.device),
            )
        found = _slopes(problem, times, own, limits) if slopes else None
        shape = (int(times.shape[0]), *problem.layout.batch)
        times = xp.reshape(sign * times, (-1, *([1] * len(problem.layout.batch))))
        times = xp.broadcast_to(times, shape)
        signed = None if found is None else [sign * k for k in found]
        pieces.append(Records(problem.layout, times, own, signed, None))
    return pieces


def _slopes(
    problem: Problem, times: Array, states: State, limits: tuple[Array, Array] | None
) -> State:
    """Return the derivatives at known states."""
    f = problem.derivative(1.0, limits)
    batch, xp = problem.layout.batch, problem.library.xp

    def slope(carry: Array, row: tuple[Array, State]) -> tuple[Array, State]:
        t, y = row
        return carry, f(xp.broadcast_to(t, batch), y)

    with plain_loops(problem.library).running():
        found: State = scan(slope, times[0, ...], (times, states))[1]
    return found
