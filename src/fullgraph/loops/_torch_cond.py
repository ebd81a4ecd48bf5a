"""``torch.cond`` for `fullgraph.cond` inside a user's own ``torch.compile``.

Everything here is traced by Dynamo. ``torch.cond`` refuses branches that return an operand or a
view of one; cloning what a branch returns cures that, and costs nothing once compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cond", "is_traced"]

PyTree = Any


def is_traced() -> bool:
    """Whether this call is being traced by ``torch.compile`` or ``torch.export``.

    Not ``is_compiling``, which is true in every thread of the process while one of them compiles.
    """
    return torch.compiler.is_dynamo_compiling() or torch.compiler.is_exporting()


def _array(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def cond(
    pred: Any,
    on_true: Callable[..., PyTree],
    on_false: Callable[..., PyTree],
    operands: tuple[Any, ...],
) -> PyTree:
    """Emit ``torch.cond`` into the graph that is being captured."""
    leaves, treedef = flatten(operands)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = tuple([leaves[i] for i in places])

    def branch(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
        def run(*arrays: Any) -> PyTree:
            values = list(leaves)
            for place, array in zip(places, arrays, strict=True):
                values[place] = array.clone()
            out, out_treedef = flatten(function(*unflatten(treedef, values)))
            return unflatten(out_treedef, [_array(leaf) for leaf in out])

        return run

    return torch.cond(pred, branch(on_true), branch(on_false), tensors)
