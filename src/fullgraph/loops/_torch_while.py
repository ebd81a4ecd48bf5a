"""torch's while operator for `fullgraph.while_loop` inside a user's own ``torch.compile``.

A Python loop that stops on data breaks the graph; the operator keeps it one graph. It is private
API (``torch._higher_order_ops.while_loop``, the same on torch 2.13 to 2.15): without it the plain
loop runs, and breaks the graph where it asks for the value of the condition.

Everything here is traced by Dynamo. The operator refuses states that share memory with anything, so
what goes in and what comes out is cloned, which costs nothing once compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fullgraph.loops._carry import CarrySpec, strengthen, weak_leaves
from fullgraph.loops._plan import check_leaves, check_predicate, first_device
from fullgraph.loops._results import WhileResult
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.loops._ops import ArrayOps

_operator: Any
try:
    from torch._higher_order_ops import while_loop as _operator
except ImportError:  # a torch that has moved it
    _operator = None

__all__ = ["NOT_TRACEABLE", "while_loop"]

PyTree = Any
NOT_TRACEABLE = object()
"""Returned where the plain loop has to run."""


def while_loop(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    init: PyTree,
    *,
    max_steps: int | None,
    ops: ArrayOps,
) -> Any:
    """Emit a while operator into the graph that is being captured.

    Returns
    -------
    PyTree, WhileResult or NOT_TRACEABLE
        What `fullgraph.while_loop` returns; the last if the condition is known while tracing, so
        that a plain loop is unrolled, or if this torch has no such operator.
    """
    leaves, treedef = flatten(init)
    check_leaves(init, leaves, "carry", ops)
    device = first_device(leaves, ops)

    def tree_of(state: Any) -> PyTree:
        return unflatten(treedef, [leaf.clone() if ops.is_array(leaf) else leaf for leaf in state])

    if _operator is None or not isinstance(cond(tree_of(leaves)), torch.Tensor):
        return NOT_TRACEABLE
    if weak_leaves(leaves):
        leaves = strengthen(
            leaves, treedef, ops, device, lambda tree: body(tree_of(flatten(tree)[0]))
        )
    carry = [ops.own(leaf) for leaf in leaves]
    spec = CarrySpec(unflatten(treedef, carry), ops)
    spec.accept(body(tree_of(carry)))  # its errors name the leaf; those of the operator do not

    def going(*state: Any) -> Any:
        verdict = check_predicate(cond(tree_of(state[1:])), ops, "what cond returned")
        # in an operator the verdict is a tensor even where one step alone would know it
        verdict = torch.as_tensor(verdict).reshape(())
        return verdict if max_steps is None else verdict & (state[0] < max_steps)

    def step(*state: Any) -> Any:
        new = spec.accept(body(tree_of(state[1:])))
        return (state[0] + 1, *[leaf.clone() for leaf in new])

    start = (torch.zeros((), dtype=torch.int64), *carry)
    steps, *final = _operator(going, step, start)
    state = unflatten(treedef, list(final))
    if max_steps is None:
        return state
    done = ~torch.as_tensor(cond(tree_of(final))).reshape(())
    return WhileResult(state, steps.to(device), done)
