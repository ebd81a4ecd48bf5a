"""Every rewrite in examples/rewrites.py is whole in both modes, and equal to the original."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import array_api_extra as xpx
import array_api_strict
import numpy as np
import pytest
import torch

from fullgraph.testing import check_compiled

PATH = Path(__file__).resolve().parents[2] / "examples" / "rewrites.py"
_spec = importlib.util.spec_from_file_location("fg_rewrites", PATH)
rewrites = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(rewrites)

RANDOM = torch.Generator().manual_seed(0)
V = torch.randn(9, generator=RANDOM, dtype=torch.float64)
M = torch.randn(3, 8, generator=RANDOM, dtype=torch.float64)
C = torch.complex(M, M.flip(1))
INDICES = torch.tensor([4, 0, 2, 2, 7, 4, 4])
OTHERS = torch.tensor([2, 9, 0])
NAN = torch.tensor([[1.0, math.nan, -3.0], [math.nan] * 3, [5.0, math.inf, -math.inf]])

pytestmark = pytest.mark.filterwarnings("ignore:`xpx:DeprecationWarning")
MODES = pytest.mark.parametrize("mode", ["compile", "fullgraph"])


def whole(name, args, mode):
    """Hold the rewrite to one whole graph; return its eager result, which is the compiled one."""
    function = getattr(rewrites, name)
    record = check_compiled(function, args, mode=mode)
    assert record.functions[0].whole == 1
    assert record.breaks == ()
    return function(*args)


def same(found, expected):
    torch.testing.assert_close(found, expected, equal_nan=True)


@MODES
@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("apply_where", (V > 0, (V, V * 2), torch.add, torch.mul), None),
        ("nanmax", (NAN,), lambda a: xpx.nanmax(a)),
        ("nanmax", (NAN, 1), lambda a, n: xpx.nanmax(a, axis=n)),
        ("nanmin", (NAN,), lambda a: xpx.nanmin(a)),
        ("nanmin", (NAN, 1), lambda a, n: xpx.nanmin(a, axis=n)),
        ("nunique", (INDICES,), lambda a: xpx.nunique(a)),
        ("nunique", (V.reshape(3, 3),), lambda a: xpx.nunique(a)),
        ("expand_dims", (V, (0, 2)), lambda a, n: xpx.expand_dims(a, axis=n)),
        ("expand_dims", (M, (-1, 1)), lambda a, n: xpx.expand_dims(a, axis=n)),
        ("cov", (M,), lambda a: xpx.cov(a)),
        ("cov", (V,), lambda a: xpx.cov(a)),
        ("cov", (C,), lambda a: xpx.cov(a)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_values(name, args, expected, mode):
    found = whole(name, args, mode)
    same(found, (expected or getattr(xpx, name))(*args))


@MODES
@pytest.mark.parametrize(
    ("name", "a", "b"),
    [
        ("union1d", INDICES, OTHERS),
        ("union1d", V, V[:3]),
        ("setdiff1d", INDICES, OTHERS),
        ("setdiff1d", V, V[2:5]),
    ],
)
def test_values_of_a_varying_number(name, a, b, mode):
    values, count = whole(name, (a, b), mode)
    same(values[: int(count)], getattr(xpx, name)(a, b))


def test_an_empty_difference_counts_nothing():
    assert rewrites.setdiff1d(INDICES, INDICES)[1] == 0


@MODES
@pytest.mark.parametrize(("a", "axis"), [(V, -1), (M, -1), (M, 0), (INDICES, -1)])
@pytest.mark.parametrize("kth", [0, 2])
def test_partition(a, axis, kth, mode):
    found = whole("partition", (a, kth, axis), mode)
    indices = whole("argpartition", (a, kth, axis), mode)
    same(torch.gather(a, axis, indices), found)
    expected = xpx.partition(a, kth, axis=axis)
    at = (slice(None),) * (axis % a.ndim) + (kth,)
    same(found[at], expected[at])
    before = (slice(None),) * (axis % a.ndim) + (slice(kth),)
    same(found[before].sort(axis).values, expected[before].sort(axis).values)


@MODES
@pytest.mark.parametrize(
    "shapes", [((2, 1), (3,)), ((),), ((4, 1, 3), (5, 1), (1,)), (), ((0, 1), (1, 7))]
)
def test_broadcast_shapes(shapes, mode):
    def padded(x):
        return x + len(rewrites.broadcast_shapes(*shapes))

    record = check_compiled(padded, (V,), mode=mode)
    assert record.functions[0].whole == 1
    assert rewrites.broadcast_shapes(*shapes) == xpx.broadcast_shapes(*shapes)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="cannot be broadcast to one shape"):
        rewrites.broadcast_shapes((2,), (3,))
    with pytest.raises(ValueError, match="does not name 2 axes of 3"):
        rewrites.expand_dims(V, (0, 0))


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=lambda xp: xp.__name__)
def test_rewrites_are_array_api_code(xp):
    v = xp.asarray([3.0, 1.0, 2.0, 1.0])
    assert float(rewrites.nanmax(v)) == 3
    assert int(rewrites.nunique(v)) == 3
    values, count = rewrites.union1d(v, v)
    assert (float(values[2]), int(count)) == (3, 3)
    assert rewrites.expand_dims(v, (0, 2)).shape == (1, 4, 1)
    assert float(rewrites.cov(v)) == pytest.approx(float(np.cov([3.0, 1.0, 2.0, 1.0])))
    assert [float(x) for x in rewrites.partition(v, 1)] == [1, 1, 2, 3]
