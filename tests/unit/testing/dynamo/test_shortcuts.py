"""What is left out while tracing changes nothing in a record."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from fullgraph.testing import compiled
from fullgraph.testing._dynamo import shortcuts

xpx = pytest.importorskip("array_api_extra")


def x():
    return torch.arange(1.0, 7.0).reshape(2, 3)


def specials():
    return pytest.importorskip("scipy.special")


CASES = {
    "isclose": lambda: (xpx.isclose, (x(), x() + 1)),
    "kron": lambda: (xpx.kron, (x(), x())),
    "nunique": lambda: (xpx.nunique, (x(),)),
    "apply_where": lambda: (
        lambda v: xpx.apply_where(v > 2, v, torch.sqrt, fill_value=0.0),
        (x(),),
    ),
    "atleast_nd": lambda: (lambda v: xpx.atleast_nd(v, ndim=3), (x(),)),
    "cov": lambda: (xpx.cov, (x(),)),
    "sinc": lambda: (xpx.sinc, (x(),)),
    "logsumexp": lambda: (specials().logsumexp, (x(),)),
    "softmax": lambda: (specials().softmax, (x(),)),
}


def essence(record):
    """All of a record but its times."""
    return dataclasses.replace(record, compile_seconds=0, seconds=0)


@pytest.mark.parametrize("case", CASES)
def test_same_record_and_value(case, monkeypatch):
    func, args = CASES[case]()
    results, records = [], []
    for enabled in (True, False):
        monkeypatch.setattr(shortcuts, "enabled", enabled)
        call = compiled(func)
        results.append([call(*args) for _ in range(2)])
        records.append(essence(call.record))
    assert records[0] == records[1]
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, equal_nan=True)


def test_marks_are_taken_off_again():
    functions = shortcuts._helper_functions()
    assert functions
    with shortcuts.constant_helpers():
        assert all(hasattr(f, "_dynamo_marked_constant") for f in functions)
        with shortcuts.constant_helpers():  # another thread's
            pass
        assert all(hasattr(f, "_dynamo_marked_constant") for f in functions)
    assert not any(hasattr(f, "_dynamo_marked_constant") for f in functions)


def test_guards_are_measured_again_afterwards():
    from torch._dynamo import guards

    before = guards.profile_guard_manager
    with shortcuts.no_guard_profiling():
        assert guards.profile_guard_manager is not before
    assert guards.profile_guard_manager is before
