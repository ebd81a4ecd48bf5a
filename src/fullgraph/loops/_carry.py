"""The rules of a carry, and their messages: one text on every backend.

A carry keeps its structure, and each leaf its shape, dtype and device. A Python scalar among the
leaves is weak: it takes the dtype of the first result of the body and keeps that.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from fullgraph.errors import CarryError, InPlaceUpdateError, LoopTypeError, StackedOutputError
from fullgraph.loops._codec import Codec, codec_for
from fullgraph.loops._ops import SCALAR_KINDS, LeafOps, LeafSpec, dtype_kind, dtype_name
from fullgraph.loops._tree import (
    describe,
    flatten,
    leaf_path,
    same_structure,
    type_name,
    unflatten,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "CarrySpec",
    "OutputSpec",
    "in_place_error",
    "output_leaf",
    "split_result",
    "step_codec",
    "strengthen",
    "weak_leaves",
]

Array = Any
PyTree = Any
_KIND_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def in_place_error() -> InPlaceUpdateError:
    """Return the error for a body that writes into what it was handed."""
    return InPlaceUpdateError(
        "the body writes into its carry or into x. What a body is handed is read-only on every "
        "backend: compute a new array instead, such as c = c + x for c += x, or "
        "xp.where(mask, value, c) for c[mask] = value."
    )


def split_result(result: Any) -> tuple[PyTree, PyTree]:
    """Take apart what a scan body returned, which must be the pair (carry, y)."""
    if type(result) is tuple and len(result) == 2:
        return result
    raise CarryError(
        f"the body of a scan must return the pair (carry, y), and returned "
        f"{_kind_of_result(result)}. Return (carry, None) when there is nothing to stack."
    )


def _kind_of_result(result: Any) -> str:
    if isinstance(result, (tuple, list)):
        return f"a {type(result).__name__} of {len(result)}"
    return "None" if result is None else f"a single {type(result).__name__}"


class CarrySpec:
    """What the carry of one loop call must look like after every step.

    Parameters
    ----------
    tree : PyTree
        The carry as it goes in, all leaves arrays.
    ops : LeafOps
        The library of the leaves.
    """

    def __init__(self, tree: PyTree, ops: LeafOps) -> None:
        self.tree = tree
        self.ops = ops
        leaves, self.treedef = flatten(tree)
        self.leaves = tuple([ops.spec(leaf) for leaf in leaves])
        self.matchers = [ops.matcher(spec) for spec in self.leaves]
        #: A carry that is one array needs no flattening, which a cheap body would feel.
        self.bare = len(leaves) == 1 and leaves[0] is tree
        self.codec = step_codec(tree, self.treedef, ops)

    def accept(self, tree: PyTree) -> list[Array]:
        """Check what a body returned and return its leaves as arrays, Python scalars made arrays.

        Raises
        ------
        CarryError
            If structure, shape, dtype or device differ from the carry that went in.
        """
        quick = self.codec.flatten(tree)
        if quick is not None and all(map(operator.call, self.matchers, quick)):
            return quick
        leaves, treedef = flatten(tree)
        if treedef != self.treedef and not same_structure(self.tree, tree):
            raise structure_error(self.tree, tree)
        for index, matches in enumerate(self.matchers):
            if not matches(leaves[index]):
                leaves[index] = self._convert(leaves[index], index)
        return leaves

    def _convert(self, leaf: Any, index: int) -> Array:
        """Make an array of a Python scalar that fits, or say what is wrong with the leaf."""
        spec = self.leaves[index]
        kind = SCALAR_KINDS.get(type(leaf))
        if kind is not None and spec.shape == () and _fits(kind, spec.dtype):
            try:
                return self.ops.scalar(leaf, spec.dtype, spec.device)
            except (OverflowError, RuntimeError) as error:
                raise CarryError(
                    f"{self.path(index)} is {dtype_name(spec.dtype)}, and the body returned the "
                    f"Python number {leaf!r}, which that dtype cannot hold. Give init a wider "
                    f"dtype."
                ) from error
        raise self._mismatch(leaf, index)

    def path(self, index: int) -> str:
        """Return the name of a leaf, such as ``carry["velocity"][1]``."""
        return leaf_path(self.tree, index, "carry")

    def _mismatch(self, leaf: Any, index: int) -> CarryError:
        spec, path = self.leaves[index], self.path(index)
        if type(leaf) in SCALAR_KINDS:
            got = LeafSpec((), type(leaf), spec.device)
            dtype = f"a Python {type(leaf).__name__}"
        elif self.ops.is_array(leaf):
            got = self.ops.spec(leaf)
            dtype = dtype_name(got.dtype)
        else:
            return CarryError(
                f"{path} goes into the body as a {self.ops.name} array and comes out as "
                f"{type_name(leaf)}. Return a {self.ops.name} "
                f"array for it."
            )
        if got.shape != spec.shape:
            return CarryError(
                f"{path} goes into the body with shape {_shape(spec.shape)} and comes out with "
                f"shape {_shape(got.shape)}. The carry keeps its shapes: give init the shape "
                f"{_shape(got.shape)}, or reshape or reduce in the body."
            )
        if got.dtype != spec.dtype:
            want = dtype_name(spec.dtype)
            fix = f"init as {dtype}" if dtype[0] != "a" else "init a dtype that can hold it"
            return CarryError(
                f"{path} goes into the body as {want} and comes out as {dtype}. The carry keeps "
                f"its dtypes: cast in the body with xp.astype(..., xp.{want}), or give {fix}."
            )
        return CarryError(
            f"{path} goes into the body on device {spec.device} and comes out on device "
            f"{got.device}. The carry keeps its devices: move what the body closes over, or init, "
            f"before the loop."
        )


def step_codec(tree: PyTree, treedef: Any, ops: LeafOps) -> Codec:
    """Return the quickest codec that may be used with a library: generated code is not traced."""
    if ops.runs_plainly:
        return codec_for(tree, treedef)
    return Codec(_structure_unknown, functools.partial(unflatten, treedef))


def _structure_unknown(_: PyTree) -> None:
    return None


def output_leaf(
    tree: PyTree, index: int, leaf: Any, ops: LeafOps, device: Any, root: str = "y"
) -> Array:
    """Return leaf number `index` of an output as an array, or say why it is none."""
    if type(leaf) in SCALAR_KINDS:
        return ops.scalar(leaf, None, device)
    if not ops.is_array(leaf):
        kind = type_name(leaf)
        raise StackedOutputError(
            f"{leaf_path(tree, index, root)} is {kind}, which is no array. Return "
            f"{ops.name} arrays, Python numbers or None for it."
        )
    return leaf


class OutputSpec:
    """What the per-step output y of a scan must look like: as in the first step.

    Parameters
    ----------
    tree : PyTree
        The first y.
    ops : LeafOps
        The library of the loop.
    device : object
        Device for outputs that are Python scalars.
    """

    def __init__(self, tree: PyTree, ops: LeafOps, device: Any) -> None:
        self.tree = tree
        self.ops = ops
        self.device = device
        leaves, self.treedef = flatten(tree)
        self.leaves = tuple(
            [ops.spec(output_leaf(tree, i, leaf, ops, device)) for i, leaf in enumerate(leaves)]
        )
        self.matchers = [ops.matcher(spec) for spec in self.leaves]
        self.bare = len(leaves) == 1 and leaves[0] is tree
        self.codec = step_codec(tree, self.treedef, ops)

    def accept(self, tree: PyTree, step: int) -> list[Array]:
        """Check the y of a step against the first one and return its leaves as arrays."""
        quick = self.codec.flatten(tree)
        if quick is not None and all(map(operator.call, self.matchers, quick)):
            return quick
        leaves, treedef = flatten(tree)
        if treedef != self.treedef and not same_structure(self.tree, tree):
            raise StackedOutputError(
                f"y is {describe(self.tree)} in the first step and {describe(tree)} in step "
                f"{step}. Return the same structure in every step."
            )
        for index, matches in enumerate(self.matchers):
            if not matches(leaves[index]):
                leaves[index] = self._convert(leaves[index], index, step)
        return leaves

    def _convert(self, leaf: Any, index: int, step: int) -> Array:
        """Make an array of a Python scalar, or say how the leaf differs from the first one."""
        array = output_leaf(self.tree, index, leaf, self.ops, self.device)
        got, spec = self.ops.spec(array), self.leaves[index]
        if got != spec:
            raise StackedOutputError(
                f"{leaf_path(self.tree, index, 'y')} is {_aval(spec)} in the first step and "
                f"{_aval(got)} in step {step}. Return the same shape, dtype and device in every "
                f"step."
            )
        return array


def _aval(spec: LeafSpec) -> str:
    place = "" if spec.device is None else f" on {spec.device}"
    return f"{dtype_name(spec.dtype)} of shape {_shape(spec.shape)}{place}"


def _shape(shape: Sequence[int]) -> str:
    return str(tuple(shape))


def structure_error(before: PyTree, after: PyTree) -> CarryError:
    """Return the error for a carry that comes out with another structure."""
    return CarryError(
        f"the carry goes into the body as {describe(before)} and comes out as {describe(after)}. "
        f"Return the structure that init has, the same containers, lengths and keys."
    )


def _fits(kind: str, dtype: Any) -> bool:
    """Whether a Python scalar of this kind goes into a dtype without losing its nature."""
    rank = _KIND_RANK.get(dtype_kind(dtype))
    return rank is not None and _KIND_RANK[kind] <= rank


def weak_leaves(leaves: Sequence[Any]) -> list[int]:
    """Return the positions of the Python scalars among the leaves."""
    return [i for i, leaf in enumerate(leaves) if type(leaf) in SCALAR_KINDS]


def strengthen(
    leaves: list[Any],
    treedef: Any,
    ops: LeafOps,
    device: Any,
    evaluate: Callable[[PyTree], PyTree] | None,
) -> list[Any]:
    """Replace Python scalars in a carry by 0-d arrays of the dtype that the body gives them.

    Parameters
    ----------
    leaves, treedef : list, PyTreeSpec
        The carry, with Python scalars.
    ops : LeafOps
        The library of the loop.
    device : object
        Where the new arrays go.
    evaluate : callable or None
        Maps a carry with scalars to the carry after one step; only shapes and dtypes of its result
        are used. None leaves the library's default dtypes.

    Returns
    -------
    list of array
    """
    weak = weak_leaves(leaves)
    if not weak:
        return leaves
    strong = list(leaves)
    before = unflatten(treedef, leaves)
    if evaluate is None:
        for index in weak:
            strong[index] = ops.scalar(leaves[index], None, device)
        return strong
    after = evaluate(before)
    results, treedef_after = flatten(after)
    if treedef_after != treedef and not same_structure(before, after):
        raise structure_error(before, after)
    for index in weak:
        strong[index] = _strong(before, index, leaves[index], results[index], ops, device)
    return strong


def _strong(
    tree: PyTree, index: int, value: complex, result: Any, ops: LeafOps, device: Any
) -> Array:
    path = leaf_path(tree, index, "carry")
    if type(result) in SCALAR_KINDS:
        # Both are weak: the wider kind decides, in the library's default dtype.
        wide = max(type(value), type(result), key=lambda kind: _KIND_RANK[SCALAR_KINDS[kind]])
        return ops.scalar(wide(value), None, device)
    if not ops.is_array(result):
        raise LoopTypeError(
            f"{path} comes out of the body as {type_name(result)}. "
            f"Return a {ops.name} array or a Python number for it."
        )
    spec = ops.spec(result)
    if spec.shape != ():
        raise CarryError(
            f"{path} goes into the body with shape () and comes out with shape "
            f"{_shape(spec.shape)}. The carry keeps its shapes: give init the shape "
            f"{_shape(spec.shape)}, or reshape or reduce in the body."
        )
    if not _fits(SCALAR_KINDS[type(value)], spec.dtype):
        raise CarryError(
            f"{path} goes into the body as the Python number {value!r} and comes out as "
            f"{dtype_name(spec.dtype)}, which cannot hold it. Give init an array of the dtype "
            f"that the body computes, or cast in the body."
        )
    try:
        return ops.scalar(value, spec.dtype, spec.device)
    except (OverflowError, RuntimeError) as error:
        raise CarryError(
            f"{path} goes into the body as the Python number {value!r} and comes out as "
            f"{dtype_name(spec.dtype)}, which cannot hold it. Give init an array of a wider dtype."
        ) from error
