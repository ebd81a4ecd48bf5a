"""Native solves of NumPy problems: arrays go through torch, which shares their memory.

The right-hand side stays what it is, NumPy code on NumPy arrays. While a loop is captured, Dynamo
reads it as the same operations of torch; evaluations before a capture are NumPy's own. So a dtype
or a shape that torch would give another way is found, and raises.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._tree import flatten, is_namedtuple, unflatten
from fullgraph.ode._solution import Solution, Stats

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["as_numpy", "as_torch", "torch_rhs"]

PyTree = Any
_REMEMBERED: Final = 256
#: Codes of wrappers, by the code of what they wrap: compiled loops are told apart by code.
_CODES: OrderedDict[int, tuple[types.CodeType, Any]] = OrderedDict()


def as_torch(tree: PyTree) -> PyTree:
    """Return NumPy arrays as tensors: without a copy where torch can read the array as it is."""
    leaves, treedef = flatten(tree)
    return unflatten(treedef, [_tensor(leaf) for leaf in leaves])


def _tensor(leaf: Any) -> Any:
    if type(leaf) in SCALAR_KINDS or not isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    array = np.asarray(leaf)
    native = array.dtype.isnative and array.flags.writeable and array.flags.c_contiguous
    if not native:  # solvers write into nothing, but torch warns of arrays that are read-only
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array)


def torch_rhs(rhs: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Return a right-hand side on tensors that calls one on NumPy arrays. Traceable."""

    def numpy_rhs(t: torch.Tensor, y: PyTree, *args: Any) -> PyTree:
        slope = rhs(t.numpy(), _mapped(_array, y), *[_mapped(_array, a) for a in args])
        return _mapped(_tensor_again, slope)

    key = getattr(rhs, "__code__", None) or type(rhs)
    known = _CODES.get(id(key))
    if known is None:
        known = _CODES[id(key)] = numpy_rhs.__code__.replace(co_name="numpy_rhs"), key
        if len(_CODES) > _REMEMBERED:
            _CODES.popitem(last=False)
    return types.FunctionType(
        known[0], numpy_rhs.__globals__, "numpy_rhs", None, numpy_rhs.__closure__
    )


def _mapped(function: Callable[[Any], Any], tree: PyTree) -> PyTree:
    """Apply a function to the leaves of a tree. Traceable, which flattening arrays is not."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        children = [_mapped(function, child) for child in tree]
        return type(tree)(*children) if is_namedtuple(tree) else tuple(children)
    if isinstance(tree, list):
        return [_mapped(function, child) for child in tree]
    if isinstance(tree, dict):
        return {key: _mapped(function, child) for key, child in tree.items()}
    return function(tree)


def _array(leaf: Any) -> Any:
    return leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf


def _tensor_again(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return torch.from_numpy(np.asarray(leaf))
    return leaf


def as_numpy(solution: Solution) -> Solution:
    """Return a solution with NumPy arrays, which share the memory of the tensors."""

    def interpolate(t: Any) -> PyTree:
        return _mapped(_array, solution.interpolate(as_torch(t)))

    return Solution(
        _array(solution.ts),
        _mapped(_array, solution.ys),
        _mapped(_array, solution.y),
        _array(solution.t),
        _array(solution.codes),
        Stats(*map(_array, solution.stats)),
        interpolate,
        functools.partial(_worst, solution),
    )


def _worst(solution: Solution) -> int:
    return solution.status.code
