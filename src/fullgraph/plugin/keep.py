"""For ``fullgraph audit``: keep what is recorded while a run goes on, so that no end loses it.

Loaded by ``-p fullgraph.plugin.keep`` with the folder in ``FULLGRAPH_KEEP``. Every process of a run
writes its own file there, every ten seconds (``FULLGRAPH_KEEP_EVERY``) and when its tests have
ended. With ``FULLGRAPH_KEEP_ONLY=torch``, tests of other backends are deselected.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["Keeper"]

_EVERY = float(os.environ.get("FULLGRAPH_KEEP_EVERY", "10"))
"""Seconds between two writes."""


def pytest_configure(config: pytest.Config) -> None:
    """Begin, if there is a folder."""
    folder = os.environ.get("FULLGRAPH_KEEP")
    if folder:
        only = os.environ.get("FULLGRAPH_KEEP_ONLY", "")
        config.pluginmanager.register(Keeper(config, Path(folder), only), "fullgraph-keep")


class Keeper:
    """Writes the record of this process."""

    def __init__(self, config: pytest.Config, folder: Path, only: str) -> None:
        self._config, self._only = config, only
        self._path = folder / f"part-{os.getpid()}.json"
        self._written = time.monotonic()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect tests of other backends."""
        if not self._only:
            return
        from fullgraph.plugin.namespaces import UNKNOWN, backend_of_item, namespace_fixture

        names = tuple(self._config.getini("fullgraph_fixtures"))
        kept: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            ours = False
            if isinstance(item, pytest.Function) and (fixture := namespace_fixture(item, names)):
                ours = backend_of_item(item, fixture) in (self._only, UNKNOWN)
            (kept if ours else others).append(item)
        if others:
            self._config.hook.pytest_deselected(items=others)
            items[:] = kept

    def pytest_runtest_logfinish(self) -> None:
        """Write, if it is time."""
        if time.monotonic() - self._written >= _EVERY:
            self.write()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Write when the tests have ended, however they have."""
        try:
            return (yield)
        finally:
            self.write()

    def write(self) -> None:
        """Write the file anew; a reader sees the one before or this one, never a part."""
        self._written = time.monotonic()
        run: Any = self._config.pluginmanager.get_plugin("fullgraph-session")
        if run is None:
            return
        record = run.ledger.record.merge(run._recorder.record())  # noqa: SLF001
        if not record.functions:
            return
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(record.to_json(), encoding="utf-8")
        unfinished.replace(self._path)
