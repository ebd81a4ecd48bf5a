"""`fullgraph.backends`."""

import sys

import numpy as np
import pytest

from fullgraph.backends import Backend, backend_of, canonical_namespace


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("torch", "torch"),
        ("array_api_compat.torch", "torch"),
        ("scipy._lib.array_api_compat.torch", "torch"),
        ("array_api_compat.numpy", "numpy"),
        ("a.b.array_api_compat.dask.array", "dask.array"),
        ("array_api_compat.cupy", "cupy"),
        ("jax.numpy", "jax.numpy"),
        ("jax.experimental.array_api", "jax.numpy"),
        ("array_api_strict", "array_api_strict"),
        ("my_array_api_compat.torch", "my_array_api_compat.torch"),
        ("mylib", "mylib"),
    ],
)
def test_canonical_namespace(name, canonical):
    assert canonical_namespace(name) == canonical


def test_from_name():
    assert Backend.from_name("array_api_compat.torch") is Backend.TORCH
    assert Backend.from_name("mylib") is None


def test_installed_does_not_import(monkeypatch):
    assert Backend.NUMPY.installed
    assert Backend.NUMPY.loaded
    monkeypatch.delitem(sys.modules, "dask", raising=False)
    monkeypatch.delitem(sys.modules, "dask.array", raising=False)
    assert Backend.DASK.installed
    assert not Backend.DASK.loaded
    assert "dask" not in sys.modules


def test_missing_is_not_installed():
    assert not Backend.CUPY.installed


def test_backend_of_numpy():
    assert backend_of(np.zeros(2)) is Backend.NUMPY
    assert backend_of(np.float64(1)) is Backend.NUMPY


@pytest.mark.parametrize("value", [1, 1.0, True, None, "x", [1.0]])
def test_backend_of_no_array(value):
    assert backend_of(value) is None


def test_backend_of_torch():
    torch = pytest.importorskip("torch")
    assert backend_of(torch.zeros(2)) is Backend.TORCH
    assert backend_of(torch.nn.Parameter(torch.zeros(2))) is Backend.TORCH


def test_backend_of_jax_and_its_tracers():
    jax = pytest.importorskip("jax")
    seen = []
    jax.jit(lambda x: seen.append(backend_of(x)) or x)(1.0)
    assert seen == [Backend.JAX]


def test_backend_of_strict_and_dask():
    strict = pytest.importorskip("array_api_strict")
    assert backend_of(strict.zeros(2)) is Backend.STRICT
    dask = pytest.importorskip("dask.array")
    assert backend_of(dask.zeros(2)) is Backend.DASK
