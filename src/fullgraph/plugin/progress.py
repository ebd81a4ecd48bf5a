"""A line on the terminal while one compiled call takes long."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from fullgraph.testing._progress import longest_running

if TYPE_CHECKING:
    import pytest

__all__ = ["Progress"]

FIRST_LINE = 10.0
"""Seconds after which a call is named; then again each time its duration has doubled."""


class Progress:
    """Watches the running call from a thread of its own, and writes past pytest's capture."""

    def __init__(self, config: pytest.Config) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fd: int | None = None
        quiet = config.getoption("verbose") < 0 or hasattr(config, "workerinput")
        if not quiet and config.pluginmanager.has_plugin("terminal"):
            # Capturing is suspended while plugins are configured: this is the terminal itself
            with contextlib.suppress(OSError, ValueError, AttributeError):
                self._fd = os.dup(sys.stdout.fileno())

    def start(self) -> None:
        """Start to watch, if there is a terminal to write to."""
        if self._fd is not None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="fullgraph")
            self._thread.start()

    def stop(self) -> None:
        """End the thread, and close the terminal."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _run(self) -> None:
        due = FIRST_LINE
        while not self._stop.wait(min(1.0, FIRST_LINE / 4)):
            running = longest_running()
            if running is None:
                due = FIRST_LINE
            elif running[0] >= due:
                due *= 2
                self._write(f"\nfullgraph: in {running[1]} for {running[0]:.0f} s\n")
            elif running[0] < FIRST_LINE:
                due = FIRST_LINE

    def _write(self, text: str) -> None:
        assert self._fd is not None, "the thread runs only with a terminal"
        with contextlib.suppress(OSError):  # it has gone away
            os.write(self._fd, text.encode())
