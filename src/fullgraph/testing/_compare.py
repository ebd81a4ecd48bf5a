"""Compare what compiled and eager code give: tree, dtype, shape, device, value."""

from __future__ import annotations

import collections
import math
import sys
import types
from typing import Any

import optree
import torch

from fullgraph.errors import MismatchError
from fullgraph.testing._snapshot import slot_names

__all__ = ["assert_same", "copied"]


_DEEPEST = 32
"""Objects in objects in objects: what lies deeper is compared as what it is then."""


class _Object:
    """What an object held when it was copied, by name of the attribute; "" for a container."""

    __slots__ = ("kind", "parts")

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.parts: dict[str, Any] = {}


def copied(tree: Any) -> Any:
    """Return `tree` as it is now, whatever happens to its tensors, arrays and objects next."""
    met: dict[int, tuple[Any, _Object]] = {}  # keeps alive what an identity stands for

    def copy_tree(tree: Any, depth: int) -> Any:
        return optree.tree_map(lambda leaf: copy_leaf(leaf, depth), tree, none_is_leaf=True)

    def copy_leaf(leaf: Any, depth: int) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().clone().requires_grad_(leaf.requires_grad)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(leaf, numpy.ndarray):
            return leaf.copy()
        if id(leaf) in met:
            return met[id(leaf)][1]
        parts = _parts(leaf) if depth < _DEEPEST else None
        if parts is None:
            return leaf
        copy = _Object(type(leaf))
        met[id(leaf)] = leaf, copy
        copy.parts.update({name: copy_tree(part, depth + 1) for name, part in parts.items()})
        return copy

    return copy_tree(tree, 0)


