"""Loop IR with some values replaced, and what follows from values that are zero."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fullgraph.native.ir import (
    Accumulate,
    Broadcast,
    Cat,
    Constant,
    Contract,
    Gather,
    Kernel,
    Map,
    Nested,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scatter,
    Slice,
    topological,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["is_zero", "substitute", "sum_of", "zeros_like"]


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """Return `node` with other operands, in the order of its `inputs`."""
    if all(a is b for a, b in zip(node.inputs, inputs, strict=True)):
        return node
    rest = iter(inputs)
    match node:
        case Map() | Cat() | Kernel():
            return dataclasses.replace(node, args=inputs)
        case Contract():
            return dataclasses.replace(node, lhs=next(rest), rhs=next(rest))
        case Gather():
            arg = next(rest)
            sources = tuple(next(rest) if isinstance(s, Node) else s for s in node.sources)
            return dataclasses.replace(node, arg=arg, sources=sources)
        case Scatter():
            base, value = next(rest), next(rest)
            sources = tuple(next(rest) if isinstance(s, Node) else s for s in node.sources)
            return dataclasses.replace(node, base=base, value=value, sources=sources)
        case Nested():
            a, b = len(node.init), len(node.init) + len(node.xs)
            return dataclasses.replace(node, init=inputs[:a], xs=inputs[a:b], consts=inputs[b:])
    return dataclasses.replace(node, arg=inputs[0])  # type: ignore[call-arg]


def substitute(
    roots: Iterable[Node], replacements: Mapping[Node, Node], *, zeros: bool = False
) -> list[Node]:
    """Return `roots` with some nodes replaced.

    With `zeros` the replacements are zeros that autograd would have left undefined, and they are
    propagated: what is multiplied by one vanishes, even where it is infinite.
    """
    roots = list(roots)
    done: dict[Node, Node] = dict(replacements)
    for node in _needed(roots, done):
        made = with_inputs(node, tuple(done[a] for a in node.inputs))
        done[node] = _without_zeros(made) if zeros and made is not node else made
    return [done[r] for r in roots]


def _needed(roots: list[Node], replaced: Mapping[Node, Node]) -> list[Node]:
    """Return what must be looked at, operands first, not looking behind what is replaced."""
    order: dict[Node, None] = {}
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if node in order or node in replaced:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack += [(a, False) for a in node.inputs]
    return list(order)


def is_zero(node: Node) -> bool:
    """Whether `node` is zero all over by construction."""
    return isinstance(node, Constant) and node.value == 0


def zeros_like(node: Node) -> Constant:
    """Return zeros of the form of `node`."""
    return Constant(dtype=node.dtype, shape=node.shape, value=0, origin=node.origin)


def _without_zeros(node: Node) -> Node:
    match node:
        case Map(fn="mul") if any(map(is_zero, node.args)):
            return zeros_like(node)
        case Map(fn="div" | "neg" | "cast") if is_zero(node.args[0]) and node.dtype.is_float:
            return zeros_like(node)
        case Map(fn="add" | "sub") if any(map(is_zero, node.args)):
            return _sum_without_zeros(node)
        case Map(fn="where") if is_zero(node.args[1]) and is_zero(node.args[2]):
            return zeros_like(node)
        case Reshape() | Permute() | Slice() | Broadcast() | Gather() if is_zero(node.inputs[0]):
            return zeros_like(node)
        case Reduce(fn="sum") | Accumulate(fn="sum") if is_zero(node.arg):
            return zeros_like(node)
        case Cat() if all(map(is_zero, node.args)):
            return zeros_like(node)
        case Contract() if is_zero(node.lhs) or is_zero(node.rhs):
            return zeros_like(node)
        case Scatter() if is_zero(node.base) and is_zero(node.value):
            return zeros_like(node)
        case Kernel(name="solve" | "triangular") if is_zero(node.args[1]):
            return zeros_like(node)
    return node


def _sum_without_zeros(node: Map) -> Node:
    a, b = node.args
    if is_zero(a) and is_zero(b):
        return zeros_like(node)
    left = b if is_zero(a) else a
    if (left.shape, left.dtype) != (node.shape, node.dtype):
        return node
    if is_zero(a) and node.fn == "sub":
        return dataclasses.replace(node, fn="neg", args=(b,))
    return left


def sum_of(terms: list[Node]) -> Node:
    """Return the sum of nodes of one form."""
    total = terms[0]
    for term in terms[1:]:
        total = Map(
            dtype=total.dtype,
            shape=total.shape,
            fn="add",
            args=(total, term),
            compute=total.dtype,
            origin=term.origin,
        )
    return total


def depends_on(roots: Iterable[Node], leaves: set[Node]) -> set[Node]:
    """Return the nodes behind `roots` that need one of `leaves`, those among them."""
    found: set[Node] = set()
    for node in topological(roots):
        if node in leaves or any(a in found for a in node.inputs):
            found.add(node)
    return found
