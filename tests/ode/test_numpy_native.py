"""NumPy problems solved by native loops: NumPy in, NumPy out, no result that differs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fullgraph.errors import DerivativeError
from fullgraph.ode import Status, solve

pytest.importorskip("torch")

TS = np.linspace(0.0, 2.0, 9)
Y0 = np.asarray([1.0, 0.5, 0.25])


def spin(t: Any, y: Any, k: Any) -> Any:
    return np.stack([k * y[1], -k * y[0] * y[2], np.sin(t) - y[2]])


@pytest.mark.parametrize("options", [{"rtol": 1e-6, "atol": 1e-8}, {"method": "rk4", "step": 0.01}])
def test_results_are_those_of_the_plain_solve(options: dict[str, Any]) -> None:
    for k in (1.5, np.asarray(2.0)):
        native = solve(spin, Y0, TS, args=(k,), loop="native", **options)
        plain = solve(spin, Y0, TS, args=(k,), **options)
        assert type(native.ys) is type(native.ts) is np.ndarray
        np.testing.assert_allclose(native.ys, plain.ys, rtol=1e-12)
        np.testing.assert_allclose(native.y, plain.y, rtol=1e-12)
        np.testing.assert_allclose(native.interpolate(0.3), plain.interpolate(0.3), rtol=1e-12)
        assert tuple(map(int, native.stats)) == tuple(map(int, plain.stats))
        assert native.status is plain.status is Status.SUCCESS


def test_trees_and_arrays_of_any_layout() -> None:
    def rhs(t: Any, y: Any) -> Any:
        return {"a": -y["a"], "b": y["a"][0] - y["b"]}

    wide = np.arange(1.0, 7.0)
    wide.setflags(write=False)
    y0 = {"a": wide[::-2], "b": np.asarray(0.5)}
    native = solve(rhs, y0, TS, rtol=1e-6, atol=1e-8, loop="native")
    plain = solve(rhs, y0, TS, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(native.ys["a"], plain.ys["a"], rtol=1e-12)
    np.testing.assert_allclose(native.ys["b"], plain.ys["b"], rtol=1e-12)
    np.testing.assert_array_equal(wide, np.arange(1.0, 7.0))


def test_a_derivative_of_another_dtype_raises() -> None:
    with pytest.raises(DerivativeError, match="is float32"):
        solve(lambda t, y: y.astype(np.float32), Y0, TS, rtol=1e-6, atol=1e-6, loop="native")
