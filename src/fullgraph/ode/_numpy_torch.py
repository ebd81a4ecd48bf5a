"""Native solves of NumPy problems: arrays go through torch, which shares their memory.

The right-hand side stays what it is, NumPy code on NumPy arrays. While a loop is captured, Dynamo
reads it as the same operations of torch; evaluations before a capture are NumPy's own. So a dtype
or a shape that torch would give another way is found, and raises.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, cast

from fullgraph.ode._solution import Solution, Stats
from fullgraph.torch_loop._numpy_arrays import (
    array_of,
    as_torch,
    mapped,
    tensor_again,
    with_own_code,
)

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

    import torch

__all__ = ["as_numpy", "as_torch", "torch_rhs"]

PyTree = Any


def torch_rhs(rhs: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Return a right-hand side on tensors that calls one on NumPy arrays. Traceable."""

    def numpy_rhs(t: torch.Tensor, y: PyTree, *args: Any) -> PyTree:
        slope = rhs(t.numpy(), mapped(array_of, y), *[mapped(array_of, a) for a in args])
        return mapped(tensor_again, slope)

    return with_own_code(cast("types.FunctionType", numpy_rhs), rhs)


def as_numpy(solution: Solution) -> Solution:
    """Return a solution with NumPy arrays, which share the memory of the tensors."""

    def interpolate(t: Any) -> PyTree:
        return mapped(array_of, solution.interpolate(as_torch(t)))

    return Solution(
        array_of(solution.ts),
        mapped(array_of, solution.ys),
        mapped(array_of, solution.y),
        array_of(solution.t),
        array_of(solution.codes),
        Stats(*map(array_of, solution.stats)),
        interpolate,
        functools.partial(_worst, solution),
    )


def _worst(solution: Solution) -> int:
    return solution.status.code
