"""The ``rtol`` and ``atol`` of a solve, for each leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.loops._tree import flatten, same_structure
from fullgraph.ode._control import Tolerances

if TYPE_CHECKING:
    from fullgraph.ode._problem import Problem

__all__ = ["make_tolerances"]

Array = Any
PyTree = Any
State = list[Array]


def make_tolerances(problem: Problem, rtol: PyTree, atol: PyTree) -> Tolerances:
    """Return tolerances for each leaf, checked."""
    return Tolerances(_per_leaf(problem, "rtol", rtol), _per_leaf(problem, "atol", atol))


def _per_leaf(problem: Problem, name: str, value: PyTree) -> State:
    library, layout = problem.library, problem.layout
    values, _ = flatten(value)
    if problem.bare or len(values) != len(problem.y0) or not same_structure(value, problem.tree):
        if len(values) != 1:
            raise UsageError(
                f"{name} must be one number or array, or a tree like y0, and has {len(values)} "
                f"leaves for {len(problem.y0)} of y0."
            )
        values = values * len(problem.y0)
    found = []
    for i, (one, dtype) in enumerate(zip(values, layout.dtypes, strict=True)):
        if isinstance(one, (int, float)) and not one >= 0:
            raise UsageError(f"{name} must be a number that is at least 0, and is {one!r}.")
        try:
            array = library.array(one, dtype, problem.device)
            shape = tuple(int(n) for n in array.shape)
            wide = library.xp.broadcast_to(array, layout.shapes[i])
        except (TypeError, ValueError, RuntimeError) as error:
            raise UsageError(
                f"{name} must be a number, or an array that broadcasts against y0, and is {one!r}."
            ) from error
        found.append(array if shape == () else wide)
    return found
