"""NumPy arrays as tensors and back, sharing their memory, and functions of the one on the other."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._tree import flatten, is_namedtuple, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "array_of",
    "as_torch",
    "mapped",
    "output_tensor",
    "shared_tensor",
    "tensor_again",
    "with_own_code",
]

PyTree = Any
_REMEMBERED: Final = 512
#: Codes of wrappers, by their template and the code of what they wrap: compiled loops are told
#: apart by code.
_CODES: OrderedDict[tuple[int, int], tuple[types.CodeType, Any]] = OrderedDict()


class _Borrowed:
    """Memory of an array, offered as writable: torch warns of what is not, and writes nothing."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # keeps the memory
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface


def shared_tensor(array: Any) -> torch.Tensor:
    """Return an array as a tensor: without a copy where torch can express its strides and dtype."""
    array = np.asarray(array)
    size = array.dtype.itemsize
    if not array.dtype.isnative or any(s < 0 or s % size for s in array.strides):
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    if not array.flags.writeable:
        array = np.asarray(_Borrowed(array))
    return torch.from_numpy(array)


def as_torch(tree: PyTree) -> PyTree:
    """Return a tree with NumPy arrays as tensors, and everything else as it is."""
    leaves, treedef = flatten(tree)
    return unflatten(treedef, [_shared(leaf) for leaf in leaves])


def _shared(leaf: Any) -> Any:
    if type(leaf) in SCALAR_KINDS or not isinstance(leaf, (np.ndarray, np.generic)):
        return leaf
    return shared_tensor(leaf)


def mapped(function: Callable[[Any], Any], tree: PyTree) -> PyTree:
    """Apply a function to the leaves of a tree. Traceable, which flattening arrays is not."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        children = [mapped(function, child) for child in tree]
        return type(tree)(*children) if is_namedtuple(tree) else tuple(children)
    if isinstance(tree, list):
        return [mapped(function, child) for child in tree]
    if isinstance(tree, dict):
        return {key: mapped(function, child) for key, child in tree.items()}
    return function(tree)


def array_of(leaf: Any) -> Any:
    """Return a tensor as an array. Traceable."""
    return leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf


def tensor_again(leaf: Any) -> Any:
    """Return an array as a tensor. Traceable."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        return torch.from_numpy(np.asarray(leaf))
    return leaf


def output_tensor(leaf: Any) -> Any:
    """Return an array as a tensor, and a Python number as one of NumPy's default dtype."""
    if type(leaf) is float:
        return torch.tensor(leaf, dtype=torch.float64)
    return tensor_again(leaf)


def with_own_code(wrapper: types.FunctionType, wrapped: Any) -> Callable[..., Any]:
    """Return a wrapper with a code object that it shares with wrappers of the same code only."""
    key = getattr(wrapped, "__code__", None) or type(wrapped)
    template = wrapper.__code__
    place = id(template), id(key)
    known = _CODES.get(place)
    if known is None:
        known = _CODES[place] = template.replace(co_name=wrapper.__name__), (template, key)
        if len(_CODES) > _REMEMBERED:
            _CODES.popitem(last=False)
    return types.FunctionType(
        known[0], wrapper.__globals__, wrapper.__name__, None, wrapper.__closure__
    )
