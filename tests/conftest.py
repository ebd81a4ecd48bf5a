"""What all tests share: importable helper modules, and fixtures that undo what they do."""

from __future__ import annotations

import importlib.util
import sys
import textwrap
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))


@pytest.fixture
def module_of(tmp_path, monkeypatch):
    """Write source to a file and import it: code under test needs real files and globals."""

    def make(source: str, name: str = "fg_under_test") -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return make


@pytest.fixture
def request_for():
    """Make the part of `pytest.FixtureRequest` that patching reads, for any module."""

    def make(module: ModuleType, nodeid: str = "test_file.py::test_name") -> SimpleNamespace:
        finalizers = []
        return SimpleNamespace(
            module=module,
            node=SimpleNamespace(nodeid=nodeid),
            finalizers=finalizers,
            addfinalizer=finalizers.append,
        )

    return make


@pytest.fixture
def default_device_cpu():
    """Leave a function mode on torch's stack, as suites that call `set_default_device` do."""
    import torch

    torch.set_default_device("cpu")
    yield
    torch.set_default_device(None)


@pytest.fixture(params=["plain", "default_device"])
def either_device(request):
    """Run a test twice, the second time after `torch.set_default_device("cpu")`."""
    if request.param == "default_device":
        request.getfixturevalue("default_device_cpu")
    return request.param