def assert_same(
    actual: Any,
    expected: Any,
    *,
    what: str,
    name: str,
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise a `MismatchError` that names the first leaf in which two trees differ.

    Parameters
    ----------
    actual, expected : tree
        What compiled and what eager code gave.
    what : str
        What they are: ``"result"``, ``"argument"``, ``"gradient"``.
    name : str
        The function's name, for the message.
    rtol, atol : float, optional
        Tolerances for floating tensors. Default: by dtype, as ``torch.testing.assert_close``.
    """
    problem = _Comparison(rtol, atol).trees(actual, expected, what)
    if problem:
        raise MismatchError(f"{name}: {problem}")


class _Comparison:
    """Two trees side by side; the methods say how they differ, or None."""

    def __init__(self, rtol: float | None, atol: float | None) -> None:
        self._rtol, self._atol = rtol, atol
        self._met: set[tuple[int, int]] = set()

    def trees(self, actual: Any, expected: Any, what: str) -> str | None:
        paths, leaves, spec = optree.tree_flatten_with_path(actual, none_is_leaf=True)
        other_leaves, other_spec = optree.tree_flatten(expected, none_is_leaf=True)
        if spec != other_spec:
            return (
                f"the compiled {what} has another structure than the eager one:\n"
                f"  compiled: {spec}\n  eager:    {other_spec}"
            )
        for path, leaf, other in zip(paths, leaves, other_leaves, strict=True):
            where = what + "".join(f"[{entry!r}]" for entry in path)
            if problem := self.leaves(leaf, other, where):
                return problem
        return None

    def leaves(self, actual: Any, expected: Any, where: str) -> str | None:
        if actual is expected:
            return None
        if _type(actual) is _type(expected):
            if (id(actual), id(expected)) in self._met:
                return None  # a structure that contains itself
            mine, theirs = _parts(actual), _parts(expected)
            if mine is not None and theirs is not None:
                self._met.add((id(actual), id(expected)))
                return self._objects(mine, theirs, where)
        problem = _difference(actual, expected, self._rtol, self._atol)
        return problem and f"compiled and eager differ in {where}: {problem}"

    def _objects(self, mine: dict[str, Any], theirs: dict[str, Any], where: str) -> str | None:
        if mine.keys() != theirs.keys():
            return (
                f"compiled and eager differ in {where}: "
                f"compiled has attributes {sorted(mine)}, eager {sorted(theirs)}"
            )
        for key in mine:
            place = f"{where}.{key}" if key else where
            if problem := self.trees(mine[key], theirs[key], place):
                return problem
        return None


def _type(value: Any) -> type:
    return value.kind if isinstance(value, _Object) else type(value)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return what is compared of an object: attributes, slots, items; None if it has none."""
    if isinstance(value, _Object):
        return value.parts
    if _is_plain(value):
        return None
    attributes = getattr(value, "__dict__", None)
    found = dict(attributes) if isinstance(attributes, dict) else {}
    names = slot_names(value)
    found.update({name: getattr(value, name) for name in names if hasattr(value, name)})
    for base in (dict, list, tuple, set, frozenset, collections.deque):
        if isinstance(value, base) and type(value) is not base:  # a leaf to optree
            return {**found, "": base(value)}
    return found if names or isinstance(attributes, dict) else None


_PLAIN = (
    *(torch.Tensor, torch.Size, bool, int, float, complex, str, bytes),
    *(type, types.FunctionType, types.ModuleType),
)


def _is_plain(value: Any) -> bool:
    """Whether a leaf has a comparison of its own, which its attributes are no part of."""
    numpy = sys.modules.get("numpy")
    arrays = (numpy.ndarray, numpy.generic) if numpy is not None else ()
    return isinstance(
        value,
        (*_PLAIN, *arrays),
    )


def _difference(actual: Any, expected: Any, rtol: float | None, atol: float | None) -> str | None:
    """Say how two leaves differ; None if they do not."""
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        return _tensor_difference(actual, expected, rtol, atol)
    if _type(actual) is not _type(expected):
        return f"compiled is a {_kind(actual)}, eager a {_kind(expected)}"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(actual, numpy.ndarray | numpy.generic):
        if actual.dtype != expected.dtype or actual.shape != expected.shape:
            return (
                f"compiled {actual.dtype}{list(actual.shape)}, "
                f"eager {expected.dtype}{list(expected.shape)}"
            )
        return None if _array_equal(actual, expected, rtol, atol) else "values differ"
    if isinstance(actual, float) and math.isnan(actual) and math.isnan(expected):
        return None
    if isinstance(actual, bool | int | float | complex | str | bytes):
        return None if actual == expected else f"compiled {actual!r}, eager {expected!r}"
    return _object_difference(actual, expected)


def _tensor_difference(
    actual: torch.Tensor, expected: torch.Tensor, rtol: float | None, atol: float | None
) -> str | None:
    for label, one, two in (
        ("dtype", actual.dtype, expected.dtype),
        ("shape", list(actual.shape), list(expected.shape)),
        ("device", actual.device, expected.device),
        ("requires_grad", actual.requires_grad, expected.requires_grad),
    ):
        if one != two:
            return f"compiled has {label} {one}, eager {two}"
    if rtol is not None or atol is not None:
        rtol, atol = rtol or 0.0, atol or 0.0
    try:
        torch.testing.assert_close(
            actual.detach(), expected.detach(), rtol=rtol, atol=atol, equal_nan=True
        )
    except AssertionError as error:
        return str(error)
    return None


def _array_equal(actual: Any, expected: Any, rtol: float | None, atol: float | None) -> bool:
    numpy = sys.modules["numpy"]
    if not numpy.issubdtype(actual.dtype, numpy.inexact):
        return bool(numpy.array_equal(actual, expected))
    default = 4 * float(numpy.finfo(actual.dtype).eps) ** 0.5
    tolerance = default if rtol is None and atol is None else (rtol or 0.0)
    return bool(numpy.allclose(actual, expected, tolerance, atol or 0.0, equal_nan=True))


def _object_difference(actual: Any, expected: Any) -> str | None:
    """Compare two objects of one type, without attributes, by their equality if they have one."""
    if isinstance(actual, type | types.ModuleType):  # and the other is not the same
        return f"compiled {actual!r}, eager {expected!r}"
    if "__eq__" not in {name for cls in type(actual).__mro__[:-1] for name in vars(cls)}:
        return None  # nothing to compare them by
    try:
        same = bool(actual == expected)
    except (TypeError, ValueError, RuntimeError):  # an equality that is not a truth value
        return None
    return None if same else f"compiled {actual!r}, eager {expected!r}"


def _kind(value: Any) -> str:
    kind = _type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
