"""The libraries that every solver test runs on."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test modules share ode_problems.py


# Every solve that JAX does not find in its cache is compiled, a second each, and array-api-strict
# takes a second for what NumPy does in 50 ms. These show what others show already.
SLOW = re.compile(
    r"test_accuracy\[(jax|strict)-(heun|fehlberg2|bosh3)\]"
    r"|test_problems_both_ways\[(jax|strict)"
    r"|test_gradients\[jax-(breakpoints|fixed breakpoints|reused)\]"
    r"|test_no_step_straddles_a_breakpoint\[jax-(forwards|backwards)-(rk4|dopri5)\]"
    r"|test_adaptive_methods\[adaptive_heun-sine"
    r"|test_(rows_have_their_own_steps|max_steps_gives_the_state_reached)\[jax\]"
    r"|test_accuracy\[jax-dopri5\]"
    r"|test_gradcheck\[bosh3\]"
    r"|test_(one_row_that_fails_leaves_the_others_alone|breakpoints)\[jax\]"
    r"|test_(tolerances_for_each_leaf_and_element|first_step_is_taken)\[jax\]"
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the slowest repetitions to the slow run."""
    for item in items:
        if SLOW.match(item.name):
            item.add_marker(pytest.mark.slow)


@dataclass(frozen=True)
class Lib:
    """One array library, as the tests see it."""

    name: str
    xp: Any

    def array(self, values: Any, dtype: str = "float64") -> Any:
        """Make an array."""
        host = np.array(values, dtype=dtype)
        return self.xp.from_numpy(host) if self.name == "torch" else self.xp.asarray(host)

    def host(self, array: Any) -> np.ndarray:
        """Return the values of an array as a NumPy array."""
        if self.name == "torch":
            return array.detach().numpy()
        if self.name == "strict":
            return np.asarray(array._array)
        return np.asarray(array)


MODULES = {"numpy": "numpy", "torch": "torch", "strict": "array_api_strict", "jax": "jax.numpy"}


def _lib(name: str) -> Any:
    xp = importlib.import_module(MODULES[name])
    if name != "jax":
        yield Lib(name, xp)
        return
    import jax

    with jax.enable_x64(True):
        yield Lib(name, xp)


@pytest.fixture(params=list(MODULES))
def lib(request: pytest.FixtureRequest) -> Any:
    """Each library in turn."""
    yield from _lib(request.param)


@pytest.fixture(params=["numpy", "torch", "jax"])
def main_lib(request: pytest.FixtureRequest) -> Any:
    """The three libraries that solvers are used with most."""
    yield from _lib(request.param)


@pytest.fixture(params=["torch", "jax"])
def grad_lib(request: pytest.FixtureRequest) -> Any:
    """The libraries that differentiate."""
    yield from _lib(request.param)


@pytest.fixture(params=["numpy", "torch"])
def eager_lib(request: pytest.FixtureRequest) -> Any:
    """The libraries whose plain loops are Python's."""
    yield from _lib(request.param)
