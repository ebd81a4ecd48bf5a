"""Loop IR with some values replaced, and what follows from cotangents that are absent."""

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

__all__ = ["is_zero", "substitute", "sum_of", "without", "zeros_like"]


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


def substitute(roots: Iterable[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """Return `roots` with some nodes replaced."""
    roots = list(roots)
    done: dict[Node, Node] = dict(replacements)
    for node in _needed(roots, done):
        done[node] = with_inputs(node, tuple(done[a] for a in node.inputs))
    return [done[r] for r in roots]


def without(roots: Iterable[Node], absent: Iterable[Node]) -> tuple[list[Node], set[Node]]:
    """Return `roots` without values that are absent, and which nodes of the result are absent.

    An absent value is a cotangent that autograd leaves undefined. Zeros stand for it, and what is
    multiplied by one is absent, too, even where it is infinite. A zero that somebody has written is
    not absent: times infinity it is NaN.
    """
    roots = list(roots)
    done: dict[Node, Node] = {node: zeros_like(node) for node in absent}
    gone: set[Node] = set(done.values())
    for node in _needed(roots, done):
        made = with_inputs(node, tuple(done[a] for a in node.inputs))
        if not gone.isdisjoint(made.inputs):
            made = _without(made, gone)
        done[node] = made
    return [done[r] for r in roots], gone


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


def _without(node: Node, gone: set[Node]) -> Node:
    """Return what a node comes to, some of whose operands are absent."""
    if _is_absent(node, gone):
        made: Node = zeros_like(node)
        gone.add(made)
        return made
    if isinstance(node, Map) and node.fn in ("add", "sub"):
        return _other_term(node, gone)
    return node


def _is_absent(node: Node, gone: set[Node]) -> bool:
    absent = [a in gone for a in node.inputs]
    # Slices go back into zeros of torch's own, which are none of what somebody has written.
    nothing = [a in gone or _shows_zeros(a) for a in node.inputs]
    match node:
        case Map(fn="mul"):
            return any(absent)
        case Map(fn="div" | "neg" | "cast"):
            return absent[0] and node.dtype.is_float
        case Map(fn="add" | "sub"):
            return all(absent)
        case Cat():
            return all(nothing)
        case Map(fn="where"):
            return absent[1] and absent[2]
        case Reshape() | Permute() | Slice() | Broadcast() | Gather():
            return absent[0]
        case Reduce(fn="sum") | Accumulate(fn="sum"):
            return absent[0]
        case Contract():
            return any(absent)
        case Scatter():
            return nothing[0] and nothing[1]
        case Kernel(name="solve" | "triangular"):
            return absent[1]
    return False


def _shows_zeros(node: Node) -> bool:
    while isinstance(node, Reshape | Permute | Slice | Broadcast):
        node = node.arg
    return is_zero(node)


def _other_term(node: Map, gone: set[Node]) -> Node:
    a, b = node.args
    rest = b if a in gone else a
    if (rest.shape, rest.dtype) != (node.shape, node.dtype):
        return node
    if a in gone and node.fn == "sub":
        return dataclasses.replace(node, fn="neg", args=(b,))
    return rest


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
