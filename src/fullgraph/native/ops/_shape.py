"""Rules for views and for what joins tensors."""

from __future__ import annotations

from fullgraph.native.ir import Cat, Constant, Node, Shape
from fullgraph.native.ops._registry import (
    Call,
    Refused,
    broadcast,
    cast,
    permute,
    reshape,
    rule,
    take_slice,
    wrap_dim,
)


def join(parts: list[Node], dim: int) -> Node:
    """Return `parts` after each other along `dim`, without the empty ones."""
    kept = [p for p in parts if p.shape[dim]] or parts[:1]
    if len(kept) == 1:
        return kept[0]
    shape = list(kept[0].shape)
    shape[dim] = sum(p.shape[dim] for p in kept)
    return Cat(
        dtype=kept[0].dtype, shape=tuple(shape), args=tuple(kept), dim=dim, origin=kept[0].origin
    )


def replace_range(whole: Node, part: Node, dim: int, start: int) -> Node:
    """Return `whole` with its range from `start` along `dim` replaced by `part`."""
    end = start + part.shape[dim]
    rest = whole.shape[dim] - end
    parts = [take_slice(whole, dim, 0, start), part]
    if rest:
        parts.append(take_slice(whole, dim, end, rest))
    return join(parts, dim)


@rule(
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.unsqueeze.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    # torch's own decompositions change the shape of a temporary in place, and use the result.
    "aten.squeeze_.default",
    "aten.squeeze_.dim",
    "aten.unsqueeze_.default",
    "aten._reshape_alias.default",
    "aten.flatten.using_ints",
    "prims.reshape.default",
    "prims.collapse.default",
    "prims.collapse_view.default",
    "prims.split_dim.default",
    "prims.squeeze.default",
)
def _reshape(call: Call) -> Node:
    return reshape(call.tensor(0), call.shape)


@rule("aten.view.dtype")
def _view_dtype(call: Call) -> Node:
    raise Refused("reinterpreting the bits of a tensor; convert its dtype instead")


@rule("aten.permute.default", "prims.transpose.default")
def _permute(call: Call) -> Node:
    order = call.integers(1) or ()
    return permute(call.tensor(0), tuple(wrap_dim(d, len(order)) for d in order))


@rule("aten.t.default", "aten.transpose.int")
def _transpose(call: Call) -> Node:
    x = call.tensor(0)
    rank = len(x.shape)
    if rank < 2:
        return x
    a, b = (0, 1) if call.name == "aten.t.default" else (call.integer(1), call.integer(2))
    a, b = wrap_dim(a, rank), wrap_dim(b, rank)
    order = list(range(rank))
    order[a], order[b] = order[b], order[a]
    return permute(x, tuple(order))


@rule("aten.expand.default")
def _expand(call: Call) -> Node:
    return broadcast(call.tensor(0), call.shape)


@rule("prims.broadcast_in_dim.default")
def _broadcast_in_dim(call: Call) -> Node:
    kept = call.integers(2) or ()
    x = call.tensor(0)
    sizes = iter(x.shape)
    aligned = tuple(next(sizes) if d in kept else 1 for d in range(len(call.shape)))
    return broadcast(reshape(x, aligned), call.shape)


@rule("aten.select.int")
def _select(call: Call) -> Node:
    x = call.tensor(0)
    dim = wrap_dim(call.integer(1), len(x.shape))
    index = wrap_dim(call.integer(2), x.shape[dim])
    return reshape(take_slice(x, dim, index, 1), call.shape)


def _bounds(call: Call, first: int, size: int) -> tuple[int, int, int]:
    """Return start, end and step of a slice, within the tensor, as Python slices do."""
    start, end, step = (call.arg(first + i, n) for i, n in enumerate(("start", "end", "step")))
    if not all(v is None or isinstance(v, int) for v in (start, end, step)):
        raise Refused("a slice whose bounds are only known while the loop runs")
    bounds = slice(start, end, step).indices(size)
    return bounds[0], max(bounds[0], bounds[1]), bounds[2]


@rule("aten.slice.Tensor")
def _slice(call: Call) -> Node:
    x = call.tensor(0)
    dim = wrap_dim(call.integer(1, "dim", 0), len(x.shape))
    start, _, step = _bounds(call, 2, x.shape[dim])
    return take_slice(x, dim, start if call.shape[dim] else 0, call.shape[dim], step)


@rule("aten.diagonal.default")
def _diagonal(call: Call) -> Node:
    x = call.tensor(0)
    rank = len(x.shape)
    offset = call.integer(1, "offset", 0)
    a, b = wrap_dim(call.integer(2, "dim1", 0), rank), wrap_dim(call.integer(3, "dim2", 1), rank)
    order = (*(d for d in range(rank) if d not in (a, b)), a, b)
    x = permute(x, order)
    length, rows, columns = call.shape[-1], *x.shape[-2:]
    first = max(-offset, 0) * columns + max(offset, 0)
    flat = reshape(x, (*x.shape[:-2], rows * columns))
    return take_slice(flat, rank - 2, first if length else 0, length, columns + 1)


