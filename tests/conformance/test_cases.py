"""Inputs that break other loop implementations, each with what is right.

The oracle is the plain loop. Where a driver's rules refuse a case, the test is the refusal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from fullgraph import cond, fori_loop, scan, while_loop
from fullgraph.errors import CarryError, InPlaceUpdateError, UnsupportedLoopError


class Point(NamedTuple):
    """A position and a velocity."""

    x: Any
    v: Any


def test_y_is_the_carry(driver):
    def step(c, s):
        n = c * 0.5 + s
        return n, n

    carry, ys = scan(step, driver.array([1.0, 2.0]), driver.array([[1.0, 0.0], [0.0, 1.0]]))
    np.testing.assert_array_equal(driver.host(ys), [[1.5, 1.0], [0.75, 1.5]])
    np.testing.assert_array_equal(driver.host(carry), [0.75, 1.5])
    assert not driver.share_memory(carry, ys)


def test_a_leaf_passed_through(driver):
    a, b = driver.array([1.0, 2.0]), driver.array([3.0, 4.0])
    (c0, c1), ys = scan(
        lambda c, s: ((c[0] + s, c[1]), c[0] * c[1]), (a, b), driver.array([1.0, 10.0])
    )
    np.testing.assert_array_equal(driver.host(c0), [12.0, 13.0])
    np.testing.assert_array_equal(driver.host(c1), [3.0, 4.0])
    np.testing.assert_array_equal(driver.host(ys), [[3.0, 8.0], [6.0, 12.0]])
    assert not driver.share_memory(c1, b)


def test_one_array_in_two_leaves(driver):
    z = driver.array([1.0, 2.0])
    (c0, c1), ys = scan(lambda c, s: ((c[0] + s, c[1]), c[0]), (z, z), driver.array([1.0, 2.0]))
    np.testing.assert_array_equal(driver.host(c0), [4.0, 5.0])
    np.testing.assert_array_equal(driver.host(c1), [1.0, 2.0])
    np.testing.assert_array_equal(driver.host(z), [1.0, 2.0])
    pairs = [(c0, z), (c1, z), (c0, c1), (c0, ys), (c1, ys)]
    assert not any(driver.share_memory(*pair) for pair in pairs)


def test_one_result_in_two_leaves(driver):
    def step(c, s):
        n = c[0] + s
        return (n, n), (n, n)

    z = driver.array([1.0, 2.0])
    (c0, c1), (y0, y1) = scan(step, (z, z), driver.array([1.0, 2.0]))
    np.testing.assert_array_equal(driver.host(c1), [4.0, 5.0])
    np.testing.assert_array_equal(driver.host(y1), [[2.0, 3.0], [4.0, 5.0]])
    pairs = [(c0, c1), (y0, y1), (c0, y0), (c1, y1)]
    assert not any(driver.share_memory(*pair) for pair in pairs)


def test_body_returns_what_it_closes_over(driver):
    w = driver.array([1.0, 2.0])
    carry, ys = scan(lambda c, s: (w, c), driver.array([0.0, 0.0]), driver.array([1.0, 1.0]))
    np.testing.assert_array_equal(driver.host(carry), [1.0, 2.0])
    np.testing.assert_array_equal(driver.host(ys), [[0.0, 0.0], [1.0, 2.0]])
    assert not driver.share_memory(carry, w)


def test_body_closing_over_init_in_a_while_loop(driver):
    x0 = driver.array([1.0, 2.0])
    k, total = while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + x0), (0, x0))
    assert int(driver.host(k)) == 3
    np.testing.assert_array_equal(driver.host(total), [4.0, 8.0])
    np.testing.assert_array_equal(driver.host(x0), [1.0, 2.0])


def test_body_closing_over_init(driver):
    x0 = driver.array([1.0, 2.0])
    total, _ = scan(lambda c, s: (c + x0 * s, None), x0, driver.array([1.0, 1.0, 1.0]))
    np.testing.assert_array_equal(driver.host(total), [4.0, 8.0])
    np.testing.assert_array_equal(driver.host(x0), [1.0, 2.0])


W = np.array([[0.5, -0.3, 0.1], [0.2, 0.4, -0.6], [-0.1, 0.3, 0.7]])
XS = np.sin(np.arange(12.0)).reshape(4, 3)


def test_tanh_forward(driver):
    xp = driver.xp
    weight = driver.array(W)

    def step(c, s):
        n = xp.tanh(weight @ c + s)
        return n, n

    _, ys = scan(step, driver.array(np.zeros(3)), driver.array(XS))
    c, want = np.zeros(3), []
    for s in XS:
        c = np.tanh(W @ c + s)
        want.append(c)
    np.testing.assert_allclose(driver.host(ys), np.stack(want), rtol=1e-14)


def _plain_torch_grads(loss, values):
    """Gradients by the oracle, a plain loop in torch."""
    import torch

    weights = [torch.tensor(value, requires_grad=True) for value in values]
    return [g.numpy() for g in torch.autograd.grad(loss(torch, *weights), weights)]


def _assert_gradients(found, want):
    for one, other in zip(found, want, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * max(1.0, np.abs(other).max())
        assert np.abs(other).max() > 0


@pytest.fixture
def differentiable(driver):
    if not driver.differentiable:
        pytest.skip("does not differentiate")
    return driver


def test_tanh_gradient(differentiable):
    driver, xp = differentiable, differentiable.xp
    xs, zero = driver.array(XS), driver.array(np.zeros(3))

    def loss(weight):
        def step(c, s):
            n = xp.tanh(weight @ c + s)
            return n, n

        return scan(step, zero, xs)[1].sum()

    def plain(torch, weight):
        c, total = torch.zeros(3, dtype=torch.float64), 0.0
        for s in torch.tensor(XS):
            c = torch.tanh(weight @ c + s)
            total = total + c.sum()
        return total

    _assert_gradients(driver.grads(loss, [W]), _plain_torch_grads(plain, [W]))


FOUR = [np.linspace(0.1, 0.9, 4) * k for k in (1.0, -0.7, 0.4, 1.3)]
SIX = np.cos(np.arange(16.0)).reshape(4, 4)


@pytest.mark.parametrize(
    "variant",
    [
        "sum",
        "reverse",
        pytest.param("squares", marks=pytest.mark.slow),
        pytest.param("last", marks=pytest.mark.slow),
    ],
)
def test_two_chained_scans_with_four_weights(differentiable, variant):
    """The gradient that stock Inductor's own scan gets wrong by a factor on torch 2.14.1."""
    driver, xp = differentiable, differentiable.xp
    zero, xs = driver.array(np.zeros(4)), driver.array(SIX)
    reverse = variant == "reverse"

    def value(carry, ys):
        return {"squares": lambda: (ys * ys).sum(), "last": lambda: carry.sum()}.get(
            variant, lambda: ys.sum()
        )()

    def loss(u1, v1, u2, v2):
        def first(c, s):
            n = xp.sin(c * u1 + s * v1)
            return n, n

        def second(c, s):
            n = xp.sin(c * u2 + s * v2)
            return n, n

        return value(*scan(second, zero, scan(first, zero, xs)[1], reverse=reverse))

    def plain(torch, u1, v1, u2, v2):
        c, mid = torch.zeros(4, dtype=torch.float64), []
        for s in torch.tensor(SIX):
            c = torch.sin(c * u1 + s * v1)
            mid.append(c)
        c, out = torch.zeros(4, dtype=torch.float64), []
        for s in reversed(mid) if reverse else mid:
            c = torch.sin(c * u2 + s * v2)
            out.append(c)
        return value(c, torch.stack(out))

    _assert_gradients(driver.grads(loss, FOUR), _plain_torch_grads(plain, FOUR))


