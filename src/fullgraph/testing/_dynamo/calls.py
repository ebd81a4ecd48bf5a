"""The log of one compiled call, and which call is running in this thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from fullgraph.testing._dynamo.breaks import Break


@dataclass(eq=False, slots=True)
class Specialisation:
    """One compiled version of one frame: what it is guarded on and where it breaks the graph."""

    frame: str
    """``module:qualname`` of the function, resume functions under the name they resume."""
    resumes: bool
    """Whether the frame is the rest of a function after a graph break."""
    signature: str
    """What the frame's arguments looked like, stable between processes."""
    own: bool = True
    """Whether the frame is the first of its call: the compiled function itself."""
    guard: str | None = None
    """The guard whose failure led to this compilation; None for the first of its frame."""
    breaks: list[Break] = field(default_factory=list)
    graphs: int = 0
    """Graphs that its code calls."""
    seconds: float = 0.0
    raced: bool = False
    """Whether another thread had compiled the same by the time that this one's turn came."""


@dataclass(eq=False)
class CallLog:
    """What happened during one call: written by the thread that runs it, read when it is over.

    The ``saw_...`` methods are what the watcher tells it, with the name of the frame.
    """

    config: dict[str, Any] = field(default_factory=dict)
    """Dynamo settings under which frames of this call are traced."""
    skips: dict[Any, Any] | None = None
    """The owner's memory of frames that cannot be compiled; None: leave it to Dynamo."""
    limits: dict[CodeType, Any] | None = None
    """The owner's memory of frames over the recompile limit."""
    before: Callable[[], None] | None = None
    """Called before the first line of the call runs, unless no tracing can follow it."""
    ran: list[Specialisation] = field(default_factory=list)
    compiled: list[Specialisation] = field(default_factory=list)
    skipped: list[Break] = field(default_factory=list)
    over_limit: list[Break] = field(default_factory=list)
    empty: int = 0
    no_tensor: int = 0
    graphs_compiled: int = 0
    graphs_run: int = 0
    seconds: float = 0.0
    """Time spent in Dynamo and the backend: tracing, guards, compiling."""

    @property
    def untouched(self) -> bool:
        """Whether nothing was heard yet, so that the next frame is the function itself."""
        return not (self.ran or self.compiled or self.skipped or self.over_limit or self.empty)

    def saw_run(self, item: Specialisation) -> None:
        """Hear that compiled code of a specialisation starts."""
        if self.before is not None:
            before, self.before = self.before, None
            if item.breaks or item.resumes:
                before()
        self.ran.append(item)

    def saw_frame(self) -> None:
        """Hear that Dynamo looks at a frame: it may trace it, and that may fail."""
        if self.before is not None:
            before, self.before = self.before, None
            before()

    def saw_compiled(self, item: Specialisation) -> None:
        """Hear of a new specialisation."""
        self.compiled.append(item)
        self.seconds += item.seconds

    def saw_skip(self, _frame: str, event: Break) -> None:
        """Hear of a frame that Dynamo gave up."""
        self.skipped.append(event)

    def saw_limit(self, _frame: str, event: Break) -> None:
        """Hear of a frame that ran eagerly since it has too many specialisations."""
        self.over_limit.append(event)

    def saw_nothing(self, _frame: str, *, tensors: bool) -> None:
        """Hear of a frame without an operation to capture, or without tensors."""
        self.empty += tensors
        self.no_tensor += not tensors

    def saw_failure(self, _frame: str, _error: Exception, seconds: float) -> None:
        """Hear that tracing a frame raised; who called will learn it from the exception."""
        self.seconds += seconds


class _Running(threading.local):
    def __init__(self) -> None:
        self.stack: list[CallLog] = []


_running = _Running()
_ambient: list[CallLog] = []  # logs of open `record()` blocks: see everything outside of calls


def current() -> CallLog | None:
    """Return the log of the innermost running call of this thread, else of an open block."""
    stack = _running.stack
    if stack:
        return stack[-1]
    return _ambient[-1] if _ambient else None


def inside_call() -> bool:
    """Whether a compiled call of ours is running in this thread."""
    return bool(_running.stack)


def push(log: CallLog) -> None:
    """Start a call in this thread."""
    _running.stack.append(log)


def pop(log: CallLog) -> None:
    """End the call that `push` started."""
    ended = _running.stack.pop()
    assert ended is log, "calls must end in the order opposite to their start"


def open_block(log: CallLog) -> None:
    """Let `log` receive what Dynamo does outside of our own calls, in any thread."""
    _ambient.append(log)


def close_block(log: CallLog) -> None:
    """Undo `open_block`."""
    _ambient.remove(log)
