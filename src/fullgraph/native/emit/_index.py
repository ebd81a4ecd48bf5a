"""Index arithmetic as C text: integers are folded, everything else is an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.axes import reshape_groups

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LANE", "Index", "linear", "minus", "plus", "reshaped", "times"]

Index = int | str

LANE = "k"  # the C variable that counts the lanes of a block


def plus(*terms: Index) -> Index:
    """Return the sum."""
    number = sum(t for t in terms if isinstance(t, int))
    texts = [t for t in terms if isinstance(t, str)]
    if not texts:
        return number
    if number:
        texts.append(str(number))
    return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"


def times(index: Index, factor: int) -> Index:
    """Return the product with a number."""
    if isinstance(index, int):
        return index * factor
    if factor in (0, 1):
        return index if factor else 0
    return f"{index} * {factor}"


def minus(number: int, index: Index) -> Index:
    """Return ``number - index``."""
    return number - index if isinstance(index, int) else f"({number} - {index})"


def linear(index: Sequence[Index], shape: Sequence[int]) -> Index:
    """Return the row-major position of `index` in `shape`."""
    terms: list[Index] = []
    stride = 1
    for i, n in zip(reversed(index), reversed(shape), strict=True):
        if n != 1:
            terms.append(times(i, stride))
        stride *= n
    return plus(*reversed(terms))


def _split(position: Index, shape: Sequence[int]) -> list[Index]:
    index: list[Index] = []
    for d, n in enumerate(reversed(shape)):
        if n == 1:
            index.append(0)
        elif isinstance(position, int):
            index.append(position % n)
            position //= n
        else:
            outermost = all(m == 1 for m in shape[: len(shape) - 1 - d])
            index.append(position if outermost else f"({position} % {n})")
            position = f"({position} / {n})"
    return index[::-1]


def reshaped(index: Sequence[Index], shape: Sequence[int], before: Sequence[int]) -> list[Index]:
    """Return where element `index` of a reshape to `shape` was in the shape `before`."""
    result: list[Index] = [0] * len(before)
    for left, right in reshape_groups(tuple(before), tuple(shape)):
        long = [d for d in left if before[d] != 1]
        inside = [index[d] for d in right]
        position = linear(inside, [shape[d] for d in right])
        if len(long) == 1:
            result[long[0]] = position
        else:
            parts = _split(position, [before[d] for d in left])
            for d, i in zip(left, parts, strict=True):
                result[d] = i
    return result
