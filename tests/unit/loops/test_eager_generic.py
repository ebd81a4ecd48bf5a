"""The plain driver on namespaces that it knows through array-api-compat alone."""

import numpy as np
import pytest

from fullgraph import fori_loop, scan, while_loop
from fullgraph.errors import CarryError, InPlaceUpdateError

strict = pytest.importorskip("array_api_strict")


def test_strict_devices_are_kept():
    device = strict.Device("device1")
    init = strict.zeros(2, device=device)
    xs = strict.ones((3, 2), device=device)
    carry, ys = scan(lambda c, x: (c + x, c), init, xs)
    assert carry.device == ys.device == device
    assert fori_loop(0, 2, lambda i, c: c + strict.astype(i, c.dtype), init).device == device


def test_strict_device_drift():
    other = strict.zeros(2, device=strict.Device("device1"))
    with pytest.raises(CarryError, match=r"on device .*CPU_DEVICE.* and comes out on device .*1"):
        scan(lambda c, x: (other, None), strict.zeros(2), length=2)


def test_strict_writes_into_rows():
    def step(c, x):
        x[0] = 1.0
        return c, None

    xs = strict.zeros((3, 2))
    with pytest.raises(InPlaceUpdateError):
        scan(step, strict.zeros(2), xs)
    assert not bool(strict.any(xs != 0))


def test_nan_is_no_write():
    carry, _ = scan(
        lambda c, x: (c + x, None), strict.asarray([float("nan"), 1.0]), strict.ones((2, 2))
    )
    assert bool(strict.isnan(carry[0]))


def test_dask_stays_lazy():
    da = pytest.importorskip("dask.array")
    computed = []

    def step(c, x):
        return c + x.map_blocks(lambda block: computed.append(1) or block, dtype=x.dtype), c

    carry, ys = scan(step, da.zeros(2), da.ones((3, 2)))
    lazily = len(computed)
    np.testing.assert_array_equal(carry.compute(), [3.0, 3.0])
    assert ys.shape == (3, 2)
    assert lazily < len(computed)


def test_dask_write():
    da = pytest.importorskip("dask.array")

    def step(c, x):
        c[0] = 5.0
        return c, None

    with pytest.raises(InPlaceUpdateError):
        scan(step, da.zeros(2), length=2)


def test_dask_while_loop():
    da = pytest.importorskip("dask.array")
    state = while_loop(lambda s: s[0] < 3, lambda s: s + 1, da.zeros(2))
    np.testing.assert_array_equal(state.compute(), [3.0, 3.0])
