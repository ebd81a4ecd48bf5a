from __future__ import annotations

import math

import numpy as np
import pytest

from fullgraph.errors import UsageError
from fullgraph.testing import Budget, Mode, compiled, lazy_xp_function
from fullgraph.testing._modes import check_allowance, parse_mode


def test_modes_are_their_names():
    assert [str(mode) for mode in Mode] == ["eager", "compile", "fullgraph", "jit"]
    assert parse_mode("compile") is Mode.COMPILE
    assert parse_mode(Mode.JIT, backend="jax") is Mode.JIT


@pytest.mark.parametrize(
    ("mode", "backend", "message"),
    [
        (
            "fast",
            None,
            "unknown mode 'fast': accepted are 'eager', 'compile', 'fullgraph', 'jit'",
        ),
        ("fast", "torch", "unknown mode 'fast': accepted are 'eager', 'compile', 'fullgraph'"),
        ("jit", "torch", "torch has no mode 'jit': accepted are 'eager', 'compile', 'fullgraph'"),
        ("fullgraph", "jax", "jax has no mode 'fullgraph': accepted are 'eager', 'jit'"),
        (3, None, "unknown mode '3'"),
        ([], None, r"unknown mode '\[\]'"),
    ],
)
def test_a_mode_that_is_not_accepted(mode, backend, message):
    with pytest.raises(UsageError, match=message):
        parse_mode(mode, backend=backend)


@pytest.mark.parametrize(
    ("value", "parsed"),
    [(None, None), (False, 0), (True, math.inf), (0, 0), (3, 3), (np.int64(2), 2)],
)
def test_allowances(value, parsed):
    assert check_allowance("n", value) == parsed
    assert Budget.parse(value).whole is (parsed == 0)


@pytest.mark.parametrize("value", [-1, 1.5, "2", [], math.nan])
@pytest.mark.parametrize("name", ["allow_graph_breaks", "allow_recompiles", "allow_dask_compute"])
def test_an_allowance_that_is_not_accepted(name, value):
    with pytest.raises(UsageError, match=rf"{name}=.* is not accepted: give False or 0 for none"):
        lazy_xp_function(lambda v: v, **{name: value})
    if name != "allow_dask_compute":
        with pytest.raises(UsageError, match=rf"{name}=.* is not accepted"):
            compiled(lambda v: v, **{name: value})
