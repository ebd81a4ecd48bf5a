"""Rules for indexing with integer tensors."""

from __future__ import annotations

from fullgraph.native.dtypes import BOOL
from fullgraph.native.ir import Gather, Node, Shape
from fullgraph.native.ops._registry import Call, Refused, harmless, reshape, rule, wrap_dim


def _lookup(call: Call, x: Node, sources: list[int | Node], shape: Shape) -> Node:
    safe = tuple(harmless(call, s, 0) if isinstance(s, Node) else s for s in sources)
    return Gather(dtype=x.dtype, shape=shape, arg=x, sources=safe, origin=call.origin)


def _padded(index: Node, behind: int) -> Node:
    """Return `index` with dimensions of one behind its own, so that it broadcasts in front."""
    return reshape(index, (*index.shape, *([1] * behind)))


@rule("aten.index.Tensor")
def _index(call: Call) -> Node:
    x, indices = call.tensor(0), call.arg(1)
    if not isinstance(indices, list):
        raise Refused("no list of indices")
    indexed = [d for d, i in enumerate(indices) if i is not None]
    nodes = [i for i in indices if isinstance(i, Node)]
    if any(i.dtype == BOOL for i in nodes):
        raise Refused("a mask selects a number of elements that depends on the data; use where")
    count = max(len(i.shape) for i in nodes)
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if together else 0
    behind = len(call.shape) - first - count
    out = [d for d in range(len(call.shape)) if not first <= d < first + count]
    plain = iter(out)
    sources: list[int | Node] = []
    for d in range(len(x.shape)):
        index = indices[d] if d < len(indices) else None
        sources.append(_padded(index, behind) if isinstance(index, Node) else next(plain))
    return _lookup(call, x, sources, call.shape)


@rule("aten.gather.default")
def _gather(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(2)
    if not x.shape:
        return _lookup(call, reshape(x, (1,)), [index], call.shape)
    dim = wrap_dim(call.integer(1), len(x.shape))
    if not index.shape:  # a 0-d index into one dimension
        return reshape(_lookup(call, x, [reshape(index, (1,))], (1,)), call.shape)
    sources: list[int | Node] = list(range(len(x.shape)))
    sources[dim] = index
    return _lookup(call, x, sources, call.shape)


@rule("aten.index_select.default")
def _index_select(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(2)
    dim = wrap_dim(call.integer(1), len(x.shape)) if x.shape else 0
    if not x.shape:
        return reshape(_lookup(call, reshape(x, (1,)), [reshape(index, (1,))], (1,)), call.shape)
    sources: list[int | Node] = list(range(len(x.shape)))
    sources[dim] = _padded(reshape(index, (index.size,)), len(x.shape) - dim - 1)
    return _lookup(call, x, sources, call.shape)


@rule("aten.take.default")
def _take(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(1)
    return _lookup(call, reshape(x, (x.size,)), [index], call.shape)


@rule("aten.embedding.default")
def _embedding(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(1)
    return _lookup(call, x, [_padded(index, 1), len(call.shape) - 1], call.shape)
