"""A small library with an array-API suite, which pytester runs with the plugin."""

from __future__ import annotations

import json

# pytester puts sys.modules back after each run in this process: what cannot be imported twice, and
# what keeps state, is imported before the first.
import array_api_compat.torch
import array_api_extra.testing
import jax.numpy
import pytest
import torch
import torch._dynamo
import torch._inductor

import fullgraph.plugin.ending
import fullgraph.plugin.plain
import fullgraph.plugin.session
import fullgraph.testing._torch_call

_KEEP = (array_api_compat.torch, array_api_extra.testing, jax.numpy, torch, fullgraph)

CONFTEST = """
import pytest, numpy, torch
import jax.numpy
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture(params=[numpy, torch, jax.numpy], ids=["numpy", "torch", "jax"])
def xp(request):
    with patch_lazy_xp_functions(request, xp=request.param):
        yield request.param
"""

LIBRARY = """
def double(x):
    return x * 2

def branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

def bent(x):
    for _ in range(2):
        print(end="")
        x = x + 0
    return x

def sized(x, n):
    return x * n
"""


class Suite:
    """Runs a suite, in this process or another, and reads what it says."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def write(self, tests: str, *, library: str = LIBRARY, conftest: str = CONFTEST) -> None:
        """Write the library, its conftest and its tests."""
        name = self.pytester._name  # one module of each name per test: functions keep their record
        library_name = f"lib_{name}"
        tests = tests.replace("LIB", library_name)
        self.pytester.makeconftest(conftest)
        self.pytester.makepyfile(**{library_name: library, f"test_{name}": tests})

    @property
    def library(self) -> str:
        """The name of the library module."""
        return f"lib_{self.pytester._name}"

    def run(self, *args: str) -> pytest.RunResult:
        """Run in this process."""
        # hypothesis imports all of itself at the end of each run, anew
        alone = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
        return self.pytester.runpytest_inprocess(*alone, *args)

    def ids(self, *args: str) -> list[str]:
        """Return the ids of the collected tests, without their file."""
        result = self.run("--collect-only", "-q", *args)
        return [line.partition("::")[2] for line in result.outlines if "::" in line]

    def report(self, *args: str) -> dict:
        """Run with a report file, and return what it says."""
        path = self.pytester.path / "fullgraph-report.json"
        self.run(f"--fg-report={path}", *args)
        return json.loads(path.read_text())


@pytest.fixture(scope="session", autouse=True)
def everything_imported():
    """Compile once, so that torch has imported all that it imports for that."""
    import fullgraph.testing as fg

    fg.check_compiled(lambda x: x * 2, (torch.ones(1),))


@pytest.fixture
def suite(pytester, monkeypatch):
    """Give a suite to be written and run, and restore what it does to torch."""
    monkeypatch.syspath_prepend(pytester.path)
    device, dtype = torch.get_default_device(), torch.get_default_dtype()
    yield Suite(pytester)
    assert torch.get_default_device() == device
    torch.set_default_dtype(dtype)
