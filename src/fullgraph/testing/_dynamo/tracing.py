"""The environment in which Dynamo traces a frame for us; none of it outlasts the frame.

Entered with Dynamo's compile lock held, so that its changes of global state are never seen by
another thread that compiles.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from typing import TYPE_CHECKING, Any, Self

from fullgraph.testing._dynamo.breaks import Break, parse_message
from fullgraph.testing._dynamo.shortcuts import constant_helpers, no_guard_profiling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BREAK_LOGGER = "torch._dynamo.symbolic_convert.__graph_breaks"
RECOMPILE_LOGGER = "torch._dynamo.guards.__recompiles"
LIMIT_LOGGER = "torch._dynamo.convert_frame"

# No budget of ours is kept by this limit, which counts over all functions that share a callee.
_ACCUMULATED_LIMIT = 1 << 20


class LogTap(logging.Filter):
    """Hear what one of torch's loggers says while it is open, and let nothing more of it out.

    A filter on the logger itself sees each record in the thread that made it, before any handler.
    """

    def __init__(self, name: str, hear: Callable[[str], object], level: int = logging.DEBUG):
        super().__init__()
        self._logger = logging.getLogger(name)
        self._hear = hear
        self._level = level

    def filter(self, record: logging.LogRecord) -> bool:
        """Hear the record; pass it on only if its level was enabled without us."""
        if record.levelno < self._level:
            return True
        self._hear(record.getMessage())
        return record.levelno >= self._enabled

    def __enter__(self) -> Self:
        self._before = self._logger.level
        self._enabled = self._logger.getEffectiveLevel()
        self._logger.addFilter(self)
        if self._enabled > self._level:
            self._logger.setLevel(self._level)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeFilter(self)
        self._logger.setLevel(self._before)


# The group name makes the entries ours alone: removing them cannot remove one of the user's.
_NOTICES = (
    {"module": r"(?P<fullgraph>torch)(\..*)?\Z"},
    {"message": r"(?P<fullgraph>Dynamo) detected a call to a `functools\.lru_cache`"},
)


@contextlib.contextmanager
def quiet_notices() -> Iterator[None]:
    """Silence the warnings that torch gives about itself while it traces and compiles.

    No line of the user's program runs meanwhile, so a warning that originates in a file of torch is
    a notice of Dynamo, Inductor or FX; only the lru_cache one points at the user's line, by its
    stack level. A warning of a module that the user's code imports while it is traced passes.
    """
    ours = []
    for notice in _NOTICES:
        warnings.filterwarnings("ignore", **notice)  # type: ignore[arg-type]
        ours.append(warnings.filters[0])
    try:
        yield
    finally:
        # Not catch_warnings: it would put back the whole list, and lose what another thread or a
        # traced import has added meanwhile.
        for entry in ours:
            with contextlib.suppress(ValueError):
                warnings.filters.remove(entry)  # type: ignore[attr-defined]


@contextlib.contextmanager
def tracing(breaks: list[Break], guards: list[str], config: dict[str, Any]) -> Iterator[None]:
    """Trace with our configuration and without notices, noting breaks and failed guards."""
    from torch._dynamo import config as dynamo_config

    settings = {"accumulated_recompile_limit": _ACCUMULATED_LIMIT, **config}
    with (
        dynamo_config.patch(**settings),
        LogTap(BREAK_LOGGER, hear_breaks(breaks)),
        LogTap(RECOMPILE_LOGGER, lambda text: guards.append(failed_guard(text))),
        # the limit's warning asks for a setting that the caller has made on purpose
        LogTap(LIMIT_LOGGER, lambda _: None, level=logging.WARNING),
        constant_helpers(),
        no_guard_profiling(),
        quiet_notices(),
    ):
        yield


def hear_breaks(breaks: list[Break]) -> Callable[[str], None]:
    """Return a function that parses a log message and notes the break that it reports."""

    def hear(text: str) -> None:
        if (event := parse_message(text)) is not None:
            breaks.append(event)

    return hear


def failed_guard(text: str) -> str:
    """Return the first failed guard of a record of torch's ``recompiles`` log."""
    for line in text.splitlines():
        if line.strip().startswith("- "):
            guard = line.strip().removeprefix("- ")
            return guard.partition(": ")[2].partition("  #")[0].strip() or guard
    return text.strip()
