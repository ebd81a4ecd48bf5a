"""Fixed steps: grids, breakpoints, trees, dtypes, dense output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from ode_problems import LOGISTIC, jumped, jumping

from fullgraph.errors import InPlaceUpdateError, UsageError
from fullgraph.ode import Status, solve


class State(NamedTuple):
    position: Any
    velocity: Any


def _decay(t: Any, y: Any, rate: Any) -> Any:
    return -rate * y


def test_steps_end_at_outputs_and_are_no_longer_than_step(lib: Any) -> None:
    seen: list[float] = []

    def rhs(t: Any, y: Any) -> Any:
        seen.append(float(t))
        return -y

    if lib.name == "jax":
        pytest.skip("JAX traces the right-hand side once")
    solution = solve(rhs, lib.array([1.0]), lib.array([0.0, 0.25, 1.0]), method="euler", step=0.1)
    steps = 3 + 8
    assert solution.stats == (steps, 0, steps)
    starts = [*np.linspace(0, 0.25, 4), *np.linspace(0.25, 1.0, 9)[1:]]
    np.testing.assert_allclose(sorted(set(np.round(seen, 12))), np.round(starts[:-1], 12))


def test_shorter_steps_are_the_same_solve_as_more_outputs(lib: Any) -> None:
    rhs, y0 = LOGISTIC.make(lib.xp), lib.array([0.1, 0.3])
    coarse = solve(rhs, y0, lib.array([0.0, 0.5, 1.0]), method="rk4", step=0.125)
    fine = solve(rhs, y0, lib.array(np.linspace(0, 1, 9)), method="rk4")
    np.testing.assert_array_equal(lib.host(coarse.ys), lib.host(fine.ys)[::4])


def test_two_outputs_keep_the_ends_only(lib: Any) -> None:
    rhs, y0 = LOGISTIC.make(lib.xp), lib.array([0.1, 0.3])
    ends = solve(rhs, y0, lib.array([0.0, 1.0]), method="tsit5", step=0.125)
    fine = solve(rhs, y0, lib.array(np.linspace(0, 1, 9)), method="tsit5")
    np.testing.assert_array_equal(lib.host(ends.ys), lib.host(fine.ys)[[0, -1]])
    np.testing.assert_array_equal(lib.host(ends.y), lib.host(fine.ys)[-1])


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_decreasing_times_undo_increasing_ones(lib: Any, method: str) -> None:
    rhs = LOGISTIC.make(lib.xp)
    ts = np.linspace(0.0, 1.0, 65)
    exact = LOGISTIC.solution(ts)
    back = solve(rhs, lib.array(exact[-1]), lib.array(ts[::-1].copy()), method=method)
    np.testing.assert_allclose(lib.host(back.ys), exact[::-1], rtol=5e-6)


def test_a_tree_of_leaves_is_solved_like_one_array(lib: Any) -> None:
    def tree(t: Any, s: State) -> State:
        return State({"x": s.velocity}, -s.position["x"])

    ts = lib.array(np.linspace(0, 1, 5))
    solution = solve(
        tree, State({"x": lib.array([1.0, 0.0])}, lib.array([0.0, 1.0])), ts, method="rk4"
    )
    flat = solve(
        lambda t, y: lib.xp.stack([y[1, ...], -y[0, ...]]),
        lib.array([[1.0, 0.0], [0.0, 1.0]]),
        ts,
        method="rk4",
    )
    assert isinstance(solution.ys, State)
    np.testing.assert_allclose(
        lib.host(solution.ys.position["x"]), lib.host(flat.ys)[:, 0], rtol=1e-15
    )
    np.testing.assert_allclose(lib.host(solution.ys.velocity), lib.host(flat.ys)[:, 1], rtol=1e-15)
    half = solution.interpolate(0.4)
    np.testing.assert_allclose(lib.host(half.position["x"]), [np.cos(0.4), np.sin(0.4)], atol=2e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_are_kept_whatever_the_times_have(lib: Any, dtype: str) -> None:
    seen = []

    def rhs(t: Any, y: Any) -> Any:
        seen.append(str(t.dtype).rpartition(".")[2].strip("'>"))
        return -y * t

    y0 = lib.array([1.0], dtype=dtype)
    solution = solve(rhs, y0, lib.array([0.0, 0.5, 1.0]), method="rk4")
    assert solution.ys.dtype == y0.dtype
    assert set(seen) == {dtype}


def test_python_numbers_and_lists(main_lib: Any) -> None:
    lib = main_lib
    solution = solve(_decay, lib.array(1.0), [0.0, 1.0], args=(2.0,), method="rk4", step=0.01)
    np.testing.assert_allclose(lib.host(solution.ys), [1.0, np.exp(-2)], rtol=1e-8)
    number = solve(_decay, 1.0, lib.array([0.0, 1.0]), args=(2.0,), method="rk4", step=0.01)
    np.testing.assert_array_equal(lib.host(number.ys), lib.host(solution.ys))


def test_complex_states(main_lib: Any) -> None:
    lib = main_lib
    y0 = lib.array([1.0 + 0.0j], dtype="complex128")
    solution = solve(lambda t, y: 1j * y, y0, lib.array([0.0, 1.0]), method="dopri5", step=0.02)
    np.testing.assert_allclose(lib.host(solution.ys)[-1], [np.exp(1j)], rtol=1e-11)
    adaptive = solve(lambda t, y: 1j * y, y0, lib.array([0.0, 1.0]), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(lib.host(adaptive.ys)[-1], [np.exp(1j)], rtol=1e-8)


@pytest.mark.parametrize("method", ["rk4", "tsit5", "dopri5"])
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_no_step_straddles_a_breakpoint(lib: Any, method: str, backwards: bool) -> None:
    times = np.array([0.0, 0.5, 1.7, 2.0])
    if backwards:
        times = times[::-1].copy()
    start = jumped(times[:1])[0]
    kwargs: dict[str, Any] = {"method": method, "step": 0.03}
    rhs, y0, ts = jumping(lib.xp), lib.array(start), lib.array(times)
    solution = solve(rhs, y0, ts, breakpoints=[1.0], **kwargs)
    np.testing.assert_allclose(lib.host(solution.ys), jumped(times), rtol=3e-6)
    if lib.name == "jax" and backwards:
        return  # each solve is compiled
    between = np.array([0.73, 0.999, 1.001, 1.3])
    dense = lib.host(solution.interpolate(lib.array(between)))
    np.testing.assert_allclose(dense, jumped(between), rtol=1e-5)
    careless = lib.host(solve(rhs, y0, ts, method=method, step=0.09).ys)
    assert np.max(np.abs(careless / jumped(times) - 1)) > 3e-4


def test_breakpoints_outside_or_on_outputs_are_harmless(main_lib: Any) -> None:
    lib = main_lib
    rhs, ts = jumping(lib.xp), lib.array([0.0, 1.0, 2.0])
    one = solve(rhs, lib.array([1.0]), ts, method="rk4", step=0.1, breakpoints=[1.0])
    more = solve(
        rhs, lib.array([1.0]), ts, method="rk4", step=0.1, breakpoints=[-3, 0.0, 1.0, 1.0, 2, 7]
    )
    np.testing.assert_array_equal(lib.host(one.ys), lib.host(more.ys))
    np.testing.assert_allclose(lib.host(one.ys), jumped(np.array([0.0, 1.0, 2.0])), rtol=1e-4)


def test_one_time_is_the_initial_state(main_lib: Any) -> None:
    lib = main_lib
    solution = solve(_decay, lib.array([1.0, 2.0]), lib.array([0.5]), args=(1.0,), method="rk4")
    np.testing.assert_array_equal(lib.host(solution.ys), [[1.0, 2.0]])
    assert solution.status is Status.SUCCESS
    assert solution.stats.accepted == 0


def test_dense_output_of_fixed_steps_is_cubic(lib: Any) -> None:
    rhs, ts = LOGISTIC.make(lib.xp), np.linspace(0, 1, 41)
    solution = solve(rhs, lib.array(LOGISTIC.solution(ts)[0]), lib.array(ts), method="tsit5")
    asked = np.array([[0.0, 0.013], [0.511, 1.0]])
    found = lib.host(solution.interpolate(lib.array(asked)))
    assert found.shape == (2, 2, 2)
    exact = LOGISTIC.solution(asked.ravel()).reshape(2, 2, 2)
    np.testing.assert_allclose(found, exact, atol=2e-6)
    with pytest.raises(UsageError, match=r"takes times between 0.0 and 1.0.*got 1.5"):
        solution.interpolate(1.5)


def test_writing_into_the_state_is_an_error(lib: Any) -> None:
    def rhs(t: Any, y: Any) -> Any:
        y[0] = 0.0
        return y

    with pytest.raises(InPlaceUpdateError):
        solve(rhs, lib.array([1.0]), lib.array([0.0, 1.0, 2.0]), method="euler")


def test_jit_of_fixed_steps() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        rhs = LOGISTIC.make(jnp)

        @jax.jit
        def run(y0: Any, ts: Any) -> Any:
            return solve(rhs, y0, ts, method="rk4").ys

        ts = np.linspace(0, 1, 33)
        exact = LOGISTIC.solution(ts)
        np.testing.assert_allclose(run(exact[0] * jnp.ones(2), jnp.asarray(ts)), exact, rtol=1e-5)


def test_fixed_steps_under_torch_compile() -> None:
    import torch

    rhs = LOGISTIC.make(torch)

    @torch.compile(fullgraph=True, backend="eager")
    def run(y0: Any, ts: Any) -> Any:
        return solve(rhs, y0, ts, method="rk4").ys

    ts = torch.linspace(0, 1, 5, dtype=torch.float64)
    y0 = torch.tensor([0.1, 0.2], dtype=torch.float64)
    torch.testing.assert_close(run(y0, ts), solve(rhs, y0, ts, method="rk4").ys, rtol=0, atol=0)
