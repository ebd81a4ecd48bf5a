"""What is refused, and in which words."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
import torch

import fullgraph
from fullgraph.errors import DerivativeError, LoopTypeError, UsageError
from fullgraph.ode import Solution, Status, solve

F = lambda t, y: -y
Y0, TS = np.array([1.0, 2.0]), np.array([0.0, 0.5, 1.0])
ADAPTIVE = {"rtol": 1e-6, "atol": 1e-6}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "method": ({"method": "rk5"}, r"method must be one of euler, heun, .*tsit5, and is 'rk5'"),
    "rhs": ({"rhs": 3.0}, r"rhs must be a function rhs\(t, y, \*args\), and is 3.0"),
    "args": ({"args": 2.0}, r"args must be a tuple.*is a float. Write args=\(value,\)"),
    "no leaves": ({"y0": ()}, r"y0 has no leaves"),
    "ints": ({"y0": np.array([1, 2])}, r"y0 is int64, and a state must be floating"),
    "int in tree": ({"y0": {"a": Y0, "b": np.array([1])}}, r'y0\["b"\] is int64'),
    "complex number": ({"y0": (Y0, 1j)}, r"y0\[1\] is the Python number 1j: give it as an array"),
    "no array": ({"y0": 1.0, "ts": [0.0, 1.0]}, r"neither y0 nor ts is an array"),
    "ts kind": ({"ts": "now"}, r"ts must be a 1-d array of times or a list of numbers"),
    "ts shape": ({"ts": np.zeros((2, 2))}, r"ts must be 1-d.*shape \(2, 2\)"),
    "ts empty": ({"ts": np.zeros(0)}, r"with at least one time.*shape \(0,\)"),
    "ts complex": ({"ts": np.zeros(2, complex)}, r"ts must be floating, and is complex128"),
    "ts order": ({"ts": [0.0, 1.0, 0.5]}, r"strictly increasing or strictly decreasing.*0.5"),
    "ts twice": ({"ts": [0.0, 0.0, 0.5]}, r"strictly increasing or strictly decreasing"),
    "ts infinite": ({"ts": [0.0, np.inf]}, r"ts must be finite"),
    "ts nan": ({"ts": [0.0, np.nan, 1.0]}, r"ts must be finite"),
    "step": ({"step": 0.0}, r"step must be a positive number, and is 0.0. The direction of time"),
    "step kind": ({"step": "small"}, r"step must be a positive number, and is 'small'"),
    "step adaptive": ({"step": 0.1, **ADAPTIVE}, r"step= is for fixed steps: use first_step"),
    "first fixed": ({"first_step": 0.1}, r"first_step= chooses adaptive steps, and needs rtol"),
    "first": ({"first_step": -1.0, **ADAPTIVE}, r"first_step must be a positive number"),
    "rtol alone": ({"rtol": 1e-3}, r"rtol and atol go together"),
    "atol alone": ({"atol": 1e-3}, r"rtol and atol go together"),
    "negative": ({"rtol": -1.0, "atol": 1e-3}, r"rtol must be a number that is at least 0"),
    "tolerance tree": (
        {"rtol": (1.0, 2.0), "atol": 1e-3},
        r"rtol must be one number.*2 leaves for 1",
    ),
    "tolerance shape": (
        {"rtol": 1e-3, "atol": np.ones(3)},
        r"atol must be a number, or an array that broadcasts",
    ),
    "no estimate": (
        {"method": "rk4", **ADAPTIVE},
        r"rk4 has no error estimate.*one of heun, fehlberg2, bosh3, dopri5, tsit5",
    ),
    "max_steps": (
        {"max_steps": 0, **ADAPTIVE},
        r"max_steps must be an int that is at least 1, and is 0",
    ),
    "one time": ({"ts": [0.0], **ADAPTIVE}, r"needs at least two times in ts"),
    "checkpoint": ({"checkpoint": True, **ADAPTIVE}, r"checkpoint=True is for fixed steps"),
    "breakpoints": ({"breakpoints": 1.0}, r"breakpoints must be a sequence of numbers"),
    "batch_dims": (
        {"batch_dims": "all", **ADAPTIVE},
        r"batch_dims must be a number of leading axes",
    ),
    "batch rank": ({"batch_dims": 2, **ADAPTIVE}, r"batch_dims is 2, and y0 has shape \(2,\)"),
    "batch order": (
        {"y0": np.ones((2, 2)), "batch_dims": (1, 0), **ADAPTIVE},
        r"must be ascending and distinct",
    ),
    "batch sizes": (
        {"y0": (np.ones((2, 1)), np.ones((3, 1))), "batch_dims": 1, **ADAPTIVE},
        r"batch axes of y0\[1\] have sizes \(3,\), and those of y0\[0\] have \(2,\)",
    ),
    "loop": (
        {"loop": "fast"},
        r'loop must be "eager", "auto", "scan" or "native", and is \'fast\'',
    ),
    "loop scan": (
        {"loop": "scan"},
        r'loop="scan" needs a loop adapter for numpy.*register_loop_adapter\(\'numpy\'',
    ),
    "loop native strict": (
        {"y0": array_api_strict.ones(2), "ts": [0.0, 1.0], "loop": "native"},
        r'loop="native" is for torch and NumPy arrays, and these are array_api_strict',
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_usage(case: str) -> None:
    kwargs, message = CASES[case]
    call = {"rhs": F, "y0": Y0, "ts": TS, **kwargs}
    with pytest.raises(UsageError, match=message):
        solve(call.pop("rhs"), call.pop("y0"), call.pop("ts"), **call)


DERIVATIVES: dict[str, tuple[Any, Any, str]] = {
    "number": (lambda t, y: 1.0, Y0, r"derivative of y is float, which is no array"),
    "shape": (
        lambda t, y: y[None],
        Y0,
        r"derivative of y has shape \(1, 2\), and y has shape \(2,\)",
    ),
    "broadcast": (lambda t, y: y[:1], Y0, r"has shape \(1,\), and y has shape \(2,\)"),
    "dtype": (
        lambda t, y: y.astype("float32"),
        Y0,
        r"derivative of y is float32, and y is float64",
    ),
    "structure": (
        lambda t, y: [y["a"], y["b"]],
        {"a": Y0, "b": Y0},
        r'gives \[\*, \*\] for the state \{"a": \*, "b": \*\}',
    ),
    "leaf": (
        lambda t, y: {"a": y["a"], "b": y["b"][:1]},
        {"a": Y0, "b": Y0},
        r'derivative of y\["b"\] has shape \(1,\)',
    ),
}


@pytest.mark.parametrize("kwargs", [{"method": "rk4"}, ADAPTIVE], ids=["fixed", "adaptive"])
@pytest.mark.parametrize("case", DERIVATIVES)
def test_derivatives(case: str, kwargs: dict[str, Any]) -> None:
    rhs, y0, message = DERIVATIVES[case]
    with pytest.raises(DerivativeError, match=message):
        solve(rhs, y0, TS, **kwargs)


def test_two_libraries() -> None:
    with pytest.raises(LoopTypeError, match=r"y0 is torch, ts is numpy"):
        solve(F, torch.ones(2), TS)


def test_an_exception_of_rhs_comes_out_as_itself() -> None:
    def rhs(t: Any, y: Any) -> Any:
        raise ZeroDivisionError("mine")

    for kwargs in ({"method": "rk4"}, ADAPTIVE):
        with pytest.raises(ZeroDivisionError, match="mine"):
            solve(rhs, Y0, TS, **kwargs)


class TestTraced:
    def test_step_needs_known_times(self) -> None:
        import jax

        with pytest.raises(UsageError, match=r"step= needs the values of ts, which are not known"):
            jax.jit(lambda ts: solve(F, ts[:1], ts, method="rk4", step=0.1).ys)(TS)
        with pytest.raises(UsageError, match=r"breakpoints= needs the values of ts"):
            jax.jit(lambda ts: solve(F, ts[:1], ts, breakpoints=[0.2]).ys)(TS)

    def test_status_of_a_traced_solve(self) -> None:
        import jax

        with pytest.raises(UsageError, match=r"status of a traced solve is not known yet"):
            jax.jit(lambda y: solve(F, y, TS, max_steps=50, **ADAPTIVE).status)(jax.numpy.ones(2))

    def test_adaptive_steps_under_torch_compile(self) -> None:
        y0, ts = torch.ones(2), torch.tensor([0.0, 1.0])

        @torch.compile(backend="eager", fullgraph=True)
        def run() -> Any:
            return solve(F, y0, ts, rtol=1e-3, atol=1e-3).ys

        with pytest.raises(
            Exception, match=r"adaptive solve inside of torch.compile is not supported"
        ):
            run()


class TestLoops:
    def test_checkpoint_needs_an_adapter_that_has_one(self) -> None:
        from fullgraph.loops import _eager
        from fullgraph.loops._eager_numpy import NumpyOps

        def scan(
            body: Any, init: Any, xs: Any, *, length: Any = None, reverse: bool = False
        ) -> Any:
            return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=NumpyOps())

        adapter = fullgraph.LoopAdapter(scan=scan)
        with fullgraph.use_loop_adapter("numpy", adapter):
            registered = solve(F, Y0, TS, loop="scan", method="rk4")
            np.testing.assert_array_equal(registered.ys, solve(F, Y0, TS, method="rk4").ys)
            with pytest.raises(UsageError, match="loop adapter with a checkpoint"):
                solve(F, Y0, TS, loop="auto", checkpoint=True)

    def test_eager_ignores_what_is_registered_and_auto_uses_it(self) -> None:
        used = []

        def scan(
            body: Any, init: Any, xs: Any, *, length: Any = None, reverse: bool = False
        ) -> Any:
            used.append(1)
            with fullgraph.use_loop_adapter("numpy", None):
                return fullgraph.scan(body, init, xs, length=length, reverse=reverse)

        with fullgraph.use_loop_adapter("numpy", fullgraph.LoopAdapter(scan=scan)):
            solve(F, Y0, TS, method="rk4")
            solve(F, Y0, TS, **ADAPTIVE)
            assert not used
            solve(F, Y0, TS, method="rk4", loop="auto")
            assert len(used) == 1
            solution = solve(F, Y0, TS, loop="auto", **ADAPTIVE)
            assert len(used) > 1
            np.testing.assert_array_equal(solution.ys, solve(F, Y0, TS, **ADAPTIVE).ys)
        solve(F, Y0, TS, loop="auto", method="rk4")


def test_adapters_that_compile_each_length_get_one_length() -> None:
    lengths = set()

    def scan(body: Any, init: Any, xs: Any) -> Any:
        lengths.add(len(xs))
        with fullgraph.use_loop_adapter("numpy", None):
            return fullgraph.scan(body, init, xs)

    with fullgraph.use_loop_adapter("numpy", fullgraph.LoopAdapter(scan=scan)):
        solution = solve(F, Y0, np.linspace(0, 9, 4), loop="scan", rtol=1e-9, atol=1e-9)
    assert solution.status is Status.SUCCESS
    assert int(solution.stats.accepted) > 50
    assert lengths == {1, 16}


def test_public_names() -> None:
    import fullgraph.ode as ode

    assert ode.__all__ == ["Solution", "Stats", "Status", "odeint", "odeint_adjoint", "solve"]
    assert isinstance(solve(F, Y0, TS), Solution)
    assert Status("the end of ts was reached") is Status.SUCCESS


def test_importing_imports_no_array_library() -> None:
    import subprocess
    import sys

    code = (
        "import sys, fullgraph.ode; "
        "print([m for m in ('numpy', 'torch', 'jax', 'dask') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
