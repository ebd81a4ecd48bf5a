"""A cache of its own for each test that builds."""

from __future__ import annotations

import pytest

from fullgraph.native import cache as module


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FULLGRAPH_CACHE", str(folder))
    module._private.cache_clear()
    yield folder
    module._private.cache_clear()


@pytest.fixture
def script(tmp_path):
    """Write an executable shell script, to stand in for a compiler."""

    def make(text: str, name: str = "cc") -> str:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return make
