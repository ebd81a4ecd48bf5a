"""The short way through small adaptive solves gives what the ordinary way gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fullgraph.errors import DerivativeError, UsageError
from fullgraph.ode import Status, _short_torch, solve

TS = torch.linspace(0, 2, 9, dtype=torch.float64)
Y0 = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)


def spin(t: Any, y: Any, k: Any) -> Any:
    return torch.stack([k * y[1], -k * y[0] * y[2], torch.sin(t) - y[2]])


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Say of each solve whether it went the short way."""
    found: list[bool] = []
    original = _short_torch.short_solve

    def watched(*args: Any) -> Any:
        result = original(*args)
        found.append(result is not None)
        return result

    monkeypatch.setattr(_short_torch, "short_solve", watched)
    solve(spin, Y0, TS, args=(1.0,), rtol=1, atol=1, loop="native")  # makes the adapter known
    return found


@pytest.mark.parametrize("method", ["dopri5", "bosh3"])
def test_results_are_those_of_the_plain_solve(taken: list[bool], method: str) -> None:
    k = torch.tensor(1.5, dtype=torch.float64)
    kwargs: dict[str, Any] = {"args": (k,), "method": method, "rtol": 1e-6, "atol": 1e-8}
    for _ in range(2):
        native = solve(spin, Y0, TS, loop="native", **kwargs)
    plain = solve(spin, Y0, TS, **kwargs)
    assert taken == [True, True]
    torch.testing.assert_close(native.ys, plain.ys, rtol=1e-12, atol=1e-14)
    assert tuple(map(int, native.stats)) == tuple(map(int, plain.stats))
    assert (native.status, int(native.codes)) == (plain.status, int(plain.codes))
    torch.testing.assert_close(native.y, plain.y, rtol=1e-12, atol=1e-14)
    assert float(native.t) == float(plain.t) == 2.0
    torch.testing.assert_close(
        native.interpolate(0.77), plain.interpolate(0.77), rtol=1e-12, atol=1e-14
    )


def test_other_tolerances_times_and_closures_are_never_stale(taken: list[bool]) -> None:
    k = torch.tensor(1.0, dtype=torch.float64)

    def rhs(t: Any, y: Any) -> Any:
        return -k * y

    for value, rtol, last in ((1.0, 1e-6, 2.0), (2.0, 1e-6, 2.0), (2.0, 1e-3, 3.0)):
        k = torch.tensor(value, dtype=torch.float64)
        ts = torch.linspace(0, last, 5, dtype=torch.float64)
        native = solve(rhs, Y0, ts, rtol=rtol, atol=1e-9, loop="native")
        plain = solve(rhs, Y0, ts, rtol=rtol, atol=1e-9)
        torch.testing.assert_close(native.ys, plain.ys, rtol=1e-12, atol=1e-14)
        assert int(native.stats.accepted) == int(plain.stats.accepted)
    assert taken == [True] * 3


def test_a_solve_that_cannot_finish_says_so(taken: list[bool]) -> None:
    found = solve(spin, Y0, TS, args=(9.0,), rtol=1e-9, atol=1e-9, max_steps=7, loop="native")
    assert found.status is Status.MAX_STEPS
    assert int(found.stats.accepted + found.stats.rejected) == 7
    assert bool(torch.isnan(found.ys[-1]).all())
    assert not bool(torch.isnan(found.ys[0]).any())
    found = solve(
        lambda t, y: torch.where(t < 0.5, y, y * float("nan")),
        Y0,
        TS,
        rtol=1e-6,
        atol=1e-6,
        loop="native",
    )
    assert found.status is Status.STEP_TOO_SMALL
    assert taken == [True, True]


def test_gradients_go_the_ordinary_way(taken: list[bool]) -> None:
    kwargs: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-7}
    for grad in (False, True, True):
        k = torch.tensor(1.5, dtype=torch.float64, requires_grad=grad)
        native = solve(spin, Y0, TS, args=(k,), loop="native", **kwargs)
        if grad:
            plain = solve(spin, Y0, TS, args=(k,), **kwargs)
            a, b = (torch.autograd.grad(s.ys[-1].sum(), k)[0] for s in (native, plain))
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert taken == [True, False, False]


def test_messages_are_the_ordinary_ones(taken: list[bool]) -> None:
    kwargs: dict[str, Any] = {"rtol": 1e-7, "atol": 1e-7, "loop": "native"}
    with pytest.raises(DerivativeError, match="has shape"):
        solve(lambda t, y: y[:2], Y0, TS, **kwargs)
    with pytest.raises(UsageError, match="strictly increasing"):
        solve(lambda t, y: y, Y0, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64), **kwargs)
    with pytest.raises(UsageError, match="has no error estimate"):
        solve(lambda t, y: y, Y0, TS, method="rk4", **kwargs)
