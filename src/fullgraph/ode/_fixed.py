"""Steps whose ends are known beforehand, as one scan over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._grid import Grid
    from fullgraph.ode._loops import Loops
    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["Plan", "grid_rows", "rhs_calls", "run_steps"]

Array = Any
PyTree = Any
State = list[Array]


@dataclass(frozen=True)
class Plan:
    """What a body of known steps is made of.

    Attributes
    ----------
    sign : float
        Direction of time; see `Problem.derivative`.
    limited : bool
        Whether rows tell the times before and after which the right-hand side may not be asked.
    reuse : bool
        Whether the last slope of a step is the first of the next.
    save : {"none", "states", "dense"}
        What each step puts out: nothing, its state, or what dense output needs of it.
    """

    problem: Problem
    method: Method
    sign: float = 1.0
    limited: bool = False
    reuse: bool = False
    save: str = "states"


def grid_rows(problem: Problem, grid: Grid) -> Array:
    """Return the rows of a scan over a grid: time and length of each step, perhaps its limits."""
    xp, times = problem.library.xp, grid.times
    columns = [times[:-1], times[1:] - times[:-1]]
    if grid.limits is not None:
        columns += [
            problem.library.array(bound, times.dtype, problem.device) for bound in grid.limits
        ]
    return xp.stack(columns, axis=1)


def run_steps(
    plan: Plan, loops: Loops, rows: Array, *, checkpoint: bool = False
) -> tuple[State, Any]:
    """Run the steps that rows describe, from the initial state.

    Parameters
    ----------
    plan : Plan
    loops : Loops
    rows : array of shape (n, 2 or 4, *batch)
        Time and length of each step, and its limits.
    checkpoint : bool
        Whether the backward pass computes steps again.

    Returns
    -------
    state : list of array
        Leaves after the last step.
    outputs : tuple of list of array
        ``()`` for ``save="none"``, ``(states,)``, or ``(states, slopes, middles)``, with a leading
        axis of n each; middles is empty where the method has none.
    """
    problem = plan.problem
    y0 = problem.y0
    body = loops.own_code(_body(plan), problem.rhs, plan.method)
    if checkpoint:
        body = loops.checkpointed(body)
    if plan.reuse or plan.save == "dense":
        begun = problem.derivative(plan.sign, _row_limits(plan, rows[0, ...]))
        init: PyTree = (list(y0), begun(rows[0, 0, ...], y0))
    else:
        init = y0[0] if problem.bare else list(y0)
    carry, outputs = loops.scan(body, init, rows, None)
    if isinstance(init, tuple):
        carry = carry[0]
    elif problem.bare:
        carry = [carry]
    if plan.save == "none":
        return carry, ()
    if plan.save == "states":
        return carry, ([outputs] if problem.bare else outputs,)
    return carry, outputs


def _row_limits(plan: Plan, row: Array) -> tuple[Array, Array] | None:
    return (row[2, ...], row[3, ...]) if plan.limited else None


def _body(plan: Plan) -> Callable[[PyTree, Array], tuple[PyTree, PyTree]]:
    """Return the body of a scan over steps; what it closes over is what compiled loops guard."""
    problem, method, layout = plan.problem, plan.method, plan.problem.layout
    sign, limited, save = plan.sign, plan.limited, plan.save
    bare, keeps_slope = problem.bare, plan.reuse or save == "dense"
    tableau = method.tableau

    def fixed_step(carry: PyTree, row: Array) -> tuple[PyTree, PyTree]:
        t, h = row[0, ...], row[1, ...]
        f = problem.derivative(sign, (row[2, ...], row[3, ...]) if limited else None)
        if keeps_slope:
            y, slope = carry
        else:
            y, slope = ([carry] if bare else carry), None
        widths = layout.widths(h)
        step = method.step(f, t, h, widths, y, slope)
        new = step.y
        output: PyTree = None
        if save == "states":
            output = new[0] if bare else new
        if not keeps_slope:
            return (new[0] if bare else new), output
        last = step.slopes[-1] if tableau.first_same_as_last else f(t + h, new)
        if save == "dense":
            output = (new, last, method.middle(widths, step))
        return (new, last), output

    return fixed_step


def rhs_calls(method: Method, steps: int, *, reuse: bool) -> int:
    """Return how often steps evaluate the right-hand side."""
    stages = method.tableau.stages
    if reuse:
        return steps * (stages - 1) + 1
    return steps * stages
