"""The declared public surface is what is defined."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import fullgraph
import fullgraph.errors
import fullgraph.testing


def test_testing_defines_what_it_declares():
    declared = fullgraph.testing.__all__
    assert list(declared) == sorted(declared)
    for name in declared:
        assert getattr(fullgraph.testing, name) is not None
    defined = {
        name
        for name, value in vars(fullgraph.testing).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("fullgraph.testing")
    }
    assert defined <= set(declared)
    assert set(declared) - defined == {
        "assert_close",
        "assert_close_nulp",
        "assert_equal",
        "assert_less",
    }
    with pytest.raises(AttributeError, match=r"'fullgraph\.testing' has no attribute 'nope'"):
        fullgraph.testing.nope


def test_the_package_hands_on_what_loops_declares():
    import fullgraph.loops

    assert fullgraph.__all__ == fullgraph.loops.__all__ == sorted(fullgraph.__all__)
    for name in fullgraph.__all__:
        assert getattr(fullgraph, name) is getattr(fullgraph.loops, name)


def test_errors_defines_what_it_declares():
    defined = {
        name
        for name, value in vars(fullgraph.errors).items()
        if inspect.isclass(value) and value.__module__ == "fullgraph.errors"
    }
    assert defined == set(fullgraph.errors.__all__)
    for name in fullgraph.errors.__all__:
        assert getattr(fullgraph.errors, name).__doc__


def test_assertions_come_from_array_api_extra(monkeypatch):
    upstream = pytest.importorskip("array_api_extra.testing")
    for name in ("assert_close", "assert_close_nulp", "assert_equal", "assert_less"):
        assert getattr(fullgraph.testing, name) is getattr(upstream, name)
    monkeypatch.setitem(sys.modules, "array_api_extra", None)
    with pytest.raises(
        fullgraph.errors.MissingBackendError,
        match=r"assert_close comes from array-api-extra, which is not installed: pip install",
    ):
        fullgraph.testing.assert_close


OWN = [n for n in fullgraph.testing.__all__ if n[0].islower() and not n.startswith("assert_")]


@pytest.mark.parametrize("name", OWN)
def test_public_functions_have_numpydoc(name):
    thing = getattr(fullgraph.testing, name)
    for section in ("Parameters", "Raises", "Examples"):
        if section == "Parameters" and not inspect.signature(thing).parameters:
            continue
        assert f"{section}\n    ---" in thing.__doc__ or f"{section}\n---" in thing.__doc__


@pytest.mark.parametrize("module", ["fullgraph", "fullgraph.testing", "fullgraph.pytest_plugin"])
def test_import_loads_no_array_library(module):
    code = (
        f"import sys, {module}\n"
        "print([m for m in ('torch', 'jax', 'dask', 'cupy', 'scipy', 'array_api_extra')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_import_takes_milliseconds():
    code = (
        "import time\n"
        "start = time.process_time()\n"  # not what other processes take meanwhile
        "import fullgraph\n"
        "print((time.process_time() - start) * 1e3)"
    )
    times = [
        float(
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(5)
    ]
    assert min(times) < 50


def test_version_lives_in_the_metadata():
    from importlib.metadata import version

    assert version("fullgraph")
