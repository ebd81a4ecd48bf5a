"""Tell an exception of the user's program from one of Dynamo's or of a backend's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fullgraph.testing._dynamo.breaks import (
    Break,
    Location,
    function_name,
    parse_reason,
    parse_stack,
    user_stack,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType


def is_compile_failure(error: BaseException) -> bool:
    """Whether `error` arose while torch traced or compiled, and not in running code.

    True for Dynamo's own exceptions and for any other that passed through its frame conversion (an
    AssertionError inside the tracer, say). An exception that the user's code raised while it ran
    between two graphs has no such frame in its traceback.
    """
    from torch._dynamo.exc import TorchDynamoException

    if isinstance(error, TorchDynamoException):
        return True
    files = [file for file, _, _ in _frames(error.__traceback__)]
    if files and files[-1].endswith(os.path.join("torch", "_dynamo", "eval_frame.py")):
        return True  # raised by torch.compile's own wrapper: no frame was compiled, say
    ending = os.path.join("torch", "_dynamo", "convert_frame.py")
    return any(file.endswith(ending) for file in files)


def break_of(error: BaseException) -> Break:
    """Return the graph break or failure that `error` reports, at the deepest user line."""
    text = str(getattr(error, "msg", None) or error)
    reason, explanation, hints, _ = parse_reason(text)
    unsupported = type(error).__name__ in ("Unsupported", "UserError")
    if not unsupported:
        reason = f"{type(error).__name__}: {reason}"
    stack = tuple(
        Location(frame.filename, frame.lineno or 0, function_name(frame.name))
        for frame in getattr(error, "real_stack", None) or ()
    )
    stack = stack or parse_stack(str(error))
    if not stack:
        stack = tuple(Location(*frame) for frame in _frames(error.__traceback__))
    own = user_stack(stack)
    where = own[-1] if own else stack[-1] if stack else Location("?", 0, "")
    return Break(where, reason, explanation, hints, own[:-1], skips_frame=not unsupported)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while traceback is not None:
        code = traceback.tb_frame.f_code
        yield code.co_filename, traceback.tb_lineno, code.co_name
        traceback = traceback.tb_next
