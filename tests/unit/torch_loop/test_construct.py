"""Constructing the bounded adapter: arguments, versions, what is imported."""

import builtins
import subprocess
import sys

import numpy as np
import pytest

from fullgraph import LoopAdapter
from fullgraph.errors import MissingBackendError, UsageError
from fullgraph.torch_loop import torch_compile_loop_adapter

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("value", [0, 129, -1, True, 4.0, np.int64(4), "4", None])
def test_max_steps(value):
    with pytest.raises(ValueError, match=r"max_steps must be an int .* from 1 to 128, and is") as e:
        torch_compile_loop_adapter(max_steps=value)
    assert isinstance(e.value, UsageError)


@pytest.mark.parametrize("value", [0, 1_048_577, True, 4.0, np.int64(4)])
def test_max_elements(value):
    with pytest.raises(ValueError, match=r"max_elements must be an int .* from 1 to 1_048_576"):
        torch_compile_loop_adapter(max_elements=value)


@pytest.mark.parametrize("bounds", [(1, 1), (128, 1_048_576)])
def test_bounds_in_range(bounds):
    adapter = torch_compile_loop_adapter(max_steps=bounds[0], max_elements=bounds[1])
    assert isinstance(adapter, LoopAdapter)
    assert adapter.checkpoint is None


def test_arguments_are_keywords():
    with pytest.raises(TypeError, match="positional"):
        torch_compile_loop_adapter(16)


@pytest.mark.parametrize("version", ["2.13.1", "1.13.0+cpu", "2.9.1", "unknown"])
def test_old_torch(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ValueError, match=r"needs torch 2\.14 or newer.*run eagerly on this torch"):
        torch_compile_loop_adapter()


@pytest.mark.parametrize("version", ["2.14.0", "2.15.0+cu130", "3.0.0"])
def test_new_torch(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    torch_compile_loop_adapter()


def test_absent_torch(monkeypatch):
    real = builtins.__import__

    def without_torch(name, *args, **kwargs):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_torch)
    with pytest.raises(ImportError, match="needs torch, which is not installed") as caught:
        torch_compile_loop_adapter()
    assert isinstance(caught.value, MissingBackendError)


def test_constructing_registers_nothing():
    from fullgraph import get_loop_adapter

    torch_compile_loop_adapter()
    assert get_loop_adapter("torch") is None


def test_constructing_imports_torch():
    program = (
        "import sys, fullgraph.torch_loop as t\n"
        "assert 'torch' not in sys.modules\n"
        "t.torch_compile_loop_adapter()\n"
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
