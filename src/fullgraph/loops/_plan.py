"""A scan call taken apart and checked: leaves, structures and the one length."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optree

from fullgraph.errors import LoopTypeError, UsageError
from fullgraph.loops._ops import SCALAR_KINDS, LeafOps, dtype_name
from fullgraph.loops._tree import flatten, leaf_path, type_name, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "ScanPlan",
    "check_count",
    "check_index",
    "check_leaves",
    "check_predicate",
    "check_range",
    "first_device",
    "plan_scan",
    "scan_length",
]

PyTree = Any


def check_count(name: str, value: Any) -> int:
    """Return a count of steps as an int, or raise UsageError that names the argument."""
    try:
        if isinstance(value, bool):
            raise TypeError  # noqa: TRY301 - True is an index, and never a count on purpose
        count = operator.index(value)
    except TypeError as error:
        raise UsageError(
            f"{name} must be an int that is at least 0, and is {value!r}. A number of steps that "
            f"is known only while the loop runs needs while_loop."
        ) from error
    if count < 0:
        raise UsageError(f"{name} must be an int that is at least 0, and is {count}.")
    return count


def check_index(name: str, value: Any) -> int:
    """Return a loop bound as an int, or raise UsageError that names the argument."""
    try:
        if isinstance(value, bool):
            raise TypeError  # noqa: TRY301 - as in check_count
        return operator.index(value)
    except TypeError as error:
        raise UsageError(
            f"{name} must be an int, and is {value!r}. A bound that is known only while the loop "
            f"runs needs while_loop."
        ) from error


def check_range(lower: int, upper: int, ops: LeafOps, device: Any) -> None:
    """Refuse integers that the library's default integer dtype would wrap around or refuse."""
    lower, upper = min(lower, upper), max(lower, upper)
    if lower >= -(2**31) and upper <= 2**31:
        return
    name = dtype_name(ops.spec(ops.arange(0, 1, device)).dtype)
    most = 2 ** (int(name.removeprefix("int")) - 1)
    if lower < -most or upper > most:
        raise UsageError(
            f"a loop from {lower} to {upper} does not fit {name}, the default integer dtype of "
            f"{ops.name}. Count from 0, and add the offset in a wider dtype in the body."
        )


def check_leaves(tree: PyTree, leaves: Sequence[Any], root: str, ops: LeafOps) -> None:
    """Refuse leaves that are neither arrays of the library nor, in a carry, Python scalars."""
    for index, leaf in enumerate(leaves):
        if ops.is_array(leaf) or (root == "carry" and type(leaf) in SCALAR_KINDS):
            continue
        path = leaf_path(tree, index, root)
        kind = type_name(leaf)
        also = ", Python numbers" if root == "carry" else ""
        raise LoopTypeError(
            f"{path} is {kind}, and this loop runs on {ops.name} arrays. Leaves are {ops.name} "
            f"arrays{also} and None, in tuples, lists, dicts and namedtuples; convert it with "
            f"xp.asarray."
        )


def scan_length(
    tree: PyTree, shapes: Sequence[tuple[int, ...]], length: int | None, *, root: str = "xs"
) -> int:
    """Return the number of steps of a scan, or say which two sources of it disagree.

    Parameters
    ----------
    tree : PyTree
        The xs, to name leaves.
    shapes : sequence of tuple of int
        Shapes of their leaves.
    length : int or None
        The length that the caller gives.
    root : str
        Name of `tree` in messages.
    """
    count = None if length is None else check_count("length", length)
    if not shapes:
        if count is None:
            raise UsageError("scan needs xs or length, and got neither: there is nothing to count.")
        return count
    for index, shape in enumerate(shapes):
        if len(shape) == 0:
            raise UsageError(
                f"{leaf_path(tree, index, root)} is 0-dimensional. scan steps along the leading "
                f"axis of every leaf of xs; close over values that every step shares."
            )
    first = shapes[0][0]
    for index, shape in enumerate(shapes):
        if shape[0] != first:
            raise UsageError(
                f"xs disagree on the number of steps: {leaf_path(tree, 0, root)} has {first}, "
                f"{leaf_path(tree, index, root)} has {shape[0]} on the leading axis."
            )
    if count is not None and count != first:
        raise UsageError(
            f"length is {count}, and {leaf_path(tree, 0, root)} has {first} on the leading axis. "
            f"Leave length out, or cut xs to it."
        )
    return first


@dataclass(frozen=True)
class ScanPlan:
    """The arguments of one scan call, flattened and checked."""

    init: list[Any]
    init_treedef: Any
    xs: list[Any]
    xs_treedef: Any
    length: int
    reverse: bool
    device: Any

    @property
    def bare_row(self) -> bool:
        """Whether xs is one array, so that a row needs no tree around it."""
        return len(self.xs) == 1 and optree.treespec_is_leaf(self.xs_treedef)

    @property
    def row_tree(self) -> PyTree:
        """A tree with the structure of one x."""
        return unflatten(self.xs_treedef, self.xs)

    @property
    def order(self) -> range:
        """The steps in the order in which they run."""
        return range(self.length - 1, -1, -1) if self.reverse else range(self.length)


def plan_scan(
    init: PyTree, xs: PyTree, length: int | None, ops: LeafOps, *, reverse: bool
) -> ScanPlan:
    """Flatten and check the arguments of a scan.

    Raises
    ------
    UsageError
        If the number of steps is missing, or two sources of it disagree.
    LoopTypeError
        If a leaf is not an array of the library.
    """
    leaves, treedef = flatten(init)
    rows, rows_treedef = flatten(xs)
    check_leaves(init, leaves, "carry", ops)
    check_leaves(xs, rows, "xs", ops)
    steps = scan_length(xs, [tuple(ops.spec(row).shape) for row in rows], length)
    return ScanPlan(
        leaves, treedef, rows, rows_treedef, steps, reverse, first_device([*leaves, *rows], ops)
    )


def first_device(leaves: Sequence[Any], ops: LeafOps) -> Any:
    """Return the device of the first array among leaves, None for the default one."""
    for leaf in leaves:
        if type(leaf) not in SCALAR_KINDS:
            return ops.spec(leaf).device
    return None


def check_predicate(value: Any, ops: LeafOps, source: str) -> Any:
    """Return a predicate, which must be a Python bool or a 0-d boolean array.

    Parameters
    ----------
    value : object
        What `source` gave.
    ops : LeafOps
        The library of the loop.
    source : str
        Who gave it, for messages.
    """
    if isinstance(value, bool):
        return value
    if ops.is_array(value):
        spec = ops.spec(value)
        if tuple(spec.shape) == () and dtype_name(spec.dtype) == "bool":
            return value
        what = f"{dtype_name(spec.dtype)} of shape {tuple(spec.shape)}"
    else:
        what = type_name(value)
    raise LoopTypeError(
        f"{source} must be a bool or a 0-d boolean array, and is {what}. Compare, or reduce with "
        f"xp.any or xp.all."
    )
