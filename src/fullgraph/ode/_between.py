"""Outputs between fixed steps of any grid, as torchdiffeq's ``step_size`` option has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.ode._grid import Grid, known_times
from fullgraph.ode._on_grid import grid_records

if TYPE_CHECKING:
    from fullgraph.ode._loops import Loops
    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["states_between"]

Array = Any
State = list[Array]


def states_between(
    problem: Problem, method: Method, loops: Loops, times: Array, *, cubic: bool
) -> State:
    """Return the states at ``problem.ts`` of a solve with given steps.

    Parameters
    ----------
    times : array
        Ends of steps, from the first of ``problem.ts`` to the last.
    cubic : bool
        Whether states between them are cubic in time, by slopes at the ends, or linear.
    """
    values = known_times(problem, "step_size")
    sign = 1.0 if values[-1] >= values[0] else -1.0
    (records,) = grid_records(problem, method, loops, Grid(times, None, None), slopes=cubic)
    return records.at(sign * problem.ts)
