"""odeint and odeint_adjoint mean what torchdiffeq's functions mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ode_problems import CONSTANT, LINEAR, SINE, jumped, jumping

from fullgraph.errors import SolveFailedError, UsageError
from fullgraph.ode import odeint, odeint_adjoint, solve

PROBLEMS = [CONSTANT, LINEAR, SINE]
ADAPTIVE = ["dopri5", "bosh3", "adaptive_heun", "tsit5"]
FIXED = {"euler": 2e-2, "midpoint": 1e-3, "heun2": 1e-3, "heun3": 1e-5, "rk4": 1e-6}
LOOSE = {"adaptive_heun": 1e-6, "bosh3": 1e-7}


def _torch(values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.tensor(np.array(values), dtype=dtype)


def _problem(problem: Any, backwards: bool = False) -> tuple[Any, torch.Tensor, torch.Tensor, Any]:
    ts = np.linspace(*problem.span, 10)
    if backwards:
        ts = ts[::-1].copy()
    exact = problem.solution(ts)
    return problem.make(torch), _torch(exact[0]), _torch(ts), exact


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize("method", ADAPTIVE)
def test_adaptive_methods(problem: Any, method: str, backwards: bool) -> None:
    f, y0, t, exact = _problem(problem, backwards)
    tol = LOOSE.get(method, 1e-9)
    ys = odeint(f, y0, t, method=method, rtol=tol, atol=tol)
    assert ys.shape == (10, len(y0))
    np.testing.assert_allclose(ys.numpy(), exact, rtol=2e-3, atol=1e-3 * np.abs(exact).max())


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize("method", FIXED)
def test_fixed_methods(problem: Any, method: str, backwards: bool) -> None:
    f, y0, t, exact = _problem(problem, backwards)
    ys = odeint(f, y0, t, method=method, options={"step_size": 0.05, "interp": "cubic"})
    error = np.abs(ys.numpy() - exact).max() / np.abs(exact).max()
    assert error < 8 * FIXED[method]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("method", ["dopri5", "bosh3", "rk4"])
def test_dtypes_and_defaults(dtype: torch.dtype, method: str) -> None:
    t = torch.linspace(0, 1, 5)
    kwargs: dict[str, Any] = {} if method == "rk4" else {"rtol": 1e-5, "atol": 1e-5}
    ys = odeint(lambda t, y: -y, torch.ones(2, dtype=dtype), t, method=method, **kwargs)
    assert ys.dtype == dtype
    torch.testing.assert_close(ys.real.double()[:, 0], torch.exp(-t.double()), rtol=2e-4, atol=0)


def test_rk4_is_the_three_eighths_rule() -> None:
    f, y0, t, _ = _problem(SINE)
    ys = odeint(f, y0, t, method="rk4")
    torch.testing.assert_close(ys, solve(f, y0, t, method="rk4_38").ys, rtol=0, atol=0)


def test_dopri5_is_the_default() -> None:
    f, y0, t, _ = _problem(LINEAR)
    torch.testing.assert_close(odeint(f, y0, t), odeint(f, y0, t, method="dopri5"), rtol=0, atol=0)


def test_tuples_and_their_tolerances() -> None:
    def f(t: Any, y: Any) -> Any:
        return y[1], -y[0]

    y0 = (_torch([1.0, 2.0]), _torch([0.0, 0.0]))
    t = _torch([0.0, 1.0, 2.0])
    for tolerances in ({}, {"rtol": (1e-8, 1e-9), "atol": (1e-9, 1e-9)}):
        a, b = odeint(f, y0, t, **tolerances)
        np.testing.assert_allclose(a[:, 0], np.cos(t.numpy()), atol=1e-7)
        np.testing.assert_allclose(b[:, 1], -2 * np.sin(t.numpy()), atol=1e-7)


class TestStepSize:
    def test_outputs_between_steps_are_linear_or_cubic(self) -> None:
        t = _torch([0.0, 0.25, 1.0])
        y0 = _torch([1.0])
        grid = [np.exp(0.0)]
        for _ in range(2):
            h = 0.5
            grid.append(grid[-1] * (1 + h + h**2 / 2 + h**3 / 6 + h**4 / 24))
        linear = odeint(lambda t, y: y, y0, t, method="rk4", options={"step_size": 0.5})
        np.testing.assert_allclose(linear[:, 0], [1, (1 + grid[1]) / 2, grid[2]], rtol=1e-14)
        options = {"step_size": 0.5, "interp": "cubic"}
        cubic = odeint(lambda t, y: y, y0, t, method="rk4", options=options)
        middle = (1 + grid[1]) / 2 + 0.5 * (1 - grid[1]) / 8
        np.testing.assert_allclose(cubic[:, 0], [1, middle, grid[2]], rtol=1e-14)

    def test_last_step_is_cut_short(self) -> None:
        seen = []

        def f(t: Any, y: Any) -> Any:
            seen.append(float(t))
            return y

        odeint(f, _torch([1.0]), _torch([1.0, 0.0]), method="euler", options={"step_size": 0.4})
        np.testing.assert_allclose(sorted(set(seen), reverse=True)[:3], [1.0, 0.6, 0.2])

    def test_grid_constructor(self) -> None:
        options = {"grid_constructor": lambda f, y0, t: torch.linspace(0, 2, 201).double()}
        t = _torch([0.0, 0.71, 2.0])
        ys = odeint(lambda t, y: -y, _torch([1.0]), t, method="midpoint", options=options)
        np.testing.assert_allclose(ys[:, 0], np.exp(-t.numpy()), rtol=1e-4)
        options = {"grid_constructor": lambda f, y0, t: torch.linspace(0, 1, 11).double()}
        with pytest.raises(UsageError, match=r"must begin and end with t \(0.0 and 2.0\)"):
            odeint(lambda t, y: -y, _torch([1.0]), t, method="midpoint", options=options)


class TestAdaptiveOptions:
    def test_jump_t(self) -> None:
        t = _torch([0.0, 0.5, 2.0])
        ys = odeint(jumping(torch), _torch([1.0]), t, options={"jump_t": _torch([1.0])})
        np.testing.assert_allclose(ys, jumped(t.numpy()), rtol=1e-6)

    def test_max_num_steps(self) -> None:
        f, y0, t, _ = _problem(LINEAR)
        with pytest.raises(SolveFailedError, match=r"got to t = .* max_steps was reached"):
            odeint(f, y0, t, options={"max_num_steps": 3})

    def test_steps_that_vanish(self) -> None:
        with pytest.raises(SolveFailedError, match="step became too small"):
            odeint(lambda t, y: y * y, _torch([1.0]), _torch([0.0, 2.0]))

    def test_first_and_longest_step_and_factors(self) -> None:
        calls: list[float] = []

        def f(t: Any, y: Any) -> Any:
            calls.append(float(t))
            return 0 * y

        def count(**options: float) -> int:
            calls.clear()
            odeint(f, _torch([1.0]), _torch([0.0, 1.0]), options=options)
            return len(calls)

        assert count(first_step=1.0) < count(first_step=1e-3) < count(first_step=1e-3, ifactor=2.0)
        assert count(first_step=0.1, max_step=0.1) >= 60
        assert count(first_step=0.5, safety=0.5) == count(first_step=0.5)


def test_numpy_and_jax_arrays() -> None:
    import jax
    import jax.numpy as jnp

    ys = odeint(lambda t, y: -y, np.array([1.0]), np.array([0.0, 1.0]))
    np.testing.assert_allclose(ys[-1], np.exp(-1.0), rtol=1e-6)
    with jax.enable_x64(True):
        run = jax.jit(lambda y0: odeint(lambda t, y: -y, y0, jnp.asarray([0.0, 1.0])))
        np.testing.assert_allclose(run(jnp.asarray([1.0])), ys, rtol=1e-12)


class TestGradients:
    @pytest.mark.parametrize("method", ["dopri5", "bosh3", "rk4", "euler"])
    def test_gradcheck(self, method: str) -> None:
        f = LINEAR.make(torch)
        y0 = _torch([1.0, -2.0, 0.5]).requires_grad_()
        t = _torch([0.0, 0.4, 1.0]).requires_grad_()

        def run(y0: Any, t: Any) -> Any:
            return odeint(f, y0, t, method=method, rtol=1e-7, atol=1e-8)

        assert torch.autograd.gradcheck(run, (y0, t), rtol=1e-3, atol=1e-5, eps=1e-4)


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3).double()
        self.unused = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, t: Any, y: Any) -> Any:
        return torch.tanh(self.layer(y)) * torch.sin(t)


class TestAdjoint:
    T = _torch([0.0, 0.7, 1.5])

    def _grads(self, solver: Any, net: Any, **kwargs: Any) -> Any:
        y0 = torch.linspace(-1, 1, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
        t = self.T.clone().requires_grad_()
        ys = solver(net, y0, t, **kwargs)
        loss = (ys * torch.linspace(0, 1, ys.numel(), dtype=ys.dtype).reshape(ys.shape)).sum()
        inputs = (y0, t, *net.layer.parameters())
        return ys, torch.autograd.grad(loss, inputs)

    @pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
    def test_agrees_with_the_gradients_of_steps(self, backwards: bool) -> None:
        torch.manual_seed(1)
        net = _Net()
        self.T = self.T.flip(0) if backwards else self.T
        ys, steps = self._grads(odeint, net)
        again, adjoint = self._grads(odeint_adjoint, net)
        torch.testing.assert_close(ys, again, rtol=1e-13, atol=1e-13)
        for a, b in zip(steps, adjoint, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

    def test_other_ways_backwards(self) -> None:
        torch.manual_seed(1)
        net = _Net()
        _, steps = self._grads(odeint, net)
        for kwargs in (
            {"adjoint_options": {"norm": "seminorm"}},
            {"adjoint_rtol": 1e-9, "adjoint_atol": 1e-9, "adjoint_method": "tsit5"},
            {"adjoint_method": "rk4", "adjoint_options": {"step_size": 0.02}},
        ):
            _, adjoint = self._grads(odeint_adjoint, net, **kwargs)
            for a, b in zip(steps, adjoint, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)

    def test_tuples_and_explicit_parameters(self) -> None:
        rate = _torch(0.7).requires_grad_()

        def f(t: Any, y: Any) -> Any:
            return -rate * y[0], y[0]

        y0 = (_torch([1.0]).requires_grad_(), _torch([0.0]))
        _, b = odeint_adjoint(f, y0, _torch([0.0, 2.0]), adjoint_params=(rate,))
        grad_y, grad_rate = torch.autograd.grad(b[-1].sum(), (y0[0], rate))
        k = 0.7
        np.testing.assert_allclose(grad_y, [(1 - np.exp(-2 * k)) / k], rtol=1e-6)
        exact = (2 * k * np.exp(-2 * k) - (1 - np.exp(-2 * k))) / k**2
        np.testing.assert_allclose(grad_rate, exact, rtol=1e-6)

    def test_second_derivatives_are_refused(self) -> None:
        y0 = _torch([1.0]).requires_grad_()
        ys = odeint_adjoint(lambda t, y: y * y, y0, _torch([0.0, 0.5]), adjoint_params=())
        (grad,) = torch.autograd.grad(ys[-1].sum(), y0, create_graph=True)
        with pytest.raises(RuntimeError, match=r"once_differentiable|does not require grad"):
            torch.autograd.grad(grad.sum(), y0)


F = lambda t, y: -y
ONE, T01 = torch.ones(1), torch.tensor([0.0, 1.0])
REFUSED = {
    "implicit_adams": (
        {"method": "implicit_adams"},
        r"'implicit_adams' is not offered: choose one of dopri5",
    ),
    "scipy_solver": ({"method": "scipy_solver"}, r"'scipy_solver' is not offered"),
    "dopri8": ({"method": "dopri8"}, r"'dopri8' is not offered"),
    "unknown": ({"method": "rk5"}, r"'rk5' is unknown: choose one of"),
    "events": ({"event_fn": lambda t, y: y}, r"event_fn is not offered yet"),
    "norm": (
        {"options": {"norm": max}},
        r"option 'norm' is not offered for dopri5 \(adaptive\): errors are measured",
    ),
    "dtype": ({"options": {"dtype": 1}}, r"option 'dtype' is not offered.*float64"),
    "min_step": ({"options": {"min_step": 1e-3}}, r"option 'min_step' is not offered.*stops where"),
    "step_size": ({"options": {"step_size": 0.1}}, r"option 'step_size' is not offered for dopri5"),
    "perturb": (
        {"method": "rk4", "options": {"perturb": True}},
        r"option 'perturb' is not offered for rk4 \(fixed steps\): use jump_t",
    ),
    "first_step": (
        {"method": "rk4", "options": {"first_step": 1}},
        r"'first_step' is not offered for rk4",
    ),
    "interp": (
        {"method": "rk4", "options": {"interp": "quartic"}},
        r"\"interp\" must be \"linear\" or \"cubic\"",
    ),
    "both": (
        {"method": "rk4", "options": {"step_size": 1, "grid_constructor": max}},
        r"exclude each other",
    ),
    "negative": (
        {"method": "rk4", "options": {"step_size": -1}},
        r"step_size must be a positive number",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_offered_is_refused(case: str) -> None:
    kwargs, message = REFUSED[case]
    with pytest.raises(UsageError, match=message):
        odeint(F, ONE, T01, **kwargs)


def test_callbacks_are_refused() -> None:
    class WithCallback:
        def __call__(self, t: Any, y: Any) -> Any:
            return -y

        def callback_step(self, t: Any, y: Any, h: Any) -> None:
            """Be called by torchdiffeq."""

    with pytest.raises(UsageError, match="func has callback_step, and callbacks are not offered"):
        odeint(WithCallback(), ONE, T01)


class TestAdjointRefusals:
    def test_without_parameters(self) -> None:
        with pytest.raises(UsageError, match=r"adjoint_params must say"):
            odeint_adjoint(F, ONE, T01)

    def test_other_libraries(self) -> None:
        with pytest.raises(UsageError, match="odeint_adjoint is for torch tensors"):
            odeint_adjoint(F, np.ones(1), np.array([0.0, 1.0]), adjoint_params=())

    def test_other_norms(self) -> None:
        with pytest.raises(UsageError, match="other norms are not offered"):
            odeint_adjoint(F, ONE, T01, adjoint_params=(), adjoint_options={"norm": max})

    def test_options_of_another_method(self) -> None:
        with pytest.raises(UsageError, match="give adjoint_options too"):
            odeint_adjoint(
                F, ONE, T01, adjoint_params=(), options={"safety": 0.8}, adjoint_method="rk4"
            )

    def test_tolerances_in_parts(self) -> None:
        with pytest.raises(UsageError, match="give adjoint_rtol as one number"):
            odeint_adjoint(F, (ONE, ONE), T01, adjoint_params=(), rtol=(1e-3, 1e-3))

    def test_complex(self) -> None:
        with pytest.raises(UsageError, match="does not take complex states"):
            odeint_adjoint(F, ONE + 0j, T01, adjoint_params=())
