"""Every family of the operation table against eager torch, in both forms and with lanes."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch.nn.functional import pad

T, N = 5, 3


def numbers(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


WEIGHT = numbers(N, N, seed=7)
GRID = torch.tensor([-1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
COLUMN = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)[:, None]


def written_into(c, x):
    d = c.clone()
    d[0] = x
    d[1:, 0] = 3.0
    d += 1
    return d


REAL = {
    "arithmetic": lambda c, x: (c * 0.5 - x / 2 + 1 - (-c), 2 - c),
    "alpha": lambda c, x: (torch.add(c, x, alpha=0.5), torch.sub(c, x, alpha=2)),
    "comparison": lambda c, x: (torch.where(c > x, c, x) * 0.9, (c < 0, c >= x, c == c, c != x)),
    "logic": lambda c, x: (c * 0.9, ((c > 0) & (x > 0), (c > 0) | ~(x > 0), (c > 0) ^ (x > 0))),
    "logical functions": lambda c, x: (
        c * 0.9,
        (torch.logical_and(c, x), torch.logical_or(c > 0, x), torch.logical_xor(c, x > 0)),
    ),
    "clamp": lambda c, x: (c.clamp(-1, 0.5), (c.clamp(min=0), c.clamp(max=x), torch.relu(c))),
    "extremes of two": lambda c, x: (
        c * 0.9,
        (torch.maximum(c, x), torch.minimum(c, x), torch.fmax(c, x), torch.fmin(c, x)),
    ),
    "powers": lambda c, x: (c * 0.9, [c**p for p in (0, 1, 2, 3, -1, -2, 4, -3)] + [2.0**c]),
    "roots": lambda c, x: (c * 0.9, [c.abs() ** p for p in (0.5, -0.5, 1.7)] + [c.abs() ** x]),
    "casts": lambda c, x: (c.float().double(), (c.int(), c.bool(), (c > 0).double(), c.long())),
    "two arguments": lambda c, x: (
        c * 0.9,
        [
            f(c, x)
            for f in (
                *(torch.atan2, torch.hypot, torch.remainder, torch.fmod, torch.floor_divide),
                *(torch.copysign, torch.nextafter, torch.logaddexp),
            )
        ],
    ),
    "rounding": lambda c, x: (
        c * 0.9,
        [f(c * 3) for f in (torch.floor, torch.ceil, torch.trunc, torch.round, torch.frac)]
        + [torch.div(c, x, rounding_mode=m) for m in ("floor", "trunc")],
    ),
    "exponentials": lambda c, x: (c * 0.9, [f(c) for f in (torch.exp, torch.exp2, torch.expm1)]),
    "logarithms": lambda c, x: (
        c * 0.9,
        [f(c.abs()) for f in (torch.log, torch.log2, torch.log10, torch.log1p)],
    ),
    "trigonometry": lambda c, x: (
        c * 0.9,
        [f(c) for f in (torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan)],
    ),
    "hyperbolic": lambda c, x: (
        c * 0.9,
        [f(c) for f in (torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.atanh)]
        + [torch.acosh(c.abs() + 1)],
    ),
    "special": lambda c, x: (
        c * 0.9,
        [f(c) for f in (torch.erf, torch.erfc, torch.lgamma, torch.sigmoid)]
        + [torch.sqrt(c.abs()), torch.rsqrt(c.abs()), torch.reciprocal(c), c.sgn()],
    ),
    "classes": lambda c, x: (c * 0.9, [torch.isnan(c / x), torch.isinf(c), torch.isfinite(c)]),
    "activations": lambda c, x: (
        c * 0.9,
        [torch.nn.functional.silu(c), torch.nn.functional.gelu(c), torch.nn.functional.softplus(c)],
    ),
    "new tensors": lambda c, x: (
        c + torch.arange(c.shape[1]) * 0.1 + torch.full((N, 1), 0.5),
        (torch.zeros_like(c), torch.ones(2), torch.linspace(0, 1, 3)),
    ),
    "constants": lambda c, x: (c * COLUMN * 0.3, c * torch.tensor([0.5, 1.0, 2.0])[:, None]),
    "select and slice": lambda c, x: (c * 0.9, (c[1], c[-1, :1], c[::2], c[:, -1], c[1:, None])),
    "index": lambda c, x: (c[torch.tensor([2, 0, 1])] * 0.5, (c[:, [0]], c[[0, 1], [0, 0]])),
    "index from data": lambda c, x: (
        torch.gather(c, 0, (c > 0).long()) * 0.9,
        c.index_select(0, (c[:, 0] > 0).long()),
    ),
    "negative index": lambda c, x: (
        c * 0.9,
        (c[torch.tensor([-1, -3])], torch.take(c, torch.tensor([1, -1]))),
    ),
    "stack and cat": lambda c, x: (
        torch.cat([c[1:], x[None]]) * 0.9,
        (torch.stack([c, -c], 1), torch.stack([x, x], -1), torch.hstack([c, c])),
    ),
    "views": lambda c, x: (
        c.reshape(-1).reshape(N, -1) * 0.9,
        (c.T.reshape(-1), c.flatten(), c.unsqueeze(1).squeeze(1), c.view(1, *c.shape)),
    ),
    "permute": lambda c, x: (c.T.contiguous().T * 0.9, (c.T, c[None].permute(2, 0, 1))),
    "expand": lambda c, x: (c + x.expand(N, -1), (x.expand(2, -1), c[:, :1].expand(-1, 4))),
    "flip": lambda c, x: (torch.flip(c, (0, 1)) * 0.9, (c.flip(0), x.flip(0))),
    "roll": lambda c, x: (
        torch.roll(c, 1, 1) * 0.9 + torch.roll(c, -1, 0),
        (torch.roll(c, 2), torch.roll(c, (1, 1), (0, 1))),
    ),
    "pad": lambda c, x: (
        pad(c[1:], (0, 0, 1, 0), value=2.0) * 0.9,
        (pad(c, (1, 2)), pad(c, (-1, 0, 1, 1)) if c.shape[1] > 1 else c),
    ),
    "writes of its own": lambda c, x: (written_into(c, x), None),
    "sums": lambda c, x: (c * 0.5 + x, (c.sum(0), c.sum(1, keepdim=True), c.sum(), c.prod(0))),
    "means": lambda c, x: (c - c.mean(1, keepdim=True) + x, (c.mean(), c.mean((0, 1)))),
    "variances": lambda c, x: (c * 0.9 + x, (c.var(0), c.std(0, correction=0), c.norm())),
    "extremes": lambda c, x: (c * 0.9 + x, (c.amax(1), c.amin(), c.max(0).values, c.min(1)[1])),
    "where extremes are": lambda c, x: (c * 0.9 + x, (c.argmax(1), c.argmin(0), c.argmax())),
    "truth": lambda c, x: (c * 0.9 + x, ((c > 0).any(), (c > 0).all(0), torch.any(c, 1))),
    "running sums": lambda c, x: (
        torch.cumsum(c, 0) * 0.3 + x,
        (torch.cumsum(c, 1), torch.cumprod(c, 0)),
    ),
    "softmax": lambda c, x: (torch.softmax(c, 0) + x, torch.log_softmax(c, 1)),
    "matrix products": lambda c, x: (
        torch.tanh(WEIGHT @ c + x),
        (c.T @ c, c @ x, x @ x, torch.bmm(c[None], c.T[None]), torch.einsum("ij,kj->ik", c, c)),
    ),
    "diagonals": lambda c, x: (
        c * 0.9,
        (c.diagonal(), c.diagonal(-1), c.T.diagonal(1), c[None].diagonal(2, 0, 2), torch.tril(c)),
    ),
    "normalised": lambda c, x: (
        torch.nn.functional.layer_norm(c, c.shape[1:]) + x,
        torch.nn.functional.normalize(c, dim=0),
    ),
    "searches": lambda c, x: (
        c * 0.9 + torch.searchsorted(GRID, c),
        [
            torch.searchsorted(GRID, c / x, right=True, out_int32=True),
            torch.bucketize(c, GRID),
            torch.searchsorted(GRID.expand(N, -1).contiguous(), c, side="right"),
        ],
    ),
    "orders": lambda c, x: (
        torch.sort(c, 0).values * 0.9,
        (
            *torch.sort(c.round(), 0, descending=True),
            torch.argsort(c / x, dim=0, stable=True),
            c[:, 0].median(),
            c[0, :2].sort().indices,
        ),
    ),
    "split": lambda c, x: (torch.cat(c.split(2)) * 0.9, c.unbind(0)),
}

WHOLE = {
    "arithmetic": lambda c, x: (c * 3 + 7 - c // 2, (c / 2, -c, c.abs(), c.sign())),
    "division": lambda c, x: (
        c // 3 + x,
        (c % 7, c % -3, torch.div(c, 5, rounding_mode="trunc"), torch.fmod(c, 4)),
    ),
    "bits": lambda c, x: (c & 1023, (c | 3, c ^ 5, ~c, c << 2, c >> 1)),
    "powers": lambda c, x: (c % 100, (c**2, c**3, (c % 3) ** 5)),
    "sums": lambda c, x: (c + x, (c.sum(), c.amax(0), c.argmin(), c.cumsum(0), (c > 3).sum())),
    "products": lambda c, x: (c % 50, (c @ c.T, c.double() * 0.5, c * 1.5)),
}


MATH = ("two arguments", "exponentials", "logarithms", "trigonometry", "hyperbolic", "special")
NOT_FLOAT32 = ("constants", "matrix products", "casts", "searches")
STAYS_FLOAT32 = [name for name in REAL if name not in NOT_FLOAT32]
slow = pytest.mark.slow


@pytest.mark.parametrize("name", REAL)
def test_float_operations_written_out(native, name):
    native.check(REAL[name], numbers(N, 2), numbers(T, 2, seed=1))


@pytest.mark.parametrize("name", REAL)
def test_float_operations_in_loops_or_lanes(native, name):
    native.check(REAL[name], numbers(N, 240), numbers(T, 240, seed=1))


@slow
@pytest.mark.parametrize("name", REAL)
def test_float_operations_in_both_forms(native, form, name):
    native.check(REAL[name], numbers(N, 40), numbers(T, 40, seed=1))


@pytest.mark.parametrize(
    "name", [n if n in MATH else pytest.param(n, marks=slow) for n in STAYS_FLOAT32]
)
def test_float32_operations(native, name):
    init, xs = numbers(N, 9, dtype=torch.float32), numbers(T, 9, seed=1, dtype=torch.float32)
    native.check(REAL[name], init, xs)


@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int8, torch.uint8]
    + [pytest.param(d, marks=slow) for d in (torch.int32, torch.int16)],
)
@pytest.mark.parametrize("name", WHOLE)
def test_integer_operations(native, name, dtype):
    c = (numbers(N, 6) * 20).abs().to(dtype)
    x = (numbers(T, 6, seed=1) * 5).abs().to(dtype)
    body = WHOLE[name]
    if dtype == torch.uint8 and name == "arithmetic":
        body = lambda c, x: (c * 3 + 7 - c // 2, (c / 2, -c))
    if dtype == torch.uint8 and name == "division":
        body = lambda c, x: (c // 3 + x, (c % 7, torch.fmod(c, 4)))
    native.check(body, c, x)


def test_bools(native, form):
    done = torch.tensor([True, False, True, False, False])
    native.check(
        lambda c, x: ((c[0] | (x > 0), c[1] + c[0]), (c[0] & ~(x > 1), c[0].any(), c[0].sum())),
        (done, torch.zeros(5, dtype=torch.int64)),
        numbers(T, 5),
    )


def test_mixed_dtypes(native):
    native.check(
        lambda c, x: ((c[0] + x, c[1] + 1, c[2] * x.float()), c[0] * c[1] * c[2]),
        (numbers(3), torch.tensor(0), numbers(3, dtype=torch.float32)),
        numbers(T, 3),
    )


@pytest.mark.parametrize("columns", [1, 3, 4, 17, 300, 1000])
def test_lanes_of_any_number(native, columns):
    body = lambda c, x: (c * x + 1 / (c * c + 1), c[0] - x)
    native.check(body, numbers(3, columns), numbers(4, 1, seed=1), exact=True)
    assert native.plan.lanes == (columns if columns >= 4 else 0)


def test_arithmetic_is_bit_identical(native, form):
    def body(c, x):
        a, b = c
        a, b = a * 0.7 + b / 3, (b - a * x).abs() / 2 + 1 / (1 + a * a)
        return (a, b), (a - b, a**2, b**3)

    init = (numbers(2, 37), numbers(2, 37, seed=1))
    native.check(body, init, numbers(50, 37, seed=2), exact=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_square_roots_are_correctly_rounded(native, dtype):
    """Eager torch's own are not where it is linked to MKL, so it is no oracle here."""
    x = numbers(1, 4000, dtype=dtype).abs()
    found = native.run(lambda c, x: (c, torch.sqrt(x)), torch.zeros(()), x)[1][0]
    exact = torch.tensor([math.sqrt(v) for v in x[0].tolist()], dtype=torch.float64).to(dtype)
    assert torch.equal(found, exact)


def test_long_sums_are_as_exact_as_torch_s(native):
    x = numbers(1, 100_000) * 10.0 ** numbers(1, 100_000, seed=2)
    found = native.run(lambda c, x: (c, x.sum()), torch.zeros(()), x)[1][0]
    exact = float(sum(map(Fraction, x[0].tolist())))
    error, eager = abs(float(found) - exact), abs(float(x[0].sum()) - exact)
    assert error <= 2 * eager + 2 * torch.finfo(torch.float64).eps * abs(exact)


def test_lanes_that_look_up_what_they_share(native):
    table, places = numbers(6), (torch.arange(40) * 7) % 6
    native.check(
        lambda c, x: (c * 0.5 + table[places], torch.cat([c[:2], x])[places % 3]),
        numbers(40),
        numbers(4, 1),
        exact=True,
    )
    native.check(
        lambda c, x: ((c[0] * 0.5 + x, c[1] + 1), c[1].double().index_select(0, c[2 - 1] % 5)),
        (numbers(5), torch.arange(5)),
        numbers(4, 5),
    )
