"""Indices that a step computes: reading and writing, from the end, and outside."""

from __future__ import annotations

import pytest
import torch

from fullgraph.errors import NativeRuntimeError, UnsupportedBodyError
from fullgraph.native.tensor_index import read, write

TABLE = torch.arange(20.0, dtype=torch.float64).reshape(4, 5)


def scalar(value, dtype=torch.int64):
    return torch.tensor(value, dtype=dtype)


# --- The two functions, eagerly ---

KEYS = {
    "one": lambda i, j: i,
    "negative": lambda i, j: -i - 1,
    "two": lambda i, j: (i, j),
    "row": lambda i, j: (i, slice(None)),
    "column": lambda i, j: (slice(None), i),
    "beside numbers": lambda i, j: (-1, j),
    "before numbers": lambda i, j: (i, 2),
    "rest of a column": lambda i, j: (slice(1, None, 2), i),
    "last": lambda i, j: (Ellipsis, i),
    "first, rest": lambda i, j: (i, Ellipsis),
    "new dimension": lambda i, j: (None, i),
    "new dimension inside": lambda i, j: (i, None, slice(1, 3)),
    "both with a new one": lambda i, j: (i, None, j),
    "nothing computed": lambda i, j: (1, slice(None, 3)),
    "int32": lambda i, j: (i.to(torch.int32), j.to(torch.int8)),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("place", [(0, 0), (3, 2), (-1, -2)])
def test_they_are_what_torch_does(key, place):
    index = key(scalar(place[0]), scalar(place[1]))
    assert torch.equal(read(TABLE, index), TABLE[index])
    for value in (7.0, torch.rand(TABLE[index].shape, dtype=torch.float64)):
        ours, theirs = TABLE.clone(), TABLE.clone()
        write(ours, index, value)
        theirs[index] = value
        assert torch.equal(ours, theirs)


def test_lists_and_masks_beside_a_computed_index():
    i = scalar(2)
    assert torch.equal(read(TABLE, (i, [0, 3])), TABLE[i, [0, 3]])
    assert torch.equal(read(TABLE, ([0, 3], i)), TABLE[[0, 3], i])
    assert torch.equal(read(TABLE, (i, TABLE[0] > 2)), TABLE[i, TABLE[0] > 2])
    ours, theirs = TABLE.clone(), TABLE.clone()
    write(ours, ([0, 3], i), 1.0)
    theirs[[0, 3], i] = 1.0
    assert torch.equal(ours, theirs)


# --- In loops ---


def reading(c, x):
    i, a = c
    seen = (a[i], TABLE[i, 1:], a[..., i], TABLE[-i, i + 1], a[1:3, i], a[i, None, 2:])
    return ((i + 1) % 4, a * 0.5 + x), seen


def writing(c, x):
    i, a = c
    new = a.clone()
    new[i] = x
    new[i, 1:3] = 2 * x
    new[-1, -i - 1] += a[i, 0]
    new[1:3, i] = 7.0
    return ((i + 1) % 4, new), a[i].sum()


def inputs(dtype=torch.int64):
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    return (scalar(0, dtype), a), torch.rand(9, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("body", [reading, writing])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_loops(native, form, body, dtype):
    native.check(body, *inputs(dtype))


def test_an_index_from_xs_and_one_closed_over(native):
    where = scalar(2)
    body = lambda c, i: (c + TABLE[i], c[i] * TABLE[where, i])
    native.check(body, torch.zeros(5, dtype=torch.float64), torch.tensor([0, 3, -1]), exact=True)
    where = scalar(1)
    native.check(body, torch.zeros(5, dtype=torch.float64), torch.tensor([0, 3, -1]), exact=True)
    assert native.compiled == 1


def test_a_search_in_a_table(native):
    """Bisection by a computed index, which is what such indices are for."""
    knots = torch.linspace(0, 1, 33, dtype=torch.float64)

    def body(c, x):
        low, high = torch.tensor(0), torch.tensor(32)
        for _ in range(5):
            middle = (low + high) // 2
            left = x < knots[middle]
            low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        return c + 1, knots[low]

    native.check(body, torch.tensor(0), torch.rand(50, dtype=torch.float64), exact=True)


@pytest.mark.parametrize("body", [lambda c, i: (c, c[i]), lambda c, i: (c, put(c, i))])
@pytest.mark.parametrize("bad", [3, -4])
def test_outside_is_an_error(native, body, bad):
    xs = torch.tensor([0, -3, 2, bad])
    native.run(body, torch.zeros(3), xs[:3])
    with pytest.raises(NativeRuntimeError, match="outside its tensor"):
        native.run(body, torch.zeros(3), xs)


def put(c, i):
    new = c.clone()
    new[i] = 1.0
    return new


def test_gradients_go_through(native):
    _, xs = inputs()
    results = []
    for run in (native.run, native.plain):
        a = inputs()[0][1].requires_grad_()
        ys = run(writing, (scalar(0), a), xs)
        total = (ys[0][1] ** 2).sum() + (ys[1] ** 3).sum()
        results.append(torch.autograd.grad(total, a)[0])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "body",
    [
        lambda i, x: (i + 1, TABLE[0, i : i + 2]),
        lambda i, x: (i + 1, x * int(i)),
        lambda i, x: (i + 1, x * i.item()),
        lambda i, x: (i + 1, TABLE.narrow(1, i, 2)),
    ],
)
def test_other_uses_as_a_number_are_refused_with_what_to_write(native, body):
    with pytest.raises(
        UnsupportedBodyError, match=r"read as a Python number at .*a 0-d tensor"
    ) as caught:
        native.run(body, scalar(0), torch.rand(3))
    assert "test_tensor_index.py" in caught.value.line
    assert type(caught.value.__cause__).__module__.startswith("torch._dynamo")


def test_what_the_message_says_to_write_works(native):
    body = lambda i, x: (i + 1, TABLE[0, i + torch.arange(2)] * x)
    native.check(body, scalar(0), torch.rand(3, dtype=torch.float64), exact=True)


# --- Operations that do not count from the end, as eager torch does not ---

WRAPPING = {
    "take": lambda c, i: torch.take(c, i),
    "index": lambda c, i: c[i],
    "index_put": lambda c, i: c.index_put((i,), i.double(), accumulate=True),
    "put": lambda c, i: c.clone().put_(i, i.double()),
    "index_fill": lambda c, i: torch.index_fill(c, 0, i, 3.0),
}
PLAIN = {
    "gather": lambda c, i: torch.gather(c, 0, i),
    "index_select": lambda c, i: torch.index_select(c, 0, i),
    "embedding": lambda c, i: torch.nn.functional.embedding(i, c[:, None]),
    "scatter": lambda c, i: torch.scatter(c, 0, i, 1.5),
    "scatter_add": lambda c, i: torch.scatter_add(c, 0, i, i.double()),
    "index_add": lambda c, i: torch.index_add(c, 0, i, i.double()),
    "index_copy": lambda c, i: torch.index_copy(c, 0, i, i.double()),
}


@pytest.mark.parametrize(
    "operation", [*WRAPPING.values(), *PLAIN.values()], ids=[*WRAPPING, *PLAIN]
)
def test_negative_indices_are_what_they_are_in_torch(native, operation):
    body = lambda c, i: (c, operation(c, i))
    init = torch.arange(5.0, dtype=torch.float64)
    xs = torch.tensor([[2, 0], [4, 1]])
    native.check(body, init, xs, exact=True)
    negative = torch.tensor([[2, 0], [4, -1]])
    if operation in WRAPPING.values():
        native.check(body, init, negative, exact=True)
        return
    with pytest.raises((RuntimeError, IndexError)):
        native.plain(body, init, negative)
    with pytest.raises(NativeRuntimeError, match="outside its tensor"):
        native.run(body, init, negative)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_rows_added_and_copied_along_a_dimension(native, form, dim):
    index = torch.tensor([1, 0, 1])

    def body(c, x):
        source = c.index_select(dim, index) * x
        added = torch.index_add(c, dim, index, source)
        copied = torch.index_copy(c, dim, index[:2], source.narrow(dim, 0, 2))
        return added * 0.5, (copied, torch.index_add(c, dim, index[:1], source.narrow(dim, 0, 1)))

    init = torch.rand(3, 4, dtype=torch.float64)
    native.check(body, init, torch.rand(4, dtype=torch.float64))


def test_numbers_take_part_too(native):
    body = lambda c, x: (torch.index_add(c, 0, torch.tensor([0]), x.reshape(1)), c)
    native.check(body, torch.rand(1, dtype=torch.float64), torch.rand(3, dtype=torch.float64))
    zero = lambda c, x: (torch.index_copy(c, 0, torch.tensor([0]), x.reshape(1)), c)
    native.check(zero, torch.tensor(1.0), torch.rand(3))
