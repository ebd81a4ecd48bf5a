"""The log of one compiled call, and which call is running in this thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    from fullgraph.testing._dynamo.breaks import Break, Location


@dataclass(eq=False, slots=True)
class Specialisation:
    """One compiled version of one frame: what it is guarded on and where it breaks the graph."""

    code: CodeType | None
    """The code object of the frame."""
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


class CompiledMeanwhile(BaseException):
    """Another thread has compiled what this call was about to: start the call again."""


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
    made: list[Specialisation] | None = None
    """The owner's specialisations, over all threads."""
    known: int = 0
    """How many of these there were when the call started."""
    before: Callable[[], None] | None = None
    """Called before anything that the call may change is changed, if it may have to be repeated."""
    ran: list[Specialisation] = field(default_factory=list)
    compiled: list[Specialisation] = field(default_factory=list)
    skipped: list[Break] = field(default_factory=list)
    over_limit: list[Break] = field(default_factory=list)
    empty: int = 0
    no_tensor: int = 0
    graphs_compiled: int = 0
    graphs_run: int = 0
    graph_error: Exception | None = None
    """What a graph raised while it ran."""
    graph_line: Location | None = None
    """The line of the operator that raised it, where it is known."""
    seconds: float = 0.0
    """Time spent in Dynamo and the backend: tracing, guards, compiling."""

    @property
    def untouched(self) -> bool:
        """Whether nothing was heard yet, so that the next frame is the function itself."""
        return not (self.ran or self.compiled or self.skipped or self.over_limit or self.empty)

    def saw_run(self, item: Specialisation) -> None:
        """Hear that compiled code of a specialisation starts."""
        if item.breaks or item.resumes:
            self._prepare()
        self.ran.append(item)

    def saw_frame(self) -> None:
        """Hear that Dynamo looks at a frame: it may trace it, and that may fail."""
        self._prepare()

    def saw_graph(self, *, changes: bool) -> None:
        """Hear that a graph starts, and whether it changes its inputs or random state."""
        self.graphs_run += 1
        if changes:
            self._prepare()
        # Whole compiled code changes nothing else before its graph has ended.
        self.before = None

    def _prepare(self) -> None:
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