def test_int_counter_beside_a_weight_that_needs_grad(differentiable):
    driver = differentiable
    xs = driver.array(XS)

    def loss(w):
        def step(c, s):
            k, v = c
            n = v * w + s
            return (k + 1, n), n

        init = (driver.array(0, "int64"), driver.array(np.zeros(3)))
        (k, _), ys = scan(step, init, xs)
        assert driver.dtype(k) == "int64"
        return ys.sum()

    def plain(torch, w):
        v, total = torch.zeros(3, dtype=torch.float64), 0.0
        for s in torch.tensor(XS):
            v = v * w + s
            total = total + v.sum()
        return total

    weight = np.array([0.5, 0.6, 0.7])
    with driver.refusing("int leaf"):
        found = driver.grads(loss, [weight])
    _assert_gradients(found, _plain_torch_grads(plain, [weight]))


def test_int_counter_forward(driver):
    init = (driver.array(0, "int64"), driver.array([1.0, 2.0]))
    with driver.refusing("int leaf"):
        (k, v), ys = scan(lambda c, s: ((c[0] + 1, c[1] + s), c[0]), init, driver.array([1.0, 2.0]))
    assert (int(k), driver.dtype(k), driver.dtype(ys)) == (2, "int64", "int64")
    np.testing.assert_array_equal(driver.host(ys), [0, 1])
    np.testing.assert_array_equal(driver.host(v), [4.0, 5.0])


