"""Adaptive steps: tolerances, references, batches, statuses, dense output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ode_problems import LINEAR, LOGISTIC, OSCILLATOR, RATIONAL, SINE, jumped, jumping

from fullgraph.ode import Status, solve
from fullgraph.ode.methods import adaptive_methods

TOLERANCE = {"heun": 1e-4, "fehlberg2": 1e-4, "bosh3": 1e-6, "dopri5": 1e-8, "tsit5": 1e-8}


def _solve(lib: Any, problem: Any, ts: np.ndarray, rtol: float, **kwargs: Any) -> Any:
    y0 = lib.array(problem.solution(ts[:1])[0])
    return solve(problem.make(lib.xp), y0, lib.array(ts), rtol=rtol, atol=rtol, **kwargs)


@pytest.mark.parametrize("method", adaptive_methods())
def test_accuracy(lib: Any, method: str) -> None:
    rtol = TOLERANCE[method]
    ts = np.linspace(*RATIONAL.span, 7)
    solution = _solve(lib, RATIONAL, ts, rtol, method=method)
    assert solution.status is Status.SUCCESS
    # Fehlberg's pair of order 2(1) weighs its error with 1/512.
    rtol *= 30 if method == "fehlberg2" else 1
    np.testing.assert_allclose(lib.host(solution.ys), RATIONAL.solution(ts), rtol=10 * rtol)
    between = np.linspace(*RATIONAL.span, 23)
    dense = lib.host(solution.interpolate(lib.array(between)))
    np.testing.assert_allclose(dense, RATIONAL.solution(between), rtol=30 * rtol)


@pytest.mark.parametrize("problem", [LINEAR, LOGISTIC, OSCILLATOR, SINE], ids=lambda p: p.name)
@pytest.mark.parametrize("method", ["dopri5", "tsit5"])
@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_problems_both_ways(lib: Any, problem: Any, method: str, backwards: bool) -> None:
    if lib.name in ("jax", "strict") and (problem is not SINE or method != "tsit5"):
        pytest.skip("one problem shows that the library does what NumPy does; these are slow")
    ts = np.linspace(*problem.span, 5)
    if backwards:
        ts = ts[::-1].copy()
    solution = _solve(lib, problem, ts, 1e-9, method=method)
    exact = problem.solution(ts)
    scale = np.max(np.abs(exact))
    np.testing.assert_allclose(lib.host(solution.ys), exact, atol=1e-6 * scale)


@pytest.mark.parametrize("rtol", [1e-4, 1e-7, 1e-10])
def test_error_follows_the_tolerance(rtol: float) -> None:
    from scipy.integrate import solve_ivp

    def rhs(t: Any, y: Any) -> Any:
        return np.stack([y[1], 5 * (1 - y[0] ** 2) * y[1] - y[0]])

    span, y0 = (0.0, 10.0), np.array([2.0, 0.0])
    exact = solve_ivp(rhs, span, y0, method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    ours = solve(rhs, y0, np.array(span), rtol=rtol, atol=rtol, method="dopri5")
    scipys = solve_ivp(rhs, span, y0, method="RK45", rtol=rtol, atol=rtol)
    error = np.max(np.abs(ours.ys[-1] - exact))
    assert error <= 2 * np.max(np.abs(scipys.y[:, -1] - exact))
    assert ours.stats.rhs_calls < 1.5 * scipys.nfev


def test_against_mpmath() -> None:
    import mpmath

    with mpmath.workdps(18):
        reference = mpmath.odefun(lambda t, y: [y[0] * mpmath.cos(t * y[0])], 0, [mpmath.mpf(1)])
        exact = [float(reference(t)[0]) for t in (0.5, 1, 2)]
    solution = solve(
        lambda t, y: y * np.cos(t * y), np.array([1.0]), [0, 0.5, 1, 2], rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(solution.ys[1:, 0], exact, rtol=1e-10)


def _van_der_pol(xp: Any) -> Any:
    def rhs(t: Any, y: Any, mu: Any) -> Any:
        a, b = y[..., 0], y[..., 1]
        return xp.stack([b, mu * (1 - a * a) * b - a], axis=-1)

    return rhs


class TestBatch:
    MU = np.array([0.1, 1.0, 40.0])
    Y0 = np.array([[1.0, 0.5], [2.0, 0.0], [1.5, -0.3]])
    TS = np.linspace(0, 4, 5)

    def _rows(self, lib: Any, **kwargs: Any) -> Any:
        return solve(
            _van_der_pol(lib.xp),
            lib.array(self.Y0),
            lib.array(self.TS),
            args=(lib.array(self.MU),),
            rtol=1e-6,
            atol=1e-8,
            batch_dims=1,
            **kwargs,
        )

    def test_each_row_equals_its_solo_solve(self, main_lib: Any) -> None:
        lib = main_lib
        batch = self._rows(lib)
        assert batch.status is Status.SUCCESS
        asked = lib.array([0.3, 2.9])
        for i in (0, 2):
            solo = solve(
                _van_der_pol(lib.xp),
                lib.array(self.Y0[i]),
                lib.array(self.TS),
                args=(lib.array(self.MU[i]),),
                rtol=1e-6,
                atol=1e-8,
            )
            ulp = 0 if lib.name != "jax" else 1e-13  # XLA fuses the two solves differently
            np.testing.assert_allclose(
                lib.host(batch.ys)[:, i], lib.host(solo.ys), rtol=ulp, atol=ulp
            )
            dense = lib.host(batch.interpolate(asked))[:, i]
            np.testing.assert_allclose(dense, lib.host(solo.interpolate(asked)), rtol=ulp, atol=ulp)
            for ours, theirs in zip(batch.stats, solo.stats, strict=True):
                assert int(ours[i]) == int(theirs)

    def test_rows_have_their_own_steps(self, main_lib: Any) -> None:
        accepted = main_lib.host(self._rows(main_lib).stats.accepted)
        assert accepted.shape == (3,)
        assert accepted[2] > 2 * accepted[0]

    def test_any_axis_can_be_the_batch(self, eager_lib: Any) -> None:
        lib, xp = eager_lib, eager_lib.xp

        def rhs(t: Any, y: Any, mu: Any) -> Any:
            return xp.stack([y[1], mu * (1 - y[0] * y[0]) * y[1] - y[0]])

        last = solve(
            rhs,
            lib.array(self.Y0.T.copy()),
            lib.array(self.TS),
            args=(lib.array(self.MU),),
            rtol=1e-6,
            atol=1e-8,
            batch_dims=(-1,),
        )
        first = self._rows(lib)
        np.testing.assert_allclose(
            lib.host(last.ys), np.moveaxis(lib.host(first.ys), 1, 2), rtol=1e-12
        )
        asked = lib.array([0.1, 0.2, 3.0])
        np.testing.assert_allclose(
            lib.host(last.interpolate(asked)),
            np.moveaxis(lib.host(first.interpolate(asked)), 1, 2),
            rtol=1e-12,
        )

    def test_trees_share_the_batch(self, eager_lib: Any) -> None:
        lib = eager_lib

        def rhs(t: Any, y: Any, mu: Any) -> Any:
            a, b = y
            return b, mu * (1 - a * a) * b - a

        tree = solve(
            rhs,
            (lib.array(self.Y0[:, 0]), lib.array(self.Y0[:, 1])),
            lib.array(self.TS),
            args=(lib.array(self.MU),),
            rtol=1e-6,
            atol=1e-8,
            batch_dims=1,
        )
        whole = lib.host(self._rows(lib).ys)
        np.testing.assert_allclose(lib.host(tree.ys[0]), whole[..., 0], rtol=1e-4, atol=1e-5)

    def test_one_row_that_fails_leaves_the_others_alone(self, main_lib: Any) -> None:
        lib = main_lib
        solution = solve(
            lambda t, y: y * y,
            lib.array([[1.0], [0.1]]),
            lib.array([0.0, 0.5, 2.0]),
            rtol=1e-6,
            atol=1e-8,
            batch_dims=1,
        )
        assert lib.host(solution.codes).tolist() == [Status.STEP_TOO_SMALL.code, 0]
        assert solution.status is Status.STEP_TOO_SMALL
        ys = lib.host(solution.ys)
        assert np.isnan(ys[2, 0, 0])
        np.testing.assert_allclose(ys[:, 1, 0], 1 / (10 - np.array([0.0, 0.5, 2.0])), rtol=1e-6)
        np.testing.assert_allclose(ys[1, 0, 0], 2.0, rtol=1e-4)


class TestStatus:
    def test_max_steps_gives_the_state_reached(self, lib: Any) -> None:
        ts = lib.array([0.0, 0.1, 1.0, 50.0])
        rhs = OSCILLATOR.make(lib.xp)
        solution = solve(rhs, lib.array([1.0, 0.0]), ts, rtol=1e-8, atol=1e-8, max_steps=20)
        assert solution.status is Status.MAX_STEPS
        assert "max_steps was reached before the end of ts" in solution.status.value
        assert int(solution.codes) == Status.MAX_STEPS.code
        assert int(solution.stats.accepted) + int(solution.stats.rejected) == 20
        reached = float(solution.t)
        assert 1.0 < reached < 50.0
        y = lib.host(solution.y)
        np.testing.assert_allclose(y, [np.cos(reached), -np.sin(reached)], atol=1e-6)
        ys = lib.host(solution.ys)
        assert np.isnan(ys[-1]).all()
        np.testing.assert_allclose(ys[2], [np.cos(1), -np.sin(1)], atol=1e-7)
        late = lib.host(solution.interpolate(lib.array([0.5, 49.0])))
        assert np.isfinite(late[0]).all()
        assert np.isnan(late[1]).all()

    def test_values_that_are_not_finite(self, main_lib: Any) -> None:
        lib = main_lib
        solution = solve(
            lambda t, y: y * np.nan,
            lib.array([1.0]),
            lib.array([0.0, 1.0]),
            rtol=1e-6,
            atol=1e-6,
        )
        assert solution.status is Status.STEP_TOO_SMALL
        assert int(solution.stats.accepted) == 0
        np.testing.assert_array_equal(lib.host(solution.ys), [[1.0], [np.nan]])

    def test_codes_are_positions_of_statuses(self) -> None:
        assert [status.code for status in Status] == [0, 1, 2]


def test_breakpoints(lib: Any) -> None:
    ts = np.array([0.0, 0.5, 1.7, 2.0])
    rhs = jumping(lib.xp)
    kwargs: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9, "breakpoints": [1.0]}
    solution = solve(rhs, lib.array([1.0]), lib.array(ts), **kwargs)
    np.testing.assert_allclose(lib.host(solution.ys), jumped(ts), rtol=1e-8)
    between = np.array([0.2, 0.999, 1.001, 1.9])
    dense = lib.host(solution.interpolate(lib.array(between)))
    np.testing.assert_allclose(dense, jumped(between), rtol=1e-8)
    assert int(solution.stats.rejected) == 0
    if lib.name == "jax":
        return  # each solve is compiled; backwards is what the others show
    back = solve(rhs, lib.array(jumped(ts)[-1]), lib.array(ts[::-1].copy()), **kwargs)
    np.testing.assert_allclose(lib.host(back.ys), jumped(ts)[::-1], rtol=1e-8)


def test_tolerances_for_each_leaf_and_element(main_lib: Any) -> None:
    lib = main_lib

    def rhs(t: Any, y: Any) -> Any:
        return {"a": -y["a"], "b": lib.xp.cos(40 * t) + 0 * y["b"]}

    y0 = {"a": lib.array([1.0]), "b": lib.array([0.0])}
    ts = lib.array([0.0, 3.0])
    strict = solve(rhs, y0, ts, rtol=1e-8, atol=1e-8)
    loose = solve(rhs, y0, ts, rtol={"a": 1e-8, "b": 1.0}, atol={"a": 1e-8, "b": 1.0})
    assert int(loose.stats.accepted) < int(strict.stats.accepted) / 3
    wide = solve(rhs, y0, ts, rtol={"a": lib.array([1e-8]), "b": 1.0}, atol={"a": 1e-8, "b": 1.0})
    assert int(wide.stats.accepted) == int(loose.stats.accepted)


def test_first_step_is_taken(main_lib: Any) -> None:
    lib = main_lib
    solution = solve(
        lambda t, y: -y,
        lib.array([1.0]),
        lib.array([0.0, 1e-3]),
        rtol=1e-3,
        atol=1e-3,
        first_step=1e-4,
    )
    assert int(solution.stats.accepted) == 2
    assert int(solution.stats.rhs_calls) == 13


def test_jit() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):

        @jax.jit
        def run(y0: Any, ts: Any) -> Any:
            solution = solve(RATIONAL.make(jnp), y0, ts, rtol=1e-8, atol=1e-8, max_steps=100)
            return solution.ys, solution.codes, solution.interpolate(ts[1:] / 2)

        for ts in (np.linspace(0, 2, 5), np.linspace(2, 0, 5)):
            exact = RATIONAL.solution(ts)
            ys, codes, half = run(jnp.asarray(exact[0]), jnp.asarray(ts))
            assert int(codes) == 0
            np.testing.assert_allclose(ys, exact, rtol=1e-7)
            if ts[0] == 0:
                np.testing.assert_allclose(half, RATIONAL.solution(ts[1:] / 2), rtol=1e-7)


def test_long_solves_take_outputs_out_of_records_on_the_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fullgraph.ode import _adaptive

    rhs, ts = OSCILLATOR.make(np), np.linspace(0, 20, 50)
    kwargs: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
    whole = solve(rhs, np.array([1.0, 0.0]), ts, **kwargs)
    monkeypatch.setattr(_adaptive, "_MOST_KEPT", 1)
    parts = solve(rhs, np.array([1.0, 0.0]), ts, **kwargs)
    np.testing.assert_array_equal(whole.ys, parts.ys)
    np.testing.assert_array_equal(whole.interpolate(ts[3:9]), parts.interpolate(ts[3:9]))
