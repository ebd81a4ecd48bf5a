"""The libraries that every solver test runs on."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # test modules share ode_problems.py


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
