"""Rules for indexing with integer tensors."""

from __future__ import annotations

from fullgraph.native.dtypes import BOOL
from fullgraph.native.ir import Constant, Gather, Map, Node, Scatter, Shape
from fullgraph.native.ops._registry import (
    Call,
    Refused,
    broadcast,
    cast,
    harmless,
    reshape,
    rule,
    take_slice,
    wrap_dim,
)


def _lookup(call: Call, x: Node, sources: list[int | Node], shape: Shape) -> Node:
    safe = tuple(harmless(call, s, 0) if isinstance(s, Node) else s for s in sources)
    return Gather(dtype=x.dtype, shape=shape, arg=x, sources=safe, origin=call.origin)


def _from_front(index: Node, n: int) -> Node:
    """Return `index` with negative numbers outside of `n`, for operations that do not wrap them."""
    zero = Constant(dtype=index.dtype, shape=(), value=0)
    outside = Constant(dtype=index.dtype, shape=(), value=n)
    negative = Map(dtype=BOOL, shape=index.shape, fn="lt", args=(index, zero), compute=index.dtype)
    return Map(
        dtype=index.dtype,
        shape=index.shape,
        fn="where",
        args=(negative, outside, index),
        compute=index.dtype,
    )


def _padded(index: Node, behind: int) -> Node:
    """Return `index` with dimensions of one behind its own, so that it broadcasts in front."""
    return reshape(index, (*index.shape, *([1] * behind)))


def _places(call: Call, rank: int) -> tuple[list[int | Node], int, list[int]]:
    """Return the source of each dimension of what is indexed, and where the indices' own go.

    These are the first of the dimensions of the result that the indices make, and how many.
    """
    indices = call.arg(1)
    if not isinstance(indices, list):
        raise Refused("no list of indices")
    indexed = [d for d, i in enumerate(indices) if i is not None]
    nodes = [i for i in indices if isinstance(i, Node)]
    if any(i.dtype == BOOL for i in nodes):
        raise Refused("a mask selects a number of elements that depends on the data; use where")
    count = max(len(i.shape) for i in nodes)
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    first = indexed[0] if together else 0
    plain = rank - len(indexed)
    out = [d for d in range(plain + count) if not first <= d < first + count]
    rest = iter(out)
    sources: list[int | Node] = []
    for d in range(rank):
        index = indices[d] if d < len(indices) else None
        behind = plain - first
        sources.append(_padded(index, behind) if isinstance(index, Node) else next(rest))
    shape = [1] * count
    for node in nodes:
        for k, n in enumerate(reversed(node.shape)):
            shape[-1 - k] = max(shape[-1 - k], n) if n else 0
    return sources, first, shape


@rule("aten.index.Tensor")
def _index(call: Call) -> Node:
    x = call.tensor(0)
    sources, _, _ = _places(call, len(x.shape))
    return _lookup(call, x, sources, call.shape)


def _written(
    call: Call, x: Node, sources: list[int | Node], value: Node, *, accumulate: bool
) -> Node:
    safe = tuple(harmless(call, s, 0) if isinstance(s, Node) else s for s in sources)
    return Scatter(
        dtype=x.dtype,
        shape=x.shape,
        base=x,
        value=value,
        sources=safe,
        accumulate=accumulate,
        origin=call.origin,
    )


@rule("aten.index_put.default", "aten._unsafe_index_put.default")
def _index_put(call: Call) -> Node:
    x = call.tensor(0)
    sources, first, own = _places(call, len(x.shape))
    rest = [n for n, s in zip(x.shape, sources, strict=True) if isinstance(s, int)]
    shape = (*rest[:first], *own, *rest[first:])
    value = broadcast(cast(call.tensor(2), x.dtype), shape)
    return _written(call, x, sources, value, accumulate=call.flag(3, "accumulate"))


@rule("aten.scatter_add.default", "aten.scatter.src", "aten.scatter.value")
def _scatter(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(2)
    accumulate = "scatter_add" in call.name
    value = cast(call.tensor(3), x.dtype)
    if not x.shape:
        one = _written(
            call,
            reshape(x, (1,)),
            [_from_front(reshape(index, (1,)), 1)],
            broadcast(reshape(value, (1,)), (1,)),
            accumulate=accumulate,
        )
        return reshape(one, call.shape)
    if not index.shape:
        index = reshape(index, (1,))
        value = reshape(value, (1,))
    dim = wrap_dim(call.integer(1), len(x.shape))
    if "value" in call.name:
        value = broadcast(value, index.shape)
    for d, n in enumerate(index.shape):  # of a larger source the first elements count
        value = take_slice(value, d, 0, n)
    if any(n != x.shape[d] for d, n in enumerate(index.shape) if d != dim):
        raise Refused("an index that is shorter than the tensor; pad it")
    sources: list[int | Node] = list(range(len(x.shape)))
    sources[dim] = _from_front(index, x.shape[dim])
    return _written(call, x, sources, value, accumulate=accumulate)


@rule("aten.index_add.default", "aten.index_copy.default")
def _index_add(call: Call) -> Node:
    x, index, value = call.tensor(0), call.tensor(2), cast(call.tensor(3), call.dtype)
    alpha = call.arg(4, "alpha", 1)
    if alpha != 1:
        raise Refused("alpha; multiply the source by it")
    one = not x.shape
    if one:
        x, value = reshape(x, (1,)), reshape(value, (1,))
    dim = wrap_dim(call.integer(1), len(x.shape))
    index = _from_front(reshape(index, (index.size,)), x.shape[dim])
    sources: list[int | Node] = list(range(len(x.shape)))
    sources[dim] = _padded(index, len(x.shape) - dim - 1)
    result = _written(call, x, sources, value, accumulate="index_add" in call.name)
    return reshape(result, call.shape) if one else result


@rule("aten.gather.default")
def _gather(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(2)
    if not x.shape:
        return _lookup(call, reshape(x, (1,)), [_from_front(index, 1)], call.shape)
    dim = wrap_dim(call.integer(1), len(x.shape))
    index = _from_front(index, x.shape[dim])
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
        first = _from_front(reshape(index, (1,)), 1)
        return reshape(_lookup(call, reshape(x, (1,)), [first], (1,)), call.shape)
    sources: list[int | Node] = list(range(len(x.shape)))
    index = _from_front(reshape(index, (index.size,)), x.shape[dim])
    sources[dim] = _padded(index, len(x.shape) - dim - 1)
    return _lookup(call, x, sources, call.shape)


@rule("aten.take.default")
def _take(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(1)
    return _lookup(call, reshape(x, (x.size,)), [index], call.shape)


@rule("aten.embedding.default")
def _embedding(call: Call) -> Node:
    x, index = call.tensor(0), call.tensor(1)
    index = _from_front(index, x.shape[0])
    return _lookup(call, x, [_padded(index, 1), len(call.shape) - 1], call.shape)
