"""`fullgraph.cond` where the predicate is known: call the branch under the rules of loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend
from fullgraph.loops._carry import in_place_error, output_leaf
from fullgraph.loops._namespace import eager_ops, leaf_ops, resolve
from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._plan import first_device
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["choose"]

PyTree = Any


def choose(
    function: Callable[..., PyTree], operands: tuple[PyTree, ...], leaves: list[Any], treedef: Any
) -> PyTree:
    """Call a branch on loans of the operands and return its results as private arrays."""
    namespace = resolve({"operands": operands}, None)
    if namespace.backend is Backend.JAX:  # immutable: nothing to lend or to copy
        result = function(*operands)
        out, out_treedef = flatten(result)
        ops_of_jax = leaf_ops(namespace)
        return unflatten(
            out_treedef,
            [
                output_leaf(result, i, leaf, ops_of_jax, None, "result")
                for i, leaf in enumerate(out)
            ],
        )
    ops = eager_ops(namespace)
    values = list(leaves)
    places = [i for i, leaf in enumerate(leaves) if type(leaf) not in SCALAR_KINDS]
    lent, token = ops.lend([ops.own(leaves[i]) for i in places])
    for place, leaf in zip(places, lent, strict=True):
        values[place] = leaf
    try:
        result = function(*unflatten(treedef, values))
    except (ValueError, RuntimeError) as error:
        if ops.write_was_refused(error):
            raise in_place_error() from error
        raise
    if not ops.unwritten(token):
        raise in_place_error()
    out, out_treedef = flatten(result)
    device = first_device(leaves, ops)
    arrays = [output_leaf(result, i, leaf, ops, device, "result") for i, leaf in enumerate(out)]
    return unflatten(out_treedef, [ops.own(leaf) for leaf in arrays])
