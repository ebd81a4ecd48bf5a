"""What the operation table has no rule for, written with operations that it has.

torch's own decompositions do most of this work; here are the ones torch lacks. Each is a function
of tensors with the operator's signature, traced while a body is captured, so it may call whatever
torch offers, out of place. Returning NotImplemented leaves the operator as it is: it is then
refused by name.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from fullgraph.native.ops import canonical_name, rules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["decompositions"]

_OWN: dict[Any, Callable[..., Any]] = {}


@functools.lru_cache(maxsize=1)
def decompositions() -> dict[Any, Any]:
    """Return decompositions of everything that the operation table has no rule for."""
    from torch._decomp import decomposition_table

    found = {
        op: function
        for op, function in decomposition_table.items()
        if canonical_name(str(op)) not in rules
    }
    return found | _OWN


def _decomposes(op: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _OWN[op] = function
        return function

    return register


# --- convolutions: one matrix product for each tap of the window ---


def _padded(x: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    widths = [w for p in reversed(padding) for w in (p, p)]
    return pad(x, widths) if any(widths) else x


def _windows(
    tap: Sequence[int], dilation: Sequence[int], stride: Sequence[int], out: Sequence[int]
) -> tuple[slice, ...]:
    """Return the index of what one tap of the window sees, a slice for each dimension."""
    return (
        slice(None),
        slice(None),
        *(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, s, n in zip(tap, dilation, stride, out, strict=True)
        ),
    )


def _in_groups(x: torch.Tensor, groups: int) -> torch.Tensor:
    """Return ``(n, channels, *space)`` as ``(n, groups, channels, points)``."""
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)


def _taps(weight: torch.Tensor) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(n) for n in weight.shape[2:])))


def _of_tap(weight: torch.Tensor, tap: Sequence[int], groups: int) -> torch.Tensor:
    """Return the matrices of one tap, ``(groups, out, in)``."""
    whole: tuple[Any, ...] = (slice(None), slice(None), *tap)
    one = weight[whole]
    return one.reshape(groups, one.shape[0] // groups, one.shape[1])


@_decomposes(torch.ops.aten.convolution.default)
def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    del output_padding
    if transposed or x.dim() != weight.dim():
        return NotImplemented
    rank = x.dim() - 2
    stride, padding, dilation = (_each(v, rank) for v in (stride, padding, dilation))
    whole = _padded(x, padding)
    out = _out_shape(whole, weight, stride, dilation)
    result = None
    for tap in _taps(weight):
        seen = _in_groups(whole[_windows(tap, dilation, stride, out)], groups)
        part = _of_tap(weight, tap, groups) @ seen
        result = part if result is None else result + part
    assert result is not None
    result = result.reshape(x.shape[0], weight.shape[0], *out)
    return result if bias is None else result + bias.reshape(-1, *([1] * rank))


def _each(values: Sequence[int], rank: int) -> list[int]:
    return list(values) * rank if len(values) == 1 else list(values)


def _out_shape(
    whole: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    return [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(whole.shape[2:], weight.shape[2:], stride, dilation, strict=True)
    ]


def _placed(part: torch.Tensor, window: Sequence[slice], shape: Sequence[int]) -> torch.Tensor:
    """Return zeros of the spatial `shape` with `part` where `window` looks."""
    for dim, (where, size) in enumerate(zip(window, shape, strict=True), start=2):
        if where.step > 1:  # zeros between the elements
            gaps = part.new_zeros(()).expand(
                *part.shape[: dim + 1], where.step - 1, *part.shape[dim + 1 :]
            )
            spread = torch.cat([part.unsqueeze(dim + 1), gaps], dim + 1).flatten(dim, dim + 1)
            part = spread.narrow(dim, 0, where.stop - where.start)
        behind = [0, 0] * (part.dim() - 1 - dim)
        part = pad(part, [*behind, where.start, size - where.stop])
    return part


@_decomposes(torch.ops.aten.convolution_backward.default)
def _convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Any:
    del bias_sizes, output_padding
    if transposed or x.dim() != weight.dim():
        return NotImplemented
    rank = x.dim() - 2
    stride, padding, dilation = (_each(v, rank) for v in (stride, padding, dilation))
    whole = _padded(x, padding)
    out = list(grad.shape[2:])
    above = _in_groups(grad, groups)
    to_x: torch.Tensor | None = None
    to_weight: list[torch.Tensor] = []
    for tap in _taps(weight):
        window = _windows(tap, dilation, stride, out)
        if output_mask[0]:
            part = _of_tap(weight, tap, groups).transpose(-1, -2) @ above
            part = _placed(part.reshape(*x.shape[:2], *out), window[2:], whole.shape[2:])
            to_x = part if to_x is None else to_x + part
        if output_mask[1]:
            seen = _in_groups(whole[window], groups).transpose(-1, -2)
            to_weight.append((above @ seen).sum(0).flatten(0, 1))
    if to_x is not None:
        inner = (slice(p, p + n) for p, n in zip(padding, x.shape[2:], strict=True))
        to_x = to_x[(slice(None), slice(None), *inner)]
    return (
        to_x,
        torch.stack(to_weight, -1).reshape(weight.shape) if output_mask[1] else None,
        grad.sum([0, *range(2, 2 + rank)]) if output_mask[2] else None,
    )


# --- searches: counted instead of bisected, which is a step that all lanes share ---


@_decomposes(torch.ops.aten.searchsorted.Tensor)
def _searchsorted(
    boundaries: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> Any:
    if sorter is not None:
        return NotImplemented
    right = right if side is None else side == "right"
    edges, each = boundaries.unsqueeze(-2), values.unsqueeze(-1)
    # Negated on purpose: a value that is not a number comes behind everything, as in torch.
    before = torch.logical_not(edges > each if right else edges >= each)
    return before.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


@_decomposes(torch.ops.aten.searchsorted.Scalar)
def _searchsorted_scalar(boundaries: torch.Tensor, value: float, **options: Any) -> Any:
    each = torch.full((1,), value, dtype=boundaries.dtype)
    found = _searchsorted(boundaries, each, **options)
    return found if found is NotImplemented else found.reshape(())


@_decomposes(torch.ops.aten.bucketize.Tensor)
def _bucketize(
    values: torch.Tensor,
    boundaries: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
) -> Any:
    found: torch.Tensor = _searchsorted(
        boundaries, values.reshape(-1), out_int32=out_int32, right=right
    )
    return found.reshape(values.shape)


# --- order: each element counts what comes before it, so that nothing depends on the data ---

LARGEST_SORT = 128  # elements along the sorted dimension; the count is quadratic


@_decomposes(torch.ops.aten.sort.stable)
def _sort_stable(
    x: torch.Tensor,
    *,
    stable: bool | None = None,
    dim: int = -1,
    descending: bool = False,
) -> Any:
    del stable  # always: eager's order of equal elements is one that is allowed
    if not x.dim():
        return x.clone(), torch.zeros((), dtype=torch.int64)
    if x.shape[dim] > LARGEST_SORT:
        return NotImplemented
    moved = x.movedim(dim, -1)
    this, other = moved.unsqueeze(-1), moved.unsqueeze(-2)
    earlier, same = (other > this) if descending else (other < this), other == this
    if x.dtype.is_floating_point:  # what is not a number is larger than all numbers
        no_number, neither = other != other, this != this
        behind = no_number & ~neither if descending else ~no_number & neither
        earlier, same = earlier | behind, same | (no_number & neither)
    place = torch.arange(moved.shape[-1])
    rank = (earlier | (same & (place < place.unsqueeze(-1)))).sum(-1)
    order = torch.where(rank.unsqueeze(-2) == place.unsqueeze(-1), place, 0).sum(-1)
    return (
        torch.gather(moved, -1, order).movedim(-1, dim),
        order.movedim(-1, dim),
    )


@_decomposes(torch.ops.aten.sort.default)
def _sort(
    x: torch.Tensor,
    dim: int = -1,
    descending: bool = False,
) -> Any:
    return _sort_stable(x, dim=dim, descending=descending)


@_decomposes(torch.ops.aten.median.default)
def _median(x: torch.Tensor) -> Any:
    flat = x.reshape(-1)
    if not 0 < flat.shape[0] <= LARGEST_SORT:
        return NotImplemented
    middle = _sort_stable(flat)[0][(flat.shape[0] - 1) // 2]
    if not x.dtype.is_floating_point:
        return middle
    return torch.where((flat != flat).any(), float("nan"), middle)


# --- writes ---


@_decomposes(torch.ops.aten.put.default)
def _put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> Any:
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


@_decomposes(torch.ops.aten.index_fill.int_Tensor)
def _index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> Any:
    # Unlike index_copy, by which torch writes this, it counts negative indices from the end.
    if x.dim() == 0:
        return _index_fill(x.reshape(1), 0, index, value).reshape(())
    rows = (*[None] * (dim % x.dim()), index.reshape(-1))
    return torch.ops.aten.index_put(x, rows, value.to(x.dtype))


@_decomposes(torch.ops.aten.index_fill.int_Scalar)
def _index_fill_number(x: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> Any:
    return _index_fill(x, dim, index, x.new_full((), value))
