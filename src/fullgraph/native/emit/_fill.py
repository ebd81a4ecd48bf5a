"""Nodes with memory of their own: which loops fill it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.emit._index import Index, plus
from fullgraph.native.emit._kernels import kernel_lines
from fullgraph.native.emit._loops import Buffers, keep, memory_size, over, store
from fullgraph.native.emit._products import product_nest
from fullgraph.native.emit._reductions import arg_reduce_nest, reduce_nest, running_nest
from fullgraph.native.emit._scatter import scatter_nest
from fullgraph.native.ir import Accumulate, ArgReduce, Cat, Contract, Kernel, Node, Reduce, Scatter
from fullgraph.native.lanes import SHORT, terms

if TYPE_CHECKING:
    from fullgraph.native.emit._elements import Elements

__all__ = ["fill"]


def fill(e: Elements, buffers: Buffers, node: Node) -> None:
    """Give `node` memory and write the loops that fill it."""
    unroll = e.plan.unroll
    match node:
        case Kernel():
            names = [_whole(e, buffers, a) for a in node.args]
            name = buffers.new(e, node)
            e.scope.uniform += kernel_lines(node, names, name)
            return
        case Accumulate():
            running_nest(e, buffers, node)
            return
        case ArgReduce():
            arg_reduce_nest(e, buffers, node)
            return
        case Scatter():
            scatter_nest(e, buffers, node)
            return
    if not unroll:
        match node:
            case Cat():
                _cat(e, buffers, node)
                return
            case Reduce() if terms(node) > SHORT:
                reduce_nest(e, buffers, node)
                return
            case Contract() if terms(node) > SHORT:
                product_nest(e, buffers, node)
                return
    name = f"{e.name('m')}"
    buffers.arrays.append((name, node.dtype, max(memory_size(e, node), 1)))
    store(e, node, lambda index: f"{name}[{e.local(node, index)}]", unroll=unroll)
    keep(e, node, name)


def _whole(e: Elements, buffers: Buffers, node: Node) -> str:
    """Return the name of a contiguous array with all of `node`."""
    name = buffers.plain(e, node.dtype, node.size)
    store(e, node, lambda index: f"{name}[{e.local(node, index)}]", unroll=e.plan.unroll)
    return name


def _cat(e: Elements, buffers: Buffers, node: Cat) -> None:
    name = e.name("m")
    buffers.arrays.append((name, node.dtype, max(memory_size(e, node), 1)))
    at = 0
    for part in node.args:
        offset = at

        def body(index: list[Index], part: Node = part, offset: int = offset) -> None:
            moved = [*index]
            moved[node.dim] = plus(index[node.dim], offset)
            e.say(
                f"{name}[{e.local(node, moved)}] = {e.element(part, index)};",
                lane=e.varies(node),
            )

        over(e, part.shape, e.plan.lane.get(node), body, unroll=False)
        at += part.shape[node.dim]
    keep(e, node, name)
