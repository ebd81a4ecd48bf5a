"""How an explanation of a loop reads in a terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fullgraph.torch_loop._explain import LoopExplanation

__all__ = ["as_text"]

_PREFIX: Final = "the body cannot become a native loop: "
_LABEL: Final = 13  # columns of a label


def as_text(told: LoopExplanation) -> str:
    """Return the explanation: a summary, then the step one value a line, then the C file."""
    width = max(60, min(shutil.get_terminal_size((100, 24)).columns, 120))
    if told.refused:
        return _refusal(told, width)
    lanes = f"{told.lanes} lanes in blocks of {told.block}" if told.lanes else "no lanes"
    form = "scalar statements" if told.written_out else "loops over arrays"
    found = "from the cache" if told.cache_hit else "built"
    rows = {
        "operations": ", ".join(f"{n} x {name}" for name, n in (told.operations or {}).items()),
        "time": f"capture {told.capture_seconds:.2f} s, build {told.build_seconds:.2f} s ({found})",
        "compiler": told.compiler,
        "flags": " ".join(told.flags),
        "library": told.library,
    }
    lines = [f"compiled: {lanes}, each step as {form}"]
    lines += [_row(label, text or "none", width) for label, text in rows.items()]
    step = textwrap.indent(told.captured, "  ")
    return "\n".join([*lines, "", step, "", told.c_text, *_gradient(told)])


def _gradient(told: LoopExplanation) -> list[str]:
    if not told.backward:
        return []
    lanes = f"{told.backward_lanes} lanes" if told.backward_lanes else "no lanes"
    rows = f"the carry every {told.segment} steps" if told.segment else "every step"
    return [
        f"gradient: {told.saved_bytes} bytes saved, {rows}; {lanes} in the backward loop",
        "",
        textwrap.indent(told.backward, "  "),
        "",
        told.backward_c_text,
    ]


def _row(label: str, text: str, width: int) -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=f"  {label}".ljust(_LABEL),
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _refusal(told: LoopExplanation, width: int) -> str:
    """Return what is refused, the line, and what to write instead, each once."""
    reason = told.refused.removeprefix(_PREFIX)
    if told.line and f" at {told.line}" in reason:
        what, _, advice = reason.partition(f" at {told.line}")
    else:
        what, advice = told.operation, reason.removeprefix(told.operation)
    lines = [f"refused: {what}"]
    if told.line:
        lines.append(f"  at {told.line}")
    advice = advice.removeprefix(".").strip()
    if advice:
        lines.append(textwrap.fill(advice, width, initial_indent="  ", subsequent_indent="  "))
    return "\n".join(lines)
