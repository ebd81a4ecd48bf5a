"""See every frame that Dynamo looks at, and what becomes of it (private API, known releases).

Dynamo asks ``torch._dynamo.convert_frame.CatchErrorsWrapper`` about each frame for which it has no
compiled code, and remembers a "skip" for the frame's code object for ever. While calls of ours run,
that method is ours: it traces in our environment, sees compiled, empty, skipped and over-limit
frames alike, and keeps a skip to the arguments that led to it. So a branch that cannot be compiled
does not keep another one from being compiled, whichever comes first, and each skipped or over-limit
frame of each call is counted, not only the first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

from fullgraph.testing._dynamo.arrays import arrays_kept
from fullgraph.testing._dynamo.breaks import Break, Location, function_name, is_machinery, is_own
from fullgraph.testing._dynamo.calls import (
    CallLog,
    CompiledMeanwhile,
    Specialisation,
    current,
)
from fullgraph.testing._dynamo.marker import with_marker
from fullgraph.testing._dynamo.signature import describe_frame, describe_globals
from fullgraph.testing._dynamo.tracing import tracing
from fullgraph.testing._dynamo.transforms import inside_transform

if TYPE_CHECKING:
    import types
    from collections.abc import Callable

_ADAPTORS = "_adaptors.py"  # its functions stand for what is tested, and are captured with it


_MOST_SKIPS = 1024
"""Calls with ever new objects must not fill the memory; what is forgotten is found out anew."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Skip:
    """A frame that was not compiled: what to tell each call that meets it, and Dynamo's answer."""

    kind: Literal["empty", "no tensor", "skip", "limit"]
    frame: str
    event: Break
    answer: Any

    def tell(self, log: CallLog) -> None:
        if self.kind == "skip":
            log.saw_skip(self.frame, self.event)
        elif self.kind == "limit":
            log.saw_limit(self.frame, self.event)
        else:
            log.saw_nothing(self.frame, tensors=self.kind == "empty")


class FrameWatcher:
    """Holds the hook in place while calls run; one for the process, counted over threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._original: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._install()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._remove()

    def _install(self) -> None:
        from torch._dynamo.convert_frame import CatchErrorsWrapper

        original = self._original = CatchErrorsWrapper.__call__

        def convert(wrapper: Any, frame: Any, cache_entry: Any, frame_state: Any) -> Any:
            log = current()
            if log is None:
                return original(wrapper, frame, cache_entry, frame_state)
            alone = self._users == 1
            look = lambda: original(wrapper, frame, cache_entry, frame_state)  # noqa: E731
            return _watched(log, frame, look, alone)

        CatchErrorsWrapper.__call__ = convert  # type: ignore[method-assign,assignment]

    def _remove(self) -> None:
        from torch._dynamo.convert_frame import CatchErrorsWrapper

        assert self._original is not None
        CatchErrorsWrapper.__call__ = self._original  # type: ignore[method-assign]


def _watched(log: CallLog, frame: Any, convert: Callable[[], Any], alone: bool) -> Any:
    """Let Dynamo decide about one frame, unless the call's owner knows the answer already."""
    code: types.CodeType = frame.f_code
    module = frame.f_globals.get("__name__", "?")
    if is_own(code.co_filename) and not code.co_filename.endswith(_ADAPTORS):
        return _skip_answer()  # a wrapper; the function that it wraps is a frame too
    log.saw_frame()
    limits, skips = log.limits, log.skips
    if limits is not None and code in limits:
        limits[code].tell(log)
        return limits[code].answer
    alive: list[Any] = []
    key = None if skips is None else _state_of(frame, alive)
    if skips is not None and key in skips:
        skip, _ = skips[key]
        skip.tell(log)
        return skip.answer
    answer, events, compiled = _traced(log, frame, module, convert, alone)
    if compiled is not None:
        log.saw_compiled(compiled)
        return answer
    skip = _classify(answer, code, module, events)
    if skip is None:
        return answer
    skip.tell(log)
    if skips is None or limits is None:
        return answer
    skip = dataclasses.replace(skip, answer=dataclasses.replace(answer, apply_to_code=False))
    if skip.kind == "limit":
        limits[code] = skip
    else:
        if len(skips) >= _MOST_SKIPS:
            skips.clear()
        skips[key] = skip, alive
    return skip.answer


def _state_of(frame: Any, alive: list[Any]) -> tuple[Any, str, str]:
    """Return all that decides whether a frame can be compiled, as far as it can be told."""
    code: types.CodeType = frame.f_code
    return (
        code,
        describe_frame(frame.f_locals, identities=alive),
        describe_globals(code.co_names, frame.f_globals),
    )


