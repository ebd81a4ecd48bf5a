"""Whether a captured step means what NumPy means: one step of both is compared."""

from __future__ import annotations

import dis
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fullgraph.errors import UnsupportedBodyError
from fullgraph.loops._ops import dtype_name
from fullgraph.torch_loop._skeleton import collect, path_of, skeleton_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["compare_step", "disagreement", "outside_array"]

PyTree = Any
#: How far rounding may part two results, relative to the largest number of the step.
_ROUNDING: Final = {"float64": 1e-9, "float32": 1e-4}
_CAST = "Cast in the body, with np.asarray(..., dtype=...), so that one dtype is meant"


def compare_step(expected: PyTree, found: PyTree, scale: float, root: str) -> None:
    """Compare what a step gave in NumPy with what the compiled step gave.

    Parameters
    ----------
    expected, found : PyTree of ndarray
        The new carry, or y with a leading axis of one step.
    scale : float
        The largest number that went into the step.
    root : str
        "carry" or "y".

    Raises
    ------
    UnsupportedBodyError
        If structure, dtype, shape or values differ.
    """
    leaves: list[Any] = []
    others: list[Any] = []
    skeleton = skeleton_of(expected, leaves)
    if not collect(skeleton, found, others):
        raise disagreement(root, "one structure", "another", "Return the same tree in each case")
    scale = max([scale, *map(magnitude, leaves)])
    for index, (leaf, other) in enumerate(zip(leaves, others, strict=True)):
        path = path_of(skeleton, index, root) or root
        _compare_leaf(path, np.asarray(leaf), np.asarray(other), scale)


def _compare_leaf(path: str, leaf: Any, other: Any, scale: float) -> None:
    if leaf.dtype != other.dtype:
        raise disagreement(path, dtype_name(leaf.dtype), dtype_name(other.dtype), _CAST)
    if leaf.shape != other.shape:
        sides = f"of shape {leaf.shape}", f"of shape {other.shape}"
        raise disagreement(path, *sides, "Write the shape out, with np.reshape")
    rounding = _ROUNDING.get(leaf.dtype.name)
    if rounding is None:
        same = leaf == other
    else:
        same = np.isclose(other, leaf, rtol=rounding, atol=rounding * scale, equal_nan=True)
    if not same.all():
        place = tuple(np.argwhere(~same)[0])
        sides = repr(leaf[place].item()), repr(other[place].item())
        raise disagreement(
            path, *sides, "Write what is meant out, with functions that mean one thing in both"
        )


def magnitude(leaf: Any) -> float:
    """Return the largest finite absolute value of an array."""
    values = np.abs(np.asarray(leaf, dtype=np.float64))
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def disagreement(path: str, numpy: str, torch: str, fix: str) -> UnsupportedBodyError:
    """Return the error for a step that NumPy and torch take in two ways."""
    return UnsupportedBodyError(
        f"the body cannot become a native loop: after one step {path} is {numpy} in NumPy and "
        f"{torch} in torch, through which it is compiled. {fix}, or run this loop in plain NumPy "
        f'with use_loop_adapter("numpy", None).',
        "disagreement",
    )


def outside_array(body: Any) -> str | None:
    """Return the name of a NumPy array that a function reads from outside, or None.

    Dynamo of torch 2.14 fails on guards for such arrays, unless they have one element.
    """
    reached, seen = [body], set[int]()
    for function in reached:  # grows on the way
        if id(function) in seen or not isinstance(function, FunctionType):
            continue
        seen.add(id(function))
        for name, value in _read(function):
            if isinstance(value, np.ndarray) and value.size != 1:
                return name
            reached.append(value)
    return None


def _read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function reads from its closure and from globals."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    for name in _globals_of(function.__code__):
        if name in function.__globals__:
            yield name, function.__globals__[name]


def _globals_of(code: CodeType) -> Iterable[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield str(instruction.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)
