from __future__ import annotations

import importlib.metadata
import warnings

import pytest

from fullgraph.errors import MissingBackendError
from fullgraph.testing import check_compiled, compiled, record
from fullgraph.testing._dynamo import versions


@pytest.fixture
def torch_is(monkeypatch):
    """Pretend that another torch, or none, is installed."""
    real = importlib.metadata.version

    def pretend(version):
        def fake(name):
            if name != "torch":
                return real(name)
            if version is None:
                raise importlib.metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(importlib.metadata, "version", fake)
        versions.torch_release.cache_clear()
        versions.internals_known.cache_clear()

    yield pretend
    monkeypatch.undo()
    versions.torch_release.cache_clear()
    versions.internals_known.cache_clear()


def enter_record():
    with record():
        pass


CALLS = [
    pytest.param(lambda: compiled(len), id="compiled"),
    pytest.param(lambda: check_compiled(len, ([],)), id="check_compiled"),
    pytest.param(enter_record, id="record"),
]


@pytest.mark.parametrize("call", CALLS)
def test_missing_torch(torch_is, call):
    torch_is(None)
    with pytest.raises(MissingBackendError, match=r"torch is not installed.*pip install 'torch>="):
        call()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("version", ["2.12.1", "1.13.0+cpu"])
def test_too_old_torch(torch_is, call, version):
    torch_is(version)
    with pytest.raises(MissingBackendError, match=r"is installed.*need torch >= 2\.13") as caught:
        call()
    assert version in str(caught.value)


@pytest.mark.parametrize("version", ["2.13.0", "2.14.1", "2.15.0+cu130", "2.15.0a0+git123"])
def test_known_torch(torch_is, version):
    torch_is(version)
    assert versions.internals_known()


def test_newer_torch_gives_one_notice(torch_is):
    torch_is("2.99.0")
    with pytest.warns(versions.UnknownTorchWarning, match=r"torch 2\.99\.0 is newer.*upper bound"):
        assert not versions.internals_known()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not versions.internals_known()
