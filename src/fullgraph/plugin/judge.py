"""Whether a test has run what it calls compiled: the question behind ``--fg-require-compiled``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.testing._records import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fullgraph.testing._records import Record

__all__ = ["not_compiled"]

_NOTHING_RAN = (Outcome.FRAME_SKIPPED, Outcome.OVER_LIMIT, Outcome.FAILED)


def not_compiled(bypassed: Mapping[str, str], record: Record) -> str | None:
    """Return why a test has not run its tagged functions compiled, or None if it has.

    Parameters
    ----------
    bypassed : mapping
        Functions that ran, but only plainly, and the ``file:line`` that called each.
    record : Record
        What the compiled calls of the test came to.
    """
    lines = [
        f"  {name} was called plainly at {where}: "
        "call it by its name in the test module, or list its module in lazy_xp_modules"
        for name, where in sorted(bypassed.items())
    ]
    for item in record.functions:
        ran = {outcome: n for outcome, n in item.calls.items() if n}
        if ran and all(outcome in _NOTHING_RAN for outcome in ran):
            said = ", ".join(f"{outcome} {n}x" for outcome, n in sorted(ran.items()))
            first = f"; {item.breaks[0].where}: {item.breaks[0].reason}" if item.breaks else ""
            lines.append(f"  {item.name} ran no graph: {said}{first}")
    if not lines:
        return None
    return "tagged functions never ran compiled in this test:\n" + "\n".join(lines)
