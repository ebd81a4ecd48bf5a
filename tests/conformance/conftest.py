"""The drivers that every conformance test runs on.

A driver is a namespace, perhaps with an adapter. What it refuses by its documented rules is data
here, so that a test says once what is right and which rule stands in the way of it.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fullgraph
from fullgraph.errors import UnsupportedBodyError, UnsupportedLoopError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# What the bounded Inductor adapter refuses, and a piece of the message that names the rule.
BOUNDED_REFUSALS = {
    "int leaf": "must be float32 or float64",
    "bool leaf": "must be float32 or float64",
    "two dtypes": "one dtype",
    "python scalar": "is the Python number",
    "zero steps": "at least 1",
    "nested": "in the body of a scan",
    "bounded while": "max_steps",
    "empty": "no elements",
    "long": "at most 128",
    "namedtuple": "tuples, lists and dicts",
}

# What the native adapter refuses: a body is captured, and runs once for all steps.
NATIVE_REFUSALS = {"outer state": "changes Python state outside of it"}


class RefusedAsDocumented(Exception):
    """Ends a test that passes by refusal."""


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Iterator[None]:
    """Let a test pass that met the refusal which its driver documents."""
    try:
        return (yield)
    except RefusedAsDocumented:
        return True


@dataclass(frozen=True)
class Driver:
    """One way to run loops, as the tests see it."""

    name: str
    xp: Any
    differentiable: bool = False
    refuses: dict[str, str] = field(default_factory=dict)
    compiled: bool = False

    def array(self, values: Any, dtype: str = "float64") -> Any:
        """Make an array of this library."""
        host = np.asarray(values, dtype=dtype)
        if self.is_torch:
            return self.xp.from_numpy(np.array(host))
        return self.xp.asarray(np.array(host))

    @property
    def is_torch(self) -> bool:
        return self.xp.__name__ == "torch"

    def host(self, array: Any) -> np.ndarray:
        """Return an array's values as a NumPy array."""
        if self.is_torch:
            return array.detach().resolve_conj().cpu().numpy()
        return np.asarray(array)

    def dtype(self, array: Any) -> str:
        """Return the name of an array's dtype."""
        return str(array.dtype).rpartition(".")[2]

    def share_memory(self, first: Any, second: Any) -> bool:
        """Whether two arrays overlap; JAX arrays are immutable, so overlap is nobody's business."""
        if self.xp.__name__ == "jax.numpy":
            return False
        return np.shares_memory(self.host(first), self.host(second))

    def grads(self, loss: Callable[..., Any], values: Sequence[Any]) -> list[np.ndarray]:
        """Return the gradients of a scalar loss with respect to NumPy arrays."""
        if self.is_torch:
            weights = [self.array(value).requires_grad_() for value in values]
            found = self.xp.autograd.grad(loss(*weights), weights)
            return [self.host(one) for one in found]
        import jax

        found = jax.grad(loss, argnums=tuple(range(len(values))))(*map(self.array, values))
        return [np.asarray(one) for one in found]

    @contextlib.contextmanager
    def refusing(self, *features: str) -> Iterator[None]:
        """Run a block whose last call this driver refuses if it refuses any of the features.

        The test passes at the refusal, and fails without it.
        """
        refused = [self.refuses[feature] for feature in features if feature in self.refuses]
        try:
            yield
        except (UnsupportedLoopError, UnsupportedBodyError) as error:
            if not any(re.search(pattern, str(error)) for pattern in refused):
                raise
            raise RefusedAsDocumented from error
        else:
            assert not refused, f"{self.name} took what it is documented to refuse: {features}"


def _bounded() -> fullgraph.LoopAdapter:
    from fullgraph.torch_loop import torch_compile_loop_adapter

    return torch_compile_loop_adapter()


NAMES = ["numpy", "torch", "strict", "jax", "bounded", "native"]


@pytest.fixture(scope="session")
def _bounded_adapter() -> Any:
    return _bounded()


@pytest.fixture(scope="session")
def _native_adapter() -> Any:
    from fullgraph.torch_loop import torch_native_loop_adapter

    return torch_native_loop_adapter()


@pytest.fixture(params=NAMES)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """Each driver in turn, in force for the test."""
    name = request.param
    modules = {"numpy": "numpy", "strict": "array_api_strict", "jax": "jax.numpy"}
    xp = importlib.import_module(modules.get(name, "torch"))
    if name == "jax":
        import jax

        with jax.enable_x64(True):
            yield Driver(name, xp, differentiable=True)
    elif name == "bounded":
        adapter = request.getfixturevalue("_bounded_adapter")
        with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
            yield Driver(name, xp, True, BOUNDED_REFUSALS, compiled=True)
    elif name == "native":
        adapter = request.getfixturevalue("_native_adapter")
        with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
            yield Driver(name, xp, True, NATIVE_REFUSALS, compiled=True)
    else:
        yield Driver(name, xp, differentiable=name == "torch")