def test_none_leaves(driver):
    init = {"a": None, "x": driver.array([1.0, 2.0])}
    carry, ys = scan(lambda c, x: ({"a": None, "x": c["x"] * 2}, None), init, None, length=3)
    assert carry["a"] is None
    assert ys is None
    np.testing.assert_array_equal(driver.host(carry["x"]), [8.0, 16.0])


def test_none_in_y_and_xs(driver):
    xs = (driver.array([1.0, 2.0]), None)
    carry, ys = scan(
        lambda c, x: (c + x[0], {"n": None, "c": c}), driver.array(np.asarray(0.5)), xs
    )
    assert ys["n"] is None
    np.testing.assert_array_equal(driver.host(ys["c"]), [0.5, 1.5])
    assert float(carry) == 3.5


def test_python_int_leaf_beside_none(driver):
    x = driver.array([1.0, 2.0])
    with driver.refusing("python scalar"):
        (k, v, nothing), ys = scan(
            lambda c, _: ((c[0] + 1, c[1] * 2, None), None), (0, x, None), length=5
        )
    assert nothing is None
    assert ys is None
    assert int(k) == 5
    np.testing.assert_array_equal(driver.host(v), [32.0, 64.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_python_float_takes_the_dtype_of_xs(driver, dtype):
    xs = driver.array([1.0, 2.0, 3.0], dtype)
    with driver.refusing("python scalar"):
        carry, ys = scan(lambda c, x: (c + x, c), 0.0, xs)
    assert driver.dtype(carry) == dtype
    assert driver.dtype(ys) == dtype
    np.testing.assert_array_equal(driver.host(ys), [0.0, 1.0, 3.0])


def test_python_scalar_alone_needs_xp(driver):
    with driver.refusing("python scalar"):
        carry, ys = scan(lambda c, _: (c + 1, c), 0, length=3, xp=driver.xp)
    assert int(carry) == 3
    np.testing.assert_array_equal(driver.host(ys), [0, 1, 2])


# Messages: whole and exact, and so the same on every backend.
DTYPE_TEXT = (
    'carry["v"][1] goes into the body as float32 and comes out as float64. The carry keeps its '
    "dtypes: cast in the body with xp.astype(..., xp.float32), or give init as float64."
)
INT_TEXT = (
    "carry goes into the body as int64 and comes out as float64. The carry keeps its dtypes: cast "
    "in the body with xp.astype(..., xp.int64), or give init as float64."
)
SHAPE_TEXT = (
    'carry["v"][1] goes into the body with shape (2,) and comes out with shape (3,). The carry '
    "keeps its shapes: give init the shape (3,), or reshape or reduce in the body."
)


def test_dtype_drift(driver):
    a, wide = driver.array([1.0, 2.0], "float32"), driver.array([1.0, 2.0], "float64")

    def step(c, _):
        return {"v": (c["v"][0], wide)}, None

    with pytest.raises(CarryError) as caught:
        scan(step, {"v": (a, a)}, length=2)
    assert str(caught.value) == DTYPE_TEXT
    assert isinstance(caught.value, TypeError)


def test_dtype_drift_by_promotion(driver):
    xs = driver.array([1.0, 2.0], "float64")
    c = driver.array([1.0, 2.0], "float32")
    with driver.refusing("two dtypes"), pytest.raises(CarryError, match=r"float32.*float64"):
        scan(lambda c, x: (c * driver.xp.ones(2, dtype=x.dtype), None), c, xs)


def test_int_carry_with_float_xs(driver):
    init, xs = driver.array([1, 2], "int64"), driver.array([[1.0, 2.0]], "float64")
    with driver.refusing("int leaf"), pytest.raises(CarryError) as caught:
        scan(lambda c, x: (x, None), init, xs)
    assert str(caught.value) == INT_TEXT


def test_shape_drift(driver):
    a, longer = driver.array([1.0, 2.0]), driver.array([1.0, 2.0, 3.0])
    with pytest.raises(CarryError) as caught:
        scan(lambda c, _: ({"v": (c["v"][0], longer)}, None), {"v": (a, a)}, length=2)
    assert str(caught.value) == SHAPE_TEXT


def test_stride_drift(driver):
    c = driver.array([[1.0, 2.0], [3.0, 4.0]])
    carry, ys = scan(lambda c, s: (c.T * 0.5 + s, None), c, driver.array([1.0, 2.0]))
    np.testing.assert_array_equal(driver.host(carry), [[2.75, 3.0], [3.25, 3.5]])
    assert ys is None


DRIFTS = {
    "list for tuple": (lambda c: [c[0], c[1]], "(*, *)", "[*, *]"),
    "a missing leaf": (lambda c: (c[0],), "(*, *)", "(*,)"),
    "None for an array": (lambda c: (c[0], None), "(*, *)", "(*, None)"),
    "an array for the tuple": (lambda c: c[0], "(*, *)", "*"),
    "a dict": (lambda c: {"a": c[0], "b": c[1]}, "(*, *)", '{"a": *, "b": *}'),
}


@pytest.mark.parametrize("drift", DRIFTS)
def test_structure_drift(driver, drift):
    change, before, after = DRIFTS[drift]
    a = driver.array([1.0, 2.0])
    with pytest.raises(CarryError) as caught:
        scan(lambda c, _: (change(c), None), (a, a), length=2)
    assert str(caught.value) == (
        f"the carry goes into the body as {before} and comes out as {after}. Return the structure "
        f"that init has, the same containers, lengths and keys."
    )


def test_other_dict_keys(driver):
    a = driver.array([1.0])
    with pytest.raises(CarryError, match=r'as \{"x": \*\} and comes out as \{"y": \*\}'):
        scan(lambda c, _: ({"y": c["x"]}, None), {"x": a}, length=2)


def test_dict_keys_in_another_order_are_the_same_structure(driver):
    init = {"x": driver.array([1.0]), "v": driver.array([2.0])}
    carry, _ = scan(lambda c, _: ({"v": c["v"], "x": c["x"] + c["v"]}, None), init, length=2)
    assert float(carry["x"][0]) == 5.0
    assert list(carry) == ["x", "v"]


def test_not_a_pair(driver):
    with pytest.raises(CarryError, match=r"must return the pair \(carry, y\)"):
        scan(lambda c, x: c, driver.array([1.0]), driver.array([1.0]))


IN_PLACE_TEXT = (
    "the body writes into its carry or into x. What a body is handed is read-only on every "
    "backend: compute a new array instead, such as c = c + x for c += x, or "
    "xp.where(mask, value, c) for c[mask] = value."
)


@pytest.mark.parametrize("target", ["carry", "x", "leaf of a tree"])
def test_in_place_body(driver, target):
    init, xs = driver.array([1.0, 2.0]), driver.array([[5.0, 6.0], [7.0, 8.0]])

    def step(c, s):
        if target == "x":
            s[0] = 9.0
        elif target == "carry":
            c[0] = 9.0
        else:
            c[1][0] = 9.0
        return c, None

    with pytest.raises(InPlaceUpdateError) as caught:
        scan(step, (init, init) if target == "leaf of a tree" else init, xs)
    assert str(caught.value) == IN_PLACE_TEXT
    np.testing.assert_array_equal(driver.host(init), [1.0, 2.0])
    np.testing.assert_array_equal(driver.host(xs), [[5.0, 6.0], [7.0, 8.0]])


def test_in_place_while_body(driver):
    init = driver.array([1.0, 2.0])

    def body(c):
        c[0] = 9.0
        return c

    with pytest.raises(InPlaceUpdateError) as caught:
        while_loop(lambda c: c[0] < 5, body, init)
    assert str(caught.value) == IN_PLACE_TEXT
    np.testing.assert_array_equal(driver.host(init), [1.0, 2.0])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_zero_steps(driver, dtype):
    init = driver.array([1.0, 2.0], dtype)
    xs = driver.array(np.zeros((0, 2)), dtype)
    with driver.refusing("zero steps", "empty", "int leaf"):
        carry, ys = scan(lambda c, x: (c + x, {"y": c[0], "n": None}), init, xs)
    np.testing.assert_array_equal(driver.host(carry), [1.0, 2.0])
    assert not driver.share_memory(carry, init)
    assert driver.host(ys["y"]).shape == (0,)
    assert ys["n"] is None
    assert driver.dtype(ys["y"]) == dtype


def test_zero_steps_by_length(driver):
    init = driver.array([[1.0, 2.0]])
    with driver.refusing("zero steps"):
        carry, ys = scan(lambda c, _: (c * 2, c[0, :]), init, length=0)
    np.testing.assert_array_equal(driver.host(carry), [[1.0, 2.0]])
    assert driver.host(ys).shape == (0, 2)


def test_closures_that_change(driver):
    k = 2.0

    def step(c, s):
        return c * k + s, None

    init, xs = driver.array(np.asarray(1.0)), driver.array([1.0, 1.0])
    assert float(scan(step, init, xs)[0]) == 7.0
    k = 3.0
    assert float(scan(step, init, xs)[0]) == 13.0


def test_arrays_in_closures_that_change(driver):
    k = driver.array([2.0])
    init, xs = driver.array([1.0]), driver.array([1.0, 1.0])

    def step(c, s):
        return c * k + s, None

    assert float(scan(step, init, xs)[0][0]) == 7.0
    k = driver.array([3.0])
    assert float(scan(step, init, xs)[0][0]) == 13.0


def test_while_closures_that_change(driver):
    k = 2.0
    init = driver.array(np.asarray(1.0))

    def body(s):
        return s * k

    assert float(while_loop(lambda s: s < 10.0, body, init)) == 16.0
    k = 3.0
    assert float(while_loop(lambda s: s < 10.0, body, init)) == 27.0


def test_long_scans_do_not_take_longer_to_compile(driver):
    """2 000 steps are run by every driver that does not unroll, and refused by one that does."""
    init = driver.array([0.0])
    with driver.refusing("long"):
        carry, _ = scan(lambda c, x: (c + x, None), init, driver.array(np.ones(2000)))
    assert float(carry[0]) == 2000.0


def test_overshoot(differentiable):
    """Steps past the stop put no NaN into a gradient."""
    driver, xp = differentiable, differentiable.xp

    def loss(a):
        def body(s):
            return s + a * xp.sqrt(1.0 - s)  # invalid past the stop

        result = while_loop(lambda s: s < 0.97, body, a, max_steps=12)
        assert type(result)._fields == ("state", "steps", "done")
        return result.state

    with driver.refusing("bounded while"):
        (found,) = driver.grads(loss, [np.asarray(0.6)])

    def plain(torch, a):
        s = a
        while s < 0.97:
            s = s + a * torch.sqrt(1.0 - s)
        return s

    assert np.isfinite(found)
    _assert_gradients([found], _plain_torch_grads(plain, [np.asarray(0.6)]))


def test_non_commutative_body_in_reverse(driver):
    xs = driver.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    carry, ys = scan(lambda c, s: (c * 2 + s, c), driver.array([1.0, 0.0]), xs, reverse=True)
    c, want = np.array([1.0, 0.0]), []
    for s in driver.host(xs)[::-1]:
        want.append(c)
        c = c * 2 + s
    np.testing.assert_array_equal(driver.host(carry), c)
    np.testing.assert_array_equal(driver.host(ys), np.stack(want[::-1]))


def test_nested_scan(driver):
    xs = driver.array([[1.0, 2.0], [3.0, 4.0]])

    def outer(c, row):
        inner, ys = scan(lambda d, x: (d * 0.5 + x, d), c, row)
        return inner, ys

    with driver.refusing("nested"):
        carry, ys = scan(outer, driver.array(np.asarray(1.0)), xs)
    assert float(carry) == ((1.0 * 0.5 + 1.0) * 0.5 + 2.0) * 0.25 + 3.0 * 0.5 + 4.0
    np.testing.assert_array_equal(driver.host(ys), [[1.0, 1.5], [2.75, 4.375]])


def test_bool_flag_in_the_carry(driver):
    xp = driver.xp

    def step(c, s):
        done, v = c
        new = xp.where(done, v, v + s)
        return (new > 3.0, new), new

    init = (driver.array(False, "bool"), driver.array(np.asarray(0.0)))
    with driver.refusing("bool leaf"):
        (done, _), ys = scan(step, init, driver.array([1.0, 2.0, 3.0, 4.0]))
    assert bool(done)
    np.testing.assert_array_equal(driver.host(ys), [1.0, 3.0, 6.0, 6.0])


def test_dict_xs_of_several_ranks(driver):
    xs = {"a": driver.array([1.0, 2.0]), "b": driver.array(np.ones((2, 2, 3)))}
    carry, ys = scan(
        lambda c, x: (c + x["a"] * x["b"], x["b"][0, :]), driver.array(np.zeros((2, 3))), xs
    )
    np.testing.assert_array_equal(driver.host(carry), np.full((2, 3), 3.0))
    assert driver.host(ys).shape == (2, 3)


def test_namedtuple_carry(driver):
    init = Point(driver.array([1.0]), driver.array([2.0]))
    with driver.refusing("namedtuple"):
        carry, ys = scan(lambda c, _: (Point(c.x + c.v, c.v), c), init, length=2)
    assert isinstance(carry, Point)
    assert isinstance(ys, Point)
    assert float(carry.x[0]) == 5.0


def test_non_contiguous_inputs(driver):
    base = driver.array(np.arange(12.0).reshape(3, 4))
    xs, init = base.T, driver.array(np.arange(6.0).reshape(2, 3))[:, ::2]
    if driver.is_torch:
        init = driver.array(np.arange(6.0).reshape(2, 3))[:, 0:3:2]
    carry, ys = scan(lambda c, x: (c + x[0], x), init, xs)
    np.testing.assert_array_equal(driver.host(carry), [[6.0, 8.0], [9.0, 11.0]])
    np.testing.assert_array_equal(driver.host(ys), np.arange(12.0).reshape(3, 4).T)
    assert not driver.share_memory(ys, base)


def test_expanded_inputs(driver):
    xp = driver.xp
    init = xp.broadcast_to(driver.array([1.0]), (3,))
    xs = xp.broadcast_to(driver.array([1.0, 2.0, 3.0]), (2, 3))
    carry, ys = scan(lambda c, x: (c * 2 + x, c), init, xs)
    np.testing.assert_array_equal(driver.host(carry), [7.0, 10.0, 13.0])
    np.testing.assert_array_equal(driver.host(ys), [[1.0, 1.0, 1.0], [3.0, 4.0, 5.0]])


def test_expanded_result(driver):
    """A body may return a broadcast view as carry and as y."""
    xp = driver.xp

    def step(c, s):
        n = xp.broadcast_to(xp.reshape(s, (1,)), (3,))
        return n, n

    carry, ys = scan(step, driver.array(np.zeros(3)), driver.array([1.0, 2.0]))
    np.testing.assert_array_equal(driver.host(carry), [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(driver.host(ys), [[1.0] * 3, [2.0] * 3])


def test_read_only_inputs(driver):
    host_init, host_xs = np.array([1.0, 2.0]), np.array([[1.0, 1.0], [2.0, 2.0]])
    host_init.flags.writeable = host_xs.flags.writeable = False
    if driver.name == "numpy":
        init, xs = host_init, host_xs
    else:
        init, xs = driver.array(host_init), driver.array(host_xs)
    carry, ys = scan(lambda c, x: (c + x, c), init, xs)
    np.testing.assert_array_equal(driver.host(carry), [4.0, 5.0])
    np.testing.assert_array_equal(driver.host(ys), [[1.0, 2.0], [2.0, 3.0]])
    if driver.name == "numpy":
        carry[0] = ys[0, 0] = 7.0  # results are the caller's


def test_zero_size_inputs(driver):
    init, xs = driver.array(np.zeros((0, 2))), driver.array(np.zeros((3, 0, 2)))
    with driver.refusing("empty"):
        carry, ys = scan(lambda c, x: (c + x, c), init, xs)
    assert driver.host(carry).shape == (0, 2)
    assert driver.host(ys).shape == (3, 0, 2)


class OddError(Exception):
    """An exception that only a body raises."""


def test_exception_of_the_body_is_itself(driver):
    error = OddError("mine")

    def step(c, s):
        raise error

    with pytest.raises(OddError) as caught:
        scan(step, driver.array([1.0]), driver.array([1.0]))
    assert caught.value is error


def test_exception_of_a_while_body_is_itself(driver):
    error = OddError("mine")

    def body(c):
        raise error

    with pytest.raises(OddError) as caught:
        while_loop(lambda c: c[0] < 5, body, driver.array([1.0]))
    assert caught.value is error


def test_views_in_the_carry(driver):
    def step(c, s):
        return (c[0] + s, c[0][0:2]), c[1]

    init = (driver.array([1.0, 2.0, 3.0]), driver.array([0.0, 0.0]))
    (c0, c1), ys = scan(step, init, driver.array([1.0, 2.0]))
    np.testing.assert_array_equal(driver.host(c0), [4.0, 5.0, 6.0])
    np.testing.assert_array_equal(driver.host(c1), [2.0, 3.0])
    np.testing.assert_array_equal(driver.host(ys), [[0.0, 0.0], [1.0, 2.0]])
    assert not driver.share_memory(c0, c1)


def test_fori_loop(driver):
    with driver.refusing("int leaf"):
        carry = fori_loop(
            2,
            5,
            lambda i, c: (
                c * 2 + driver.xp.astype(i, c.dtype)
                if hasattr(driver.xp, "astype")
                else c * 2 + i.to(c.dtype)
            ),
            driver.array([1.0]),
        )
    assert float(carry[0]) == ((1.0 * 2 + 2) * 2 + 3) * 2 + 4


def test_fori_index_is_a_zero_dimensional_integer_array(driver):
    seen = []

    def body(i, c):
        seen.append((tuple(i.shape), driver.dtype(i), type(i)))
        return c

    with driver.refusing("int leaf", "outer state"):
        fori_loop(0, 2, body, driver.array([1.0]))
    assert {(shape, dtype) for shape, dtype, _ in seen} == {((), "int64")}
    if driver.name == "numpy":
        assert {kind for *_, kind in seen} == {np.ndarray}


def test_fori_loop_without_steps(driver):
    init = driver.array([1.0])

    def body(i, c):
        return c + 1.0

    with driver.refusing("int leaf", "empty"):
        carry = fori_loop(3, 3, body, init)
    assert float(carry[0]) == 1.0
    assert not driver.share_memory(carry, init)


def test_while_loop_with_a_bound(driver):
    with driver.refusing("bounded while"):
        result = while_loop(
            lambda s: s < 50.0, lambda s: s * 2, driver.array(np.asarray(3.0)), max_steps=2
        )
    assert (float(result.state), int(result.steps), bool(result.done)) == (12.0, 2, False)
    assert tuple(result.steps.shape) == ()
    assert driver.dtype(result.done) == "bool"


def test_while_loop_that_stops_before_its_bound(driver):
    with driver.refusing("bounded while"):
        result = while_loop(
            lambda s: s < 50.0, lambda s: s * 2, driver.array(np.asarray(3.0)), max_steps=20
        )
    assert (float(result.state), int(result.steps), bool(result.done)) == (96.0, 5, True)


def test_while_loop_that_never_starts(driver):
    init = driver.array([7.0])
    state = while_loop(lambda s: s[0] < 5, lambda s: s / 0, init)
    np.testing.assert_array_equal(driver.host(state), [7.0])
    assert not driver.share_memory(state, init)


@pytest.mark.parametrize(("start", "want"), [(-2.0, 2.0), (3.0, 9.0)])
def test_cond(driver, start, want):
    x = driver.array(np.asarray(start))
    found = cond(x < 0, lambda v: -v, lambda v: v * v, x)
    assert float(found) == want


def test_cond_returning_its_operand_copies(driver):
    x = driver.array([1.0, 2.0])
    found = cond(x[0] > 0, lambda v: v, lambda v: -v, x)
    np.testing.assert_array_equal(driver.host(found), [1.0, 2.0])
    assert not driver.share_memory(found, x)


def test_refusals_are_not_silent(driver):
    """A refusal is an exception of this package, and a ValueError."""
    if driver.name != "bounded":
        pytest.skip("has no bound of steps")
    with pytest.raises(UnsupportedLoopError, match="at most 128") as caught:
        scan(lambda c, x: (c + x, None), driver.array([0.0]), driver.array(np.ones(129)))
    assert isinstance(caught.value, ValueError)