@rule("aten.split.Tensor", "aten.split_with_sizes.default", "aten.unbind.int", "aten.chunk.default")
def _split(call: Call) -> tuple[Node, ...]:
    x = call.tensor(0)
    unbind = call.name == "aten.unbind.int"
    dim = wrap_dim(call.integer(1 if unbind else 2, "dim", 0), len(x.shape))
    parts, at = [], 0
    for shape in call.shapes:
        length = 1 if unbind else shape[dim]
        parts.append(reshape(take_slice(x, dim, at if length else 0, length), shape))
        at += length
    return tuple(parts)


@rule("aten.cat.default", "prims.cat.default")
def _cat(call: Call) -> Node:
    parts = [cast(p, call.dtype) for p in call.tensors(0)]
    rank = len(call.shape)
    parts = [p for p in parts if len(p.shape) == rank]  # torch drops legacy empty 1-d tensors
    return join(parts, wrap_dim(call.integer(1, "dim", 0), rank))


@rule("aten.stack.default")
def _stack(call: Call) -> Node:
    dim = wrap_dim(call.integer(1, "dim", 0), len(call.shape))
    one: Shape = (*call.shape[:dim], 1, *call.shape[dim + 1 :])
    return join([reshape(cast(p, call.dtype), one) for p in call.tensors(0)], dim)


@rule("aten.flip.default", "prims.rev.default")
def _flip(call: Call) -> Node:
    x = call.tensor(0)
    for d in call.integers(1) or ():
        dim = wrap_dim(d, len(x.shape))
        if x.shape[dim] > 1:
            x = take_slice(x, dim, x.shape[dim] - 1, x.shape[dim], -1)
    return x


@rule("aten.roll.default")
def _roll(call: Call) -> Node:
    x = call.tensor(0)
    shifts, dims = call.integers(1) or (), call.integers(2, "dims") or ()
    if not dims:
        return reshape(_rolled(reshape(x, (x.size,)), shifts[0], 0), call.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, wrap_dim(dim, len(x.shape)))
    return x


def _rolled(x: Node, shift: int, dim: int) -> Node:
    n = x.shape[dim]
    shift = shift % n if n else 0
    if not shift:
        return x
    return join([take_slice(x, dim, n - shift, shift), take_slice(x, dim, 0, n - shift)], dim)


def _filled(like: Node, dim: int, width: int, value: bool | float, origin: str) -> Node:
    shape = tuple(width if d == dim else n for d, n in enumerate(like.shape))
    return Constant(dtype=like.dtype, shape=shape, value=value, origin=origin)


@rule("aten.constant_pad_nd.default")
def _pad(call: Call) -> Node:
    x, widths, value = call.tensor(0), call.integers(1) or (), call.arg(2, "value", 0)
    if not isinstance(value, bool | int | float):
        raise Refused("padding with a value that is only known while the loop runs")
    for i in range(len(widths) // 2):
        dim = len(x.shape) - 1 - i
        before, after = widths[2 * i], widths[2 * i + 1]
        keep = x.shape[dim] + min(before, 0) + min(after, 0)
        x = take_slice(x, dim, max(-before, 0), keep)
        parts: list[Node] = [x]
        if before > 0:
            parts.insert(0, _filled(x, dim, before, value, call.origin))
        if after > 0:
            parts.append(_filled(x, dim, after, value, call.origin))
        x = join(parts, dim)
    return x


@rule("aten.select_scatter.default")
def _select_scatter(call: Call) -> Node:
    x, part = call.tensor(0), call.tensor(1)
    dim = wrap_dim(call.integer(2, "dim", 0), len(x.shape))
    index = wrap_dim(call.integer(3, "index", 0), x.shape[dim])
    one = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return replace_range(
        x, reshape(broadcast(cast(part, x.dtype), (*one[:dim], *one[dim + 1 :])), one), dim, index
    )


@rule("aten.slice_scatter.default")
def _slice_scatter(call: Call) -> Node:
    x, part = call.tensor(0), cast(call.tensor(1), call.dtype)
    dim = wrap_dim(call.integer(2, "dim", 0), len(x.shape))
    start, end, step = _bounds(call, 3, x.shape[dim])
    length = len(range(start, end, step))
    shape = tuple(length if d == dim else n for d, n in enumerate(x.shape))
    part = broadcast(part, shape)
    if step == 1:
        return replace_range(x, part, dim, start) if length else x
    for i in range(length):
        x = replace_range(x, take_slice(part, dim, i, 1), dim, start + i * step)
    return x
