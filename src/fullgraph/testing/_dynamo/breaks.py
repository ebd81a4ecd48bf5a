"""What Dynamo says about a graph break, as data: where, why, and what torch advises."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MESSAGE = re.compile(
    r"\AGraph break (?:\(user stack suppressed[^)]*\) )?in user code at "
    r"(?P<file>.+?):(?P<line>\d+)\n"
    r"Graph Break Reason: (?P<reason>.*?)"
    r"(?:\n\nUser code traceback:\n(?P<stack>.*))?\Z",
    re.DOTALL,
)
_FRAME_LINE = re.compile(r'^ +File "(?P<file>.+?)", line (?P<line>\d+), in (?P<name>.+)$', re.M)
_PREFACE = re.compile(
    r"\A(?:Encountered graph break when attempting to trace [^\n]*"
    r"|Failed to handle graph break gracefully\. [^\n]*"
    r"|\*\*\* While handling this graph break[^\n]*)\n+"
)
_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SKIPPING = "Skipping the function"
_HINT = re.compile(r"^  Hint: (.*(?:\n    .*)*)", re.M)
_EXPLANATION = re.compile(r"^  Explanation: (.*(?:\n    .*)*)", re.M)
_RESUME = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_\d+$")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of user code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Break:
    """One graph break as Dynamo reported it while compiling."""

    where: Location
    reason: str
    explanation: str = ""
    hints: tuple[str, ...] = ()
    callers: tuple[Location, ...] = ()
    """The captured lines that lead there, outermost first."""
    skips_frame: bool = False


def function_name(name: str) -> str:
    """Return the name of the function that a frame belongs to, for resume functions its origin."""
    while match := _RESUME.match(name):
        name = match["name"]
    return name


def parse_reason(text: str) -> tuple[str, str, tuple[str, ...], bool]:
    """Split Dynamo's message into reason, explanation, hints, and whether the frame is skipped."""
    skips = _SKIPPING in text
    text = text.strip()
    while match := _PREFACE.match(text):
        text = text[match.end() :]
    explanation = _EXPLANATION.search(text)
    hints = tuple(_one_line(hint) for hint in _HINT.findall(text))
    lines = text.splitlines() or ["unknown"]
    reason = lines[0].strip()
    if reason.endswith(":") and len(lines) > 1:  # a backend's: "... raised:", and what
        reason = f"{reason} {lines[1].strip()}"
    return reason, _one_line(explanation[1]) if explanation else "", hints, skips


def parse_message(text: str) -> Break | None:
    """Parse a record of torch's ``graph_breaks`` log; None if it is something else."""
    match = _MESSAGE.match(text)
    if match is None:
        return None
    reason, explanation, hints, skips = parse_reason(match["reason"])
    stack = parse_stack(match["stack"] or "")
    own = user_stack(stack)
    stated = Location(match["file"], int(match["line"]), "")
    where = own[-1] if own else stack[-1] if stack else stated
    return Break(where, reason, explanation, hints, own[:-1], skips)


def parse_stack(text: str) -> tuple[Location, ...]:
    """Return the lines of a formatted traceback, outermost first."""
    return tuple(
        Location(line["file"], int(line["line"]), function_name(line["name"]))
        for line in _FRAME_LINE.finditer(text)
    )


def user_stack(stack: Sequence[Location]) -> tuple[Location, ...]:
    """Return the captured lines of user code that lead to the innermost one, outermost first.

    Torch polyfills some of Python's builtins, so that its own lines may come below the user's; what
    is above the last line of torch or of ours belongs to the program that made the call. Empty if
    nothing but torch's or our lines was captured.
    """
    end = len(stack)
    while end and is_machinery(stack[end - 1].file):
        if stack[end - 1].file.startswith(_OWN + os.sep) or _is_entry(stack[end - 1].file):
            return ()
        end -= 1
    start = end
    while start and not is_machinery(stack[start - 1].file):
        start -= 1
    return tuple(stack[start:end])


def is_own(file: str) -> bool:
    """Whether a file belongs to `fullgraph.testing`."""
    return file.startswith(_OWN + os.sep)


def is_machinery(file: str) -> bool:
    """Whether a file belongs to torch (not, say, ``array_api_compat/torch``) or to fullgraph."""
    if is_own(file):
        return True
    torch = sys.modules.get("torch")
    home = os.path.dirname(torch.__file__ or "") if torch is not None else ""
    return bool(home) and file.startswith(home + os.sep)


def _is_entry(file: str) -> bool:
    """Whether a file is where calls of compiled functions come in."""
    return file.endswith(os.path.join("torch", "_dynamo", "eval_frame.py"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
