"""Watch calls through public API alone: for a torch whose internals are not known to us.

What torch says in its logs (those of ``torch._logging.set_logs``) is heard while a call runs, and
graphs are counted by the backend. Dynamo says nothing when it reuses compiled code: a call that
says nothing is charged with the sites that a call of the same inputs was charged with before, or,
if its inputs are new, with every site of the function so far, an upper bound. One call runs at a
time, over all threads, since the logs are the process's.
"""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fullgraph.testing._dynamo.breaks import Break, Location
from fullgraph.testing._dynamo.calls import Specialisation, current
from fullgraph.testing._dynamo.signature import describe, shorten
from fullgraph.testing._dynamo.tracing import (
    BREAK_LOGGER,
    LIMIT_LOGGER,
    LogTap,
    failed_guards,
    hear_breaks,
    quiet_logs,
    quiet_notices,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.testing._dynamo.calls import CallLog

_one_at_a_time = threading.RLock()


class PublicWatcher(AbstractContextManager[None]):
    """Watches one call, and tells its log what it heard when the call is over."""

    def __init__(self, log: CallLog, name: str, inputs: Any) -> None:
        self._log, self._name, self._inputs = log, name, inputs
        self._is_call = log.skips is not None
        self._breaks: list[Break] = []
        self._guards: list[str] = []
        self._limits: list[str] = []
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        from torch._dynamo import config

        self._log.saw_frame()  # whether a frame will be traced is not known in time
        with contextlib.ExitStack() as stack:
            if self._is_call:  # a block only listens, in all threads
                stack.enter_context(_one_at_a_time)
                stack.enter_context(config.patch(**self._log.config))
                stack.enter_context(quiet_logs())
                stack.enter_context(quiet_notices())
            self._traced_before = _frames_traced()
            hear_break = hear_breaks(self._breaks)
            stack.enter_context(LogTap(BREAK_LOGGER, lambda text: self._mine(hear_break, text)))
            stack.enter_context(failed_guards(self._guards))
            stack.enter_context(
                LogTap(LIMIT_LOGGER, lambda text: self._mine(self._hear_limit, text))
            )
            self._undo = stack.pop_all()

    def _mine(self, hear: Callable[[str], None], text: str) -> None:
        """Hear a call's own thread, or for a block all that is part of no call."""
        if current() is self._log:
            hear(text)

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        if not self._is_call:
            self._tell_block()
            return
        memory: dict[Any, Any] = self._log.skips if self._log.skips is not None else {}
        alive: list[Any] = []  # what the signature tells apart by address must keep it
        signature = describe(self._inputs, identities=alive)
        if self._log.graphs_compiled > 0 or self._breaks or _frames_traced() > self._traced_before:
            memory[signature] = self._compiled(), alive
        known = memory.get(signature)
        for item, _ in [known] if known is not None else list(memory.values()):
            self._log.saw_run(item) if self._log.graphs_run else self._tell_nothing_ran(item)
        if self._limits and self._log.limits is not None:
            self._log.limits[self._name] = self._limits[0]  # type: ignore[index]
        if self._log.limits and not self._log.graphs_run:
            where = Location("?", 0, self._name.rpartition(":")[2])
            self._log.saw_limit(self._name, Break(where, "recompile limit exceeded"))

    def _compiled(self) -> Specialisation:
        item = Specialisation(None, self._name, False, shorten(describe(self._inputs)))
        item.guard = self._guards[0] if self._guards else None
        item.breaks.extend(self._breaks)
        item.graphs = self._log.graphs_compiled
        if item.graphs:
            self._log.saw_compiled(item)
        return item

    def _tell_nothing_ran(self, item: Specialisation) -> None:
        for event in item.breaks:
            if event.skips_frame:
                self._log.saw_skip(self._name, event)
        if not item.breaks:
            self._log.saw_nothing(self._name, tensors=True)

    def _tell_block(self) -> None:
        """Report the breaks of the user's own torch.compile; calls and graphs are not known."""
        for event in self._breaks:
            function = (event.callers[0] if event.callers else event.where).function
            frame = f"?:{function} resumed at line {event.where.line} (heard)"
            item = Specialisation(None, frame, True, "")
            item.breaks.append(event)
            self._log.saw_run(item)

    def _hear_limit(self, text: str) -> None:
        if "hit config" in text and "limit" in text:
            self._limits.append(text)


def _frames_traced() -> int:
    """Return how many frames Dynamo has traced to their end, those without a graph too."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["ok"])
