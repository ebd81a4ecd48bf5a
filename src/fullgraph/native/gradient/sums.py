"""How the gradient of a closed-over tensor adds up over steps and lanes.

A tensor that all lanes share gets a sum over lanes in every step. Summing the lanes once, after the
loop, gives the same and leaves the lanes of the loop independent: the loop then carries one running
sum for each lane, and what is linear (sums, views) is done to the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.native.ir import Map, Permute, Reduce, Reshape
from fullgraph.native.rewrite import sum_of

if TYPE_CHECKING:
    import torch

    from fullgraph.native.ir import Node

__all__ = ["Total", "running_sums", "sum_of_lanes"]

# What is left to do with a total, in order: ("sum", dims), ("view", shape), ("permute", order).
Finish = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Total:
    """A running sum: what each step adds to it, and what is done to it after the loop."""

    step: Node
    finish: Finish = ()

    def finished(self, total: torch.Tensor) -> torch.Tensor:
        """Return the gradient, or the part of it that this sum is."""
        for what, numbers in self.finish:
            if what == "sum":
                total = total.sum(numbers)
            elif what == "view":
                total = total.reshape(numbers)
            else:
                total = total.permute(numbers)
        return total


def running_sums(gradient: Node, *, lanes_apart: bool) -> list[Total]:
    """Return the sums that make up the gradient of one tensor.

    Parameters
    ----------
    gradient : Node
        What one step adds.
    lanes_apart : bool
        Whether what is linear is left for after the loop.
    """
    if not lanes_apart:
        return [Total(gradient)]
    terms: dict[tuple[tuple[int, ...], Finish], list[Node]] = {}
    _collect(gradient, (), terms)
    return [Total(sum_of(nodes), finish) for (_, finish), nodes in terms.items()]


def _collect(
    node: Node, finish: Finish, terms: dict[tuple[tuple[int, ...], Finish], list[Node]]
) -> None:
    match node:
        case Map(fn="add") if all(
            (a.shape, a.dtype) == (node.shape, node.dtype) for a in node.args
        ):
            for a in node.args:
                _collect(a, finish, terms)
        case Reduce(fn="sum"):
            _collect(node.arg, (("sum", node.dims), *finish), terms)
        case Reshape():
            _collect(node.arg, (("view", node.shape), *finish), terms)
        case Permute():
            _collect(node.arg, (("permute", node.order), *finish), terms)
        case _:
            terms.setdefault((node.shape, finish), []).append(node)


def sum_of_lanes(gradient: Node) -> Node:
    """Return the gradient of a row with its sums joined to one, the longest dimension last.

    That dimension may then be a lane: blocks of lanes add their parts.
    """
    terms: dict[tuple[tuple[int, ...], Finish], list[Node]] = {}
    _collect(gradient, (), terms)
    if len(terms) != 1:
        return gradient
    (((shape, finish), nodes),) = terms.items()
    if not finish or finish[0][0] != "sum" or any(what != "view" for what, _ in finish[1:]):
        return gradient
    dims = finish[0][1]
    longest = max(dims, key=lambda d: shape[d])
    total = sum_of(nodes)
    rest = tuple(d for d in dims if d != longest)
    if rest:
        total = _summed(total, rest)
    total = _summed(total, (longest - sum(d < longest for d in rest),))
    if total.shape == gradient.shape:
        return total
    return Reshape(dtype=total.dtype, shape=gradient.shape, arg=total)


def _summed(node: Node, dims: tuple[int, ...]) -> Node:
    shape = tuple(n for d, n in enumerate(node.shape) if d not in dims)
    return Reduce(dtype=node.dtype, shape=shape, arg=node, fn="sum", dims=dims)
