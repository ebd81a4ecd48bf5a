"""A line on the terminal while one compiled call takes long.

A worker of pytest-xdist has no terminal: it writes its call into a file, in a folder of which the
process with the terminal has told it, and that process says the line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fullgraph.testing._progress import longest_running

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["FOLDER", "Progress"]

FIRST_LINE = 10.0
"""Seconds after which a call is named; then again each time its duration has doubled."""
FOLDER = "fullgraph_progress"
"""Key of a worker's input: the folder for its file."""


class Progress:
    """Watches running calls from a thread of its own, and writes past pytest's capture."""

    def __init__(self, config: pytest.Config) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._fd: int | None = None
        self._folder: Path | None = None
        self._file: Path | None = None
        self._due: dict[str, float] = {}
        given = getattr(config, "workerinput", None)
        if given is not None:
            if FOLDER in given:
                self._file = Path(given[FOLDER]) / given["workerid"]
        elif config.getoption("verbose") >= 0 and config.pluginmanager.has_plugin("terminal"):
            # Capturing is suspended while plugins are configured: this is the terminal itself
            with contextlib.suppress(OSError, ValueError, AttributeError):
                self._fd = os.dup(sys.stdout.fileno())

    def folder(self) -> str | None:
        """Return where workers may write, None if there is no terminal to tell it."""
        if self._fd is None:
            return None
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="fullgraph-"))
        return str(self._folder)

    def start(self) -> None:
        """Start to watch, if there is somebody to be told."""
        if self._fd is not None or self._file is not None:
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
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        while not self._stop.wait(min(1.0, FIRST_LINE / 4)):
            if self._file is not None:
                with contextlib.suppress(OSError):  # the folder has gone, and who reads it
                    self._note(self._file)
            else:
                self._say()

    def _note(self, file: Path) -> None:
        """Write down since when this worker is in which call, if that is long."""
        running = longest_running()
        if running is None or running[0] < FIRST_LINE:
            file.unlink(missing_ok=True)
        elif not file.exists():
            part = file.with_suffix(".part")
            part.write_text(f"{time.time() - running[0]} {running[1]}", encoding="utf-8")
            part.replace(file)

    def _say(self) -> None:
        calls = dict(self._calls())
        for who in [who for who in self._due if who not in calls]:
            del self._due[who]
        for who, (seconds, name) in calls.items():
            if seconds >= self._due.setdefault(who, FIRST_LINE):
                self._due[who] *= 2
                self._write(f"\nfullgraph: {who}in {name} for {seconds:.0f} s\n")

    def _calls(self) -> Iterator[tuple[str, tuple[float, str]]]:
        """Give the long calls: of which process, for how many seconds, of which function."""
        running = longest_running()
        if running is not None and running[0] >= FIRST_LINE:
            yield "", running
        for file in sorted(self._folder.glob("*")) if self._folder is not None else ():
            with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
                if not file.suffix:
                    start, _, name = file.read_text(encoding="utf-8").partition(" ")
                    yield f"{file.name} ", (time.time() - float(start), name)

    def _write(self, text: str) -> None:
        assert self._fd is not None, "only a process with a terminal says something"
        with contextlib.suppress(OSError):  # it has gone away
            os.write(self._fd, text.encode())