def _traced(
    log: CallLog, frame: Any, module: str, convert: Callable[[], Any], alone: bool
) -> tuple[Any, list[Break], Specialisation | None]:
    """Trace the frame in our environment; return the answer, the breaks, what was compiled."""
    from torch._dynamo.convert_frame import compile_lock, register_bytecode_hook

    code: types.CodeType = frame.f_code
    events: list[Break] = []
    guards: list[str] = []
    made: list[Specialisation] = []
    name, resumes = _frame_name(code, module)
    own = log.untouched and not resumes

    def mark(old: types.CodeType, new: types.CodeType, /) -> types.CodeType | None:
        if old is not code:
            return None
        item = Specialisation(code, name, resumes, describe_frame(frame.f_locals), own)
        item.graphs = sum(called.startswith("__compiled_fn") for called in new.co_names)
        made.append(item)
        return with_marker(new, _Ran(item))

    start = time.perf_counter()
    try:
        config = None if log.skips is None else log.config
        with compile_lock, tracing(events, guards, config), arrays_kept(frame.f_locals):
            late = not alone and _made_by_others(log, code, frame)
            if own and late:
                raise CompiledMeanwhile  # noqa: TRY301 - leaves what is open
            hook = register_bytecode_hook(mark)  # type: ignore[arg-type]
            try:
                answer = convert()
            finally:
                hook.remove()
    except Exception as error:
        log.saw_failure(name, error, time.perf_counter() - start)
        raise
    if answer.guarded_code is None or not made:
        log.seconds += time.perf_counter() - start
        return answer, events, None
    compiled = made[-1]
    compiled.breaks.extend(events)
    compiled.guard = guards[0] if guards else None
    compiled.seconds = time.perf_counter() - start
    # What Dynamo says where no guard fails after all. What follows a break in a function that two
    # threads have compiled is another piece of code in each.
    parent = log.ran[-1] if resumes and log.ran else None
    held = bool(guards) and guards[0].startswith("Unexpected recompilation")
    compiled.raced = late or held or (parent is not None and parent.raced)
    if log.made is not None:
        log.made.append(compiled)
    return answer, events, compiled


def _made_by_others(log: CallLog, code: types.CodeType, frame: Any) -> bool:
    """Whether other threads have compiled this frame since the call has started.

    Torch looks for compiled code before it waits for its turn to compile, and not again.
    """
    since = (log.made or ())[log.known :]
    late = {item.signature for item in since if item.code is code and item not in log.compiled}
    return bool(late) and describe_frame(frame.f_locals) in late


def _frame_name(code: types.CodeType, module: str) -> tuple[str, bool]:
    """Name a frame, and say whether it is the rest of a function after a graph break.

    Two breaks of one line leave two rests of the same name: a digest of the code tells them apart.
    """
    outer, dot, last = code.co_qualname.rpartition(".")
    name = f"{outer}{dot}{function_name(last)}"
    if name == code.co_qualname:
        return f"{module}:{name}", False
    line = code.co_name.rpartition("_")[2]
    digest = hashlib.sha256(code.co_code).hexdigest()[:4]
    return f"{module}:{name} resumed at line {line} ({digest})", True


class _Ran:
    """The marker of one specialisation, called by its compiled code."""

    __slots__ = ("_specialisation",)

    def __init__(self, specialisation: Specialisation) -> None:
        self._specialisation = specialisation

    def __call__(self) -> None:
        log = current()
        if log is not None:
            log.saw_run(self._specialisation)


def _classify(answer: Any, code: types.CodeType, module: str, events: list[Break]) -> _Skip | None:
    """Tell what a frame without compiled code means; None: not a matter of the user's code."""
    from torch._dynamo.types import FrameAction  # type: ignore[attr-defined]

    frame, _ = _frame_name(code, module)
    where = Location(code.co_filename, code.co_firstlineno, function_name(code.co_name))
    reason = answer.skip_reason or ""

    def skip(kind: Literal["empty", "no tensor", "skip", "limit"], why: str) -> _Skip:
        return _Skip(kind, frame, Break(where, why, skips_frame=kind == "skip"), answer)

    if answer.frame_exec_strategy.cur_action == FrameAction.RUN_ONLY:
        return skip("limit", "recompile limit exceeded")
    if "No ops traced" in reason:
        return skip("empty", reason)
    if reason.startswith("no tensor-related objects"):
        return skip("no tensor", reason)
    if events and not is_machinery((cause := _cause(events)).where.file):
        return _Skip("skip", frame, dataclasses.replace(cause, skips_frame=True), answer)
    if is_machinery(code.co_filename):
        return None
    if reason.startswith(("an error was suppressed", "Dynamo decided to skip")):
        if inside_transform():
            event = Break(
                where,
                "called by a transform of torch.func",
                explanation="Dynamo compiles nothing that torch.func.grad, vmap and the like call",
                hints=("Compile the transformed function: compiled(torch.func.grad(f)).",),
                skips_frame=True,
            )
            return _Skip("skip", frame, event, answer)
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
            reason = "Attempt to trace generator"
        return skip("skip", reason.splitlines()[0])
    return None


def _cause(events: list[Break]) -> Break:
    """Return the break for which a frame was given up, not that Dynamo could not go on after it."""
    own = [event for event in events if event.reason != "Reconstruction failure"]
    return own[-1] if own else events[-1]


def _skip_answer() -> Any:
    from torch._dynamo.types import ConvertFrameReturn

    return ConvertFrameReturn(skip_reason="wrapper of a tagged function")
