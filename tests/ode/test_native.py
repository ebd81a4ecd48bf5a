"""Solves through the native loop adapter equal plain ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import optree
import pytest
import torch

from fullgraph.errors import DerivativeError
from fullgraph.ode import Status, odeint, solve

pytest.importorskip("fullgraph.torch_loop")


def lorenz(t: Any, y: Any, sigma: Any) -> Any:
    a, b, c = y[..., 0], y[..., 1], y[..., 2]
    return torch.stack([sigma * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c], dim=-1)


SIGMA = torch.tensor(10.0, dtype=torch.float64)
Y0 = torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
TS = torch.linspace(0, 2, 9, dtype=torch.float64)


@pytest.fixture(scope="module", autouse=True)
def _native_is_available() -> None:
    from fullgraph.errors import CompilerNotFoundError, MissingBackendError
    from fullgraph.torch_loop import torch_native_loop_adapter

    try:
        torch_native_loop_adapter()
    except (MissingBackendError, CompilerNotFoundError) as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_fixed_steps_are_bit_identical(method: str) -> None:
    kwargs: dict[str, Any] = {"args": (SIGMA,), "method": method, "step": 0.01}
    native = solve(lorenz, Y0, TS, loop="native", **kwargs)
    plain = solve(lorenz, Y0, TS, **kwargs)
    assert torch.equal(native.ys, plain.ys)
    assert native.stats == plain.stats


def test_breakpoints_and_decreasing_times() -> None:
    kwargs: dict[str, Any] = {"method": "rk4", "step": 0.01, "breakpoints": [0.33]}
    ts = TS.flip(0) / 4

    def rhs(t: Any, y: Any) -> Any:
        return torch.where(t < 0.33, y, -2 * y)

    native = solve(rhs, Y0, ts, loop="native", **kwargs)
    assert torch.equal(native.ys, solve(rhs, Y0, ts, **kwargs).ys)


class TestAdaptive:
    def _compare(self, y0: torch.Tensor, **kwargs: Any) -> Any:
        kwargs = {"args": (SIGMA,), "rtol": 1e-7, "atol": 1e-7, **kwargs}
        native = solve(lorenz, y0, TS, loop="native", **kwargs)
        plain = solve(lorenz, y0, TS, **kwargs)
        assert native.status is plain.status
        for a, b in zip(native.stats, plain.stats, strict=True):
            assert torch.equal(a, b)
        torch.testing.assert_close(native.ys, plain.ys, rtol=1e-8, atol=1e-8, equal_nan=True)
        return native

    def test_one(self) -> None:
        solution = self._compare(Y0)
        assert solution.status is Status.SUCCESS
        dense = solution.interpolate(TS[1:4])
        torch.testing.assert_close(dense, solution.ys[1:4], rtol=1e-12, atol=1e-12)

    def test_many(self) -> None:
        y0 = Y0 + torch.linspace(-0.9, 5, 7, dtype=torch.float64)[:, None]
        assert self._compare(y0, batch_dims=1).status is Status.SUCCESS

    def test_max_steps(self) -> None:
        assert self._compare(Y0, max_steps=40).status is Status.MAX_STEPS


def test_other_values_do_not_compile_again() -> None:
    from fullgraph.ode._loops import _NATIVE

    def rhs(t: Any, y: Any, k: Any) -> Any:
        return -k * y

    def run(k: float, end: float, rtol: float) -> torch.Tensor:
        ts = torch.linspace(0, end, 5, dtype=torch.float64)
        args = (torch.tensor(k, dtype=torch.float64),)
        solution = solve(rhs, Y0, ts, args=args, rtol=rtol, atol=rtol, loop="native")
        torch.testing.assert_close(solution.ys[:, 0], torch.exp(-k * ts), rtol=1e-4, atol=1e-4)
        return solution.ys

    run(1.0, 1.0, 1e-6)
    engine = _NATIVE["torch"].scan.engine  # type: ignore[attr-defined]
    before = len(engine.specialisations())
    run(2.0, 3.0, 1e-8)
    assert len(engine.specialisations()) == before


def test_each_right_hand_side_has_its_own_loop() -> None:
    def make(rate: int) -> Any:
        exec(f"def rhs(t, y): return -{rate} * y", namespace := {})
        return namespace["rhs"]

    ts = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    for rate in (1, 2, 3):
        ys = solve(make(rate), Y0, ts, method="rk4", step=0.02, loop="native").ys
        torch.testing.assert_close(
            ys[-1, 0], torch.exp(torch.tensor(-1.0 * rate).double()), rtol=1e-5, atol=0
        )


def test_closures_that_change() -> None:
    rate = 1.0

    def rhs(t: Any, y: Any) -> Any:
        return -rate * y

    def run() -> torch.Tensor:
        return solve(rhs, Y0, TS, method="rk4", step=0.02, loop="native").ys[-1, 0]

    first = run()
    rate = 2.0
    torch.testing.assert_close(run(), first**2, rtol=1e-6, atol=0)


def test_odeint_uses_the_registered_adapter() -> None:
    import fullgraph
    from fullgraph.torch_loop import torch_native_loop_adapter

    adapter = torch_native_loop_adapter()
    engine = adapter.scan.engine  # type: ignore[attr-defined]
    with fullgraph.use_loop_adapter("torch", adapter):
        native = odeint(lambda t, y: lorenz(t, y, SIGMA), Y0, TS)
    assert engine.specialisations()
    plain = odeint(lambda t, y: lorenz(t, y, SIGMA), Y0, TS)
    torch.testing.assert_close(native, plain, rtol=1e-7, atol=1e-7)


class Pair(NamedTuple):
    a: Any
    b: Any


TREES = {
    "dict": (lambda t, y: {"v": -y["x"], "x": y["v"]}, {"x": Y0, "v": Y0 * 2}),
    "tuple": (lambda t, y: (y[1], -y[0]), (Y0, Y0 * 2)),
    "list": (lambda t, y: [y[1], -y[0]], [Y0, Y0 * 2]),
    "nested": (
        lambda t, y: Pair({"k": y.b[0]}, (-y.a["k"], None)),
        Pair({"k": Y0}, (Y0 * 2, None)),
    ),
}


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("options", [{"rtol": 1e-8, "atol": 1e-8}, {"method": "rk4", "step": 0.1}])
def test_states_that_are_trees(tree, options):
    """Their structure is made before the loop is captured."""
    rhs, y0 = TREES[tree]
    found = solve(rhs, y0, TS, loop="native", **options)
    expected = solve(rhs, y0, TS, loop="eager", **options)
    assert optree.tree_structure(found.ys) == optree.tree_structure(expected.ys)
    for a, b in zip(optree.tree_leaves(found.ys), optree.tree_leaves(expected.ys), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_a_derivative_of_another_structure_is_named():
    with pytest.raises(DerivativeError, match=r'gives \{"v": \*\} for the state \{"x": \*\}'):
        solve(lambda t, y: {"v": -y["x"]}, {"x": Y0}, TS, loop="native", rtol=1e-6, atol=1e-8)
