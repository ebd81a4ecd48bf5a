"""Writes at places that tensors hold: the other direction of a lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.emit._loops import Buffers, keep, memory_size, over
from fullgraph.native.scalar import expression

if TYPE_CHECKING:
    from fullgraph.native.emit._elements import Elements
    from fullgraph.native.emit._index import Index
    from fullgraph.native.ir import Scatter

__all__ = ["scatter_nest"]


def scatter_nest(e: Elements, buffers: Buffers, node: Scatter) -> None:
    """Copy the base into memory of its own, and write or add the elements of the value."""
    name = buffers.plain(e, node.dtype, memory_size(e, node), "m")

    def copy(index: list[Index]) -> None:
        atom = e.element(node.base, index)
        e.say(f"{name}[{e.local(node, index)}] = {atom};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), copy, unroll=False)

    def write(index: list[Index]) -> None:
        place = [
            index[source] if isinstance(source, int) else e.place(source, index, node.value, n)
            for source, n in zip(node.sources, node.shape, strict=True)
        ]
        cell, lane = f"{name}[{e.local(node, place)}]", e.varies(node)
        value = e.element(node.value, index)
        if node.accumulate:
            value = expression("add", node.dtype, [cell, value])
        e.say(f"{cell} = {value};", lane=lane)

    # Two elements may have one place, so only lanes are independent.
    over(e, node.value.shape, e.plan.lane.get(node.value), write, unroll=False, independent=False)
    keep(e, node, name)
