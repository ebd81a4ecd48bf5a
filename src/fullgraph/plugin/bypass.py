"""See tagged functions that a test runs without going through their compiled form.

A function that is called as ``module.f``, through a partial, a dict or a local import is the plain
one: its test passes and proves nothing. While the body of a test runs in a compiled mode, a profile
function compares every call's code object with those of the tagged functions. It is off during
compiled calls, where what runs is the compiler's business; a profiler of the user's has priority.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

__all__ = ["BypassWatch"]


class BypassWatch:
    """Watches one test at a time."""

    def __init__(self) -> None:
        self._names: dict[CodeType, list[str]] = {}
        self._seen: dict[str, str] = {}
        self._on = False

    @contextlib.contextmanager
    def watch(self, func: Any, name: str) -> Iterator[None]:
        """Look out for plain calls of a tagged function while the context is open."""
        # Decorators give one code object to many functions: the innermost one is the function's own
        code = getattr(inspect.unwrap(func), "__code__", None)
        if code is None:
            yield
            return
        self._names.setdefault(code, []).append(name)
        try:
            yield
        finally:
            self._names[code].remove(name)
            if not self._names[code]:
                del self._names[code]

    def forget_seen(self) -> None:
        """Begin another test."""
        self._seen.clear()

    @property
    def seen(self) -> dict[str, str]:
        """The functions that ran plainly, each with ``file:line`` of its first caller."""
        return dict(self._seen)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread."""
        if not self._names or sys.getprofile() is not None:
            yield
            return
        self._on = True
        sys.setprofile(self._hear)
        try:
            yield
        finally:
            self._on = False
            sys.setprofile(None)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Look away during a compiled call."""
        if not self._on or sys.getprofile() is None:
            yield
            return
        sys.setprofile(None)
        try:
            yield
        finally:
            sys.setprofile(self._hear)

    def _hear(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call":
            return
        names = self._names.get(frame.f_code)
        if names is not None and names[0] not in self._seen:
            self._seen[names[0]] = _caller(frame)


def _caller(frame: FrameType) -> str:
    caller = frame.f_back
    if caller is None:
        return "?"
    return f"{caller.f_code.co_filename}:{caller.f_lineno}"
