"""The functions of array-api-extra that break the graph, written so that they do not.

Each is array-API code for any namespace, one whole graph under ``torch.compile`` in both modes, and
equal in value to what array-api-extra 0.11 gives; ``tests/unit/test_rewrites.py`` shows both, and
the page on the state of the ecosystem lists them. Where the shape of a result depends on values,
the rewrite has a fixed shape and says how much of it counts.

Run with ``python examples/rewrites.py``: every rewrite beside the original, compiled.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import array_namespace

Array = Any

# --- what to write for a choice on values ---


def apply_where(cond: Array, args: tuple[Array, ...], f1: Any, f2: Any) -> Array:
    """Choose between two computations, element by element.

    Both are computed everywhere, and the original computes each only where it is asked for: give
    functions that accept all values. The breaks of the original are its boolean indexing.
    """
    xp = array_namespace(cond, *args)
    one, other = f1(*args), f2(*args)
    kind = xp.result_type(one, other)
    return xp.where(cond, xp.astype(one, kind), xp.astype(other, kind))


def nanmax(a: Array, axis: int | None = None) -> Array:
    """Return the largest value that is not NaN; NaN where there is none.

    The original asks ``if xp.any(mask)`` to save a `where`; here the `where` is always done.
    """
    xp = array_namespace(a)
    mask = xp.isnan(a)
    found = xp.max(xp.where(mask, xp.full_like(a, -math.inf), a), axis=axis)
    return xp.where(xp.all(mask, axis=axis), xp.full_like(found, math.nan), found)


def nanmin(a: Array, axis: int | None = None) -> Array:
    """Return the smallest value that is not NaN; NaN where there is none."""
    return -nanmax(-a, axis)


# --- what to write for a partial order ---


def partition(a: Array, kth: int, axis: int = -1) -> Array:
    """Put the element at `kth` where a sort would, smaller ones before it, larger ones after.

    A sorted array is partitioned at every `kth`; sorting is one operation, of O(n log n).
    """
    del kth
    return array_namespace(a).sort(a, axis=axis)


def argpartition(a: Array, kth: int, axis: int = -1) -> Array:
    """Return indices that partition `a`."""
    del kth
    return array_namespace(a).argsort(a, axis=axis)


# --- what to write for a shape that depends on values: a fixed shape, and a count ---


def _distinct(x: Array) -> tuple[Array, Array]:
    """Return the sorted values, and where each is seen for the first time."""
    xp = array_namespace(x)
    ordered = xp.sort(xp.reshape(x, (-1,)))
    first = xp.ones_like(ordered[:1], dtype=xp.bool)
    return ordered, xp.concat((first, ordered[1:] != ordered[:-1]))


def _to_the_front(values: Array, keep: Array) -> tuple[Array, Array]:
    """Return the kept values first, in order, then repetitions of the last of them; and a count."""
    xp = array_namespace(values)
    number = xp.arange(values.shape[0])
    order = xp.argsort(xp.where(keep, number, number + values.shape[0]))
    count = xp.sum(xp.astype(keep, xp.int64))
    last = xp.clip(count - 1, 0, None)
    return xp.take(values, xp.take(order, xp.minimum(number, last))), count


def nunique(x: Array) -> Array:
    """Return the number of distinct values, as a 0-d array."""
    xp = array_namespace(x)
    return xp.sum(xp.astype(_distinct(x)[1], xp.int64))


def union1d(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sorted distinct values of both, and how many there are.

    The array has the length of both together: only the first `count` values are the union.
    """
    xp = array_namespace(a, b)
    values = xp.concat((xp.reshape(a, (-1,)), xp.reshape(b, (-1,))))
    return _to_the_front(*_distinct(values))


def setdiff1d(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the sorted distinct values of `a` that are not in `b`, and how many there are."""
    xp = array_namespace(a, b)
    ordered, first = _distinct(a)
    absent = ~xp.any(ordered[:, None] == xp.reshape(b, (-1,))[None, :], axis=1)
    return _to_the_front(ordered, first & absent)


# --- what to write for work on shapes: plain tuples, no generators and no sets ---


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes broadcast to.

    The original has a generator expression inside a call, which Dynamo does not trace, and warns
    that it is deprecated: a warning breaks the graph too.
    """
    ndim = 0
    for shape in shapes:
        ndim = max(ndim, len(shape))
    sizes = [1] * ndim
    for shape in shapes:
        for axis in range(-len(shape), 0):
            if sizes[axis] == 1:
                sizes[axis] = shape[axis]
            elif shape[axis] not in (1, sizes[axis]):
                raise ValueError(f"shapes cannot be broadcast to one shape: {shapes}")
    return tuple(sizes)


def expand_dims(a: Array, axis: tuple[int, ...]) -> Array:
    """Insert axes of length one.

    The original warns that it is deprecated, and a warning breaks the graph.
    """
    ndim = a.ndim + len(axis)
    new = [n + ndim if n < 0 else n for n in axis]
    inside = True
    for n in new:
        inside = inside and 0 <= n < ndim
    if not inside or len(dict.fromkeys(new)) != len(new):
        raise ValueError(f"axis={axis} does not name {len(axis)} axes of {ndim}")
    sizes = list(a.shape)
    for n in sorted(new):
        sizes.insert(n, 1)
    return array_namespace(a).reshape(a, tuple(sizes))


def cov(m: Array) -> Array:
    """Return the covariance matrix of the rows of `m`, observations in columns.

    The original calls ``torch.cov``, whose check of the degrees of freedom looks at a value.
    """
    xp = array_namespace(m)
    if m.ndim == 1:
        m = m[None, :]
    centred = m - xp.mean(m, axis=-1, keepdims=True)
    other = xp.conj(centred) if xp.isdtype(m.dtype, "complex floating") else centred
    found = centred @ xp.matrix_transpose(other) / (m.shape[-1] - 1)
    return xp.reshape(found, (m.shape[0],) * 2 if m.shape[0] > 1 else ())


def main() -> None:
    """Compile each rewrite as one whole graph, and say so."""
    import torch

    from fullgraph.testing import check_compiled

    v = torch.tensor([3.0, 1.0, 2.0, 1.0])
    i = torch.tensor([0, 2, 1, 2])
    nan = torch.tensor([[1.0, math.nan], [math.nan, math.nan]])
    calls = [
        (apply_where, (v > 1, (v, v), torch.add, torch.sub)),
        (nanmax, (nan, 1)),
        (nanmin, (nan, 1)),
        (partition, (v, 2)),
        (argpartition, (v, 2)),
        (nunique, (i,)),
        (union1d, (i, torch.tensor([5, 1]))),
        (setdiff1d, (i, torch.tensor([1]))),
        (broadcast_shapes, ((2, 1), (3,))),
        (expand_dims, (v, (0, 2))),
        (cov, (torch.arange(6.0).reshape(2, 3),)),
    ]
    for function, args in calls:
        for mode in ("compile", "fullgraph"):
            record = check_compiled(function, args, mode=mode)
            assert record.functions[0].whole == 1, function
        print(f"{function.__name__}: whole in both modes")


if __name__ == "__main__":
    main()
