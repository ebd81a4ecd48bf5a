"""What the forward loop saves for the backward one.

Of the values of a step only those are saved that are dear to compute again: matrix products,
solves, running sums, loops. Everything else is computed again from the carry, which costs less than
memory does. What closed-over tensors alone determine is computed once, before the first step, and
what is a result anyway is read from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.ir import (
    Accumulate,
    Constant,
    Contract,
    Input,
    Iota,
    Kernel,
    Node,
    Project,
    topological,
)
from fullgraph.native.lanes import SHORT, terms
from fullgraph.native.rewrite import depends_on

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["choose_saved"]


def choose_saved(
    gradients: list[Node], cotangents: set[Node], results: Iterable[Node]
) -> tuple[Node, ...]:
    """Return the values to save, in the order in which a step computes them.

    Parameters
    ----------
    gradients : list of Node
        What the backward computes.
    cotangents : set of Node
        What it is handed.
    results : iterable of Node
        What is there without saving it: the new carry and ys.
    """
    order = topological(gradients)
    behind = depends_on(gradients, cotangents)
    wanted = {a for n in order if n in behind for a in n.inputs if a not in behind}
    fixed = _fixed(order)
    there = {*results, *fixed}
    saved: list[Node] = []
    for value in order:
        if value not in wanted or value in there:
            continue
        dear = [n for n in _computed_again(value, there) if _is_dear(n)]
        if not dear:
            continue
        kept = [value] if _bytes(value) <= sum(map(_bytes, dear)) else dear
        saved += kept
        there.update(kept)
    return tuple(saved)


def _bytes(node: Node) -> int:
    return node.size * node.dtype.size


def _fixed(order: tuple[Node, ...]) -> set[Node]:
    """Return the values that are the same in every step."""
    fixed: set[Node] = set()
    for node in order:
        if isinstance(node, Input):
            if node.role == "const":
                fixed.add(node)
        elif isinstance(node, Constant | Iota) or all(a in fixed for a in node.inputs):
            fixed.add(node)
    return fixed


def _computed_again(value: Node, there: set[Node]) -> list[Node]:
    """Return what has to be computed for `value` from what is there."""
    found: dict[Node, None] = {}
    stack = [value]
    while stack:
        node = stack.pop()
        if node in found or node in there or isinstance(node, Input):
            continue
        found[node] = None
        if not isinstance(node, Project):
            stack += node.inputs
    return list(found)


def _is_dear(node: Node) -> bool:
    if isinstance(node, Contract):
        return terms(node) > SHORT
    return isinstance(node, Kernel | Accumulate | Project)
