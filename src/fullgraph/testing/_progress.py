"""Which compiled calls are running: for whoever shows progress, or must not look meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["in_progress", "longest_running", "while_running"]

_running: dict[int, tuple[float, str]] = {}

while_running: list[Callable[[], contextlib.AbstractContextManager[None]]] = []
"""What to enter around every outermost compiled call, in its thread."""


@contextlib.contextmanager
def in_progress(name: str) -> Iterator[None]:
    """Note that this thread is in a compiled call of `name`; calls inside it are part of it."""
    thread = threading.get_ident()
    if thread in _running:
        yield
        return
    _running[thread] = (time.monotonic(), name)
    try:
        with contextlib.ExitStack() as stack:
            for make in while_running:
                stack.enter_context(make())
            yield
    finally:
        del _running[thread]


def longest_running() -> tuple[float, str] | None:
    """Return for how many seconds the oldest running call has been running, and its name."""
    calls = list(_running.values())
    if not calls:
        return None
    start, name = min(calls)
    return time.monotonic() - start, name
