"""Gradients through the steps taken, against finite differences and between libraries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from fullgraph.ode import solve

W = np.random.default_rng(3).random((4, 2))


def _rhs(xp: Any) -> Any:
    def rhs(t: Any, y: Any, a: Any, b: Any) -> Any:
        return xp.stack([a[0] * y[0] - b * y[0] * y[1], a[1] * y[0] * y[1] - y[1] * (1 + 0.1 * t)])

    return rhs


Y0 = np.array([1.0, 0.7])
TS = np.array([0.1, 0.4, 1.0, 1.3])
A = np.array([1.1, 0.6])
B = np.array(0.8)
FIXED: dict[str, Any] = {"method": "rk4", "step": 0.07}
ADAPTIVE: dict[str, Any] = {"method": "dopri5", "rtol": 1e-9, "atol": 1e-9, "max_steps": 200}
WAYS = {
    "fixed": FIXED,
    "reused": {"method": "tsit5", "step": 0.07},
    "checkpoint": {**FIXED, "checkpoint": True},
    "adaptive": ADAPTIVE,
    "breakpoints": {**ADAPTIVE, "breakpoints": [0.5, 0.9]},
    "fixed breakpoints": {**FIXED, "breakpoints": [0.5, 0.9]},
}


def _loss(xp: Any, array: Any, y0: Any, ts: Any, a: Any, b: Any, **kwargs: Any) -> Any:
    solution = solve(_rhs(xp), y0, ts, args=(a, b), **kwargs)
    return xp.sum(solution.ys * array(W)) + xp.sum(solution.interpolate(0.77))


@functools.cache
def _reference(way: str) -> list[np.ndarray]:
    """Central differences of the NumPy solve, of the whole problem and not of frozen steps."""
    kwargs = {key: value for key, value in WAYS[way].items() if key != "checkpoint"}
    values, eps = [Y0, TS, A, B], 1e-5
    grads = []
    for place, value in enumerate(values):
        grad = np.zeros(value.shape)
        for index in np.ndindex(value.shape):
            sides = []
            for sign in (1, -1):
                moved = [np.array(v) for v in values]
                moved[place][index] += sign * eps
                sides.append(_loss(np, np.asarray, *moved, **kwargs))
            grad[index] = (sides[0] - sides[1]) / (2 * eps)
        grads.append(grad)
    return grads


def _grads(lib: Any, **kwargs: Any) -> list[np.ndarray]:
    values = [Y0, TS, A, B]
    if lib.name == "torch":
        leaves = [lib.array(v).requires_grad_() for v in values]
        found = lib.xp.autograd.grad(_loss(lib.xp, lib.array, *leaves, **kwargs), leaves)
        return [lib.host(grad) for grad in found]
    import jax

    # ts stays known where steps are counted from it.
    traced = kwargs.get("step") is None and "breakpoints" not in kwargs
    places = (0, 1, 2, 3) if traced else (0, 2, 3)

    def loss(*some: Any) -> Any:
        every = list(some) if traced else [some[0], TS, *some[1:]]
        return _loss(lib.xp, lib.array, *every, **kwargs)

    arguments = [lib.array(values[place]) for place in places]
    found = jax.jit(jax.grad(loss, argnums=tuple(range(len(places)))))(*arguments)
    grads: list[Any] = [None] * 4
    for place, grad in zip(places, found, strict=True):
        grads[place] = np.asarray(grad)
    return grads


@pytest.mark.parametrize("way", WAYS)
def test_gradients(grad_lib: Any, way: str) -> None:
    if grad_lib.name == "jax" and way == "checkpoint":
        pytest.skip("has its own test")
    kwargs = WAYS[way]
    for ours, theirs in zip(_grads(grad_lib, **kwargs), _reference(way), strict=True):
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-7)


def test_checkpoint_changes_nothing_in_jax() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):

        def loss(y0: Any, checkpoint: bool) -> Any:
            solution = solve(_rhs(jnp), y0, TS, args=(A, B), checkpoint=checkpoint, **FIXED)
            return jnp.sum(solution.ys * W)

        grads = [jax.grad(lambda y, c=c: loss(y, c))(jnp.asarray(Y0)) for c in (False, True)]
        np.testing.assert_allclose(grads[0], grads[1], rtol=1e-14)


def test_checkpoint_recomputes_in_torch() -> None:
    import torch

    calls = []

    def rhs(t: Any, y: Any) -> Any:
        calls.append(1)
        return -y

    y0 = torch.ones(2, dtype=torch.float64, requires_grad=True)
    ts = torch.linspace(0, 1, 6, dtype=torch.float64)
    solution = solve(rhs, y0, ts, method="rk4", checkpoint=True)
    assert len(calls) == 20
    solution.ys.sum().backward()
    assert len(calls) == 40


def test_gradients_reach_what_rhs_closes_over() -> None:
    import torch

    layer = torch.nn.Linear(2, 2).double()
    ts = torch.linspace(0, 1, 3, dtype=torch.float64)
    y0 = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for kwargs in (FIXED, ADAPTIVE):
        solution = solve(lambda t, y: torch.tanh(layer(y)), y0, ts, **kwargs)
        loss = solution.ys.sum()
        grads = torch.autograd.grad(loss, tuple(layer.parameters()))
        eps = 1e-6
        with torch.no_grad():
            layer.bias[1] += eps
            plus = solve(lambda t, y: torch.tanh(layer(y)), y0, ts, **kwargs).ys.sum()
            layer.bias[1] -= 2 * eps
            minus = solve(lambda t, y: torch.tanh(layer(y)), y0, ts, **kwargs).ys.sum()
            layer.bias[1] += eps
        np.testing.assert_allclose(grads[1][1], (plus - minus) / (2 * eps), rtol=1e-6)


def test_batched_rows_have_the_gradients_of_solo_solves() -> None:
    import torch

    def rhs(t: Any, y: Any, k: Any) -> Any:
        return -k * y * y

    y0 = torch.tensor([[1.0], [2.0]], dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[0.5], [30.0]], dtype=torch.float64, requires_grad=True)
    ts = torch.linspace(0, 1, 4, dtype=torch.float64)
    batch = solve(rhs, y0, ts, args=(k,), rtol=1e-7, atol=1e-9, batch_dims=1)
    whole = torch.autograd.grad(batch.ys.sum(), (y0, k))
    for i in range(2):
        solo = solve(rhs, y0[i], ts, args=(k[i],), rtol=1e-7, atol=1e-9)
        own = torch.autograd.grad(solo.ys.sum(), (y0, k))
        for a, b in zip(whole, own, strict=True):
            torch.testing.assert_close(a[i], b[i], rtol=1e-13, atol=0)


def test_trial_steps_that_overflow_leave_gradients_finite() -> None:
    import torch

    y0 = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    ts = torch.tensor([0.0, 1.0], dtype=torch.float64)

    def rhs(t: Any, y: Any) -> Any:
        return torch.exp(y * 50) * 1e-30 - y * torch.sqrt(y)

    solution = solve(rhs, y0, ts, rtol=1e-6, atol=1e-6, first_step=1.0)
    (grad,) = torch.autograd.grad(solution.ys[-1].sum(), y0)
    assert torch.isfinite(grad).all()


def test_no_graph_is_made_without_need() -> None:
    import torch

    y0 = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    ts = torch.tensor([0.0, 1.0], dtype=torch.float64)
    with torch.no_grad():
        assert not solve(lambda t, y: -y, y0, ts, rtol=1e-6, atol=1e-6).ys.requires_grad
    assert solve(lambda t, y: -y, y0, ts, rtol=1e-6, atol=1e-6).ys.requires_grad
