"""The environment in which Dynamo traces a frame for us; none of it outlasts the frame.

Entered with Dynamo's compile lock held, so that its changes of global state are never seen by
another thread that compiles.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, Self

from fullgraph.testing._dynamo.breaks import Break, parse_message
from fullgraph.testing._dynamo.shortcuts import (
    constant_helpers,
    no_guard_profiling,
    no_metrics_of_settings,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BREAK_LOGGER = "torch._dynamo.symbolic_convert.__graph_breaks"
RECOMPILE_LOGGER = "torch._dynamo.guards.__recompiles"
LIMIT_LOGGER = "torch._dynamo.convert_frame"
ITEM_LOGGER = "torch._dynamo.variables.tensor"
TRACE_LOGGER = "torch.__trace"


class LogTap(logging.Filter):
    """Hear what one of torch's loggers says while it is open, and let nothing more of it out.

    A filter on the logger itself sees each record in the thread that made it, before any handler.
    The logger's level stays as it is, since setting it empties the caches of all loggers, 1 ms each
    time: the logger says that it is enabled instead. Taps of one logger may overlap in any order.
    """

    _lock = threading.Lock()
    _open: ClassVar[dict[str, list[LogTap]]] = {}

    def __init__(self, name: str, hear: Callable[[str], object]) -> None:
        super().__init__()
        self._logger = logging.getLogger(name)
        self._hear = hear

    def filter(self, record: logging.LogRecord) -> bool:
        """Hear the record; pass it on only if its level is enabled without us."""
        self._hear(record.getMessage())
        return logging.Logger.isEnabledFor(self._logger, record.levelno)

    def __enter__(self) -> Self:
        logger = self._logger
        with self._lock:
            taps = self._open.setdefault(logger.name, [])
            if not taps:
                vars(logger)["isEnabledFor"] = lambda _level: True
            taps.append(self)
            # in front: the filter that refuses a record keeps it from those behind it
            logger.filters.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = self._logger
        with self._lock:
            logger.removeFilter(self)
            taps = self._open[logger.name]
            taps.remove(self)
            if not taps:
                del vars(logger)["isEnabledFor"]


class _Hush(logging.Filter):
    """Silence the records of one logger in which a text is found."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self._logger, self._text = logging.getLogger(name), text

    def filter(self, record: logging.LogRecord) -> bool:
        """Refuse what is to be silent."""
        return self._text not in record.getMessage()

    def __enter__(self) -> None:
        self._logger.addFilter(self)

    def __exit__(self, *_: object) -> None:
        self._logger.removeFilter(self)


# The name of the group makes each entry that of one context alone: adding it moves no other, and
# removing it can remove neither one of the user's nor one of another thread.
_NOTICES = (
    ("module", r"(?P<fullgraph_{}>torch)(\..*)?\Z"),
    ("message", r"(?P<fullgraph_{}>Dynamo) detected a call to a `functools\.lru_cache`"),
)
_numbers = itertools.count()


@contextlib.contextmanager
def quiet_notices() -> Iterator[None]:
    """Silence the warnings that torch gives about itself while it traces and compiles.

    No line of the user's program runs meanwhile, so a warning that originates in a file of torch is
    a notice of Dynamo, Inductor or FX; only the lru_cache one points at the user's line, by its
    stack level. A warning of a module that the user's code imports while it is traced passes.
    """
    ours = []
    number = next(_numbers)
    for field, pattern in _NOTICES:
        warnings.filterwarnings("ignore", **{field: pattern.format(number)})  # type: ignore[arg-type]
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
def tracing(
    breaks: list[Break], guards: list[str], config: dict[str, Any] | None
) -> Iterator[None]:
    """Trace with our configuration and without notices, noting breaks and failed guards.

    Without a configuration the frame is one of the user's own torch.compile: we only listen.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(LogTap(BREAK_LOGGER, hear_breaks(breaks)))
        stack.enter_context(failed_guards(guards))
        if config is not None:
            stack.enter_context(_ours(config))
        yield


@contextlib.contextmanager
def _ours(config: dict[str, Any]) -> Iterator[None]:
    """Apply our configuration and shortcuts, and keep torch from talking about itself."""
    from torch._dynamo import config as dynamo_config

    with (
        dynamo_config.patch(**config),
        quiet_logs(),
        constant_helpers(),
        no_guard_profiling(),
        no_metrics_of_settings(),
        quiet_notices(),
    ):
        yield


@contextlib.contextmanager
def quiet_logs() -> Iterator[None]:
    """Silence logged advice to change settings that the caller has made on purpose."""
    with (
        _Hush(LIMIT_LOGGER, "hit config.recompile_limit"),
        _Hush(ITEM_LOGGER, "Graph break from `Tensor.item()`"),
        no_foreign_trace(),
    ):
        yield


def hear_breaks(breaks: list[Break]) -> Callable[[str], None]:
    """Return a function that parses a log message and notes the break that it reports."""

    def hear(text: str) -> None:
        if (event := parse_message(text)) is not None:
            breaks.append(event)

    return hear


@contextlib.contextmanager
def failed_guards(guards: list[str]) -> Iterator[None]:
    """Note the failed guard of every recompilation.

    Torch logs it only if the artifact "recompiles" is switched on, and asks a private object for
    that; where it is not found, recompiles have no guard.
    """
    internal: Any = sys.modules.get("torch._logging._internal")
    names = getattr(getattr(internal, "log_state", None), "artifact_names", None)

    def hear(text: str) -> None:
        guards.append(failed_guard(text))

    with LogTap(RECOMPILE_LOGGER, hear), LogTap(RECOMPILE_LOGGER + "_verbose", hear):
        if not isinstance(names, set) or "recompiles" in names:
            yield
            return
        names.add("recompiles")
        try:
            yield
        finally:
            names.discard("recompiles")


@contextlib.contextmanager
def no_foreign_trace() -> Iterator[None]:
    """Take handlers of pytest off torch's trace logger, which traces as soon as it has a handler.

    Pytest attaches its own to loggers that do not propagate: thousands of empty records per test
    would be made for nobody, and shown with each failure.
    """
    logger = logging.getLogger(TRACE_LOGGER)
    foreign = [h for h in logger.handlers if type(h).__module__.startswith("_pytest.")]
    for handler in foreign:
        logger.removeHandler(handler)
    try:
        yield
    finally:
        for handler in foreign:
            logger.addHandler(handler)


def failed_guard(text: str) -> str:
    """Return the first failed guard of a record of torch's ``recompiles`` log."""
    for line in text.splitlines():
        if line.strip().startswith("- "):
            guard = line.strip().removeprefix("- ")
            return guard.partition(": ")[2].partition("  #")[0].strip() or guard
    return text.strip()
