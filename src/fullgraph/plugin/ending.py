"""The end of a run: the summary on the terminal, and the report file."""

from __future__ import annotations

import importlib.metadata
import json
import platform
from typing import TYPE_CHECKING, Any

from fullgraph.report.summary import Summary, summarise
from fullgraph.report.terminal import render

if TYPE_CHECKING:
    from fullgraph.plugin.session import RunSession

__all__ = ["say_summary", "summary_of", "write_report"]

_LOG_WIDTH = 160


def summary_of(session: RunSession) -> Summary:
    """Sum the run of `session` up."""
    ledger = session.ledger
    return summarise(
        ledger.record,
        limit=session.options.recompile_limit,
        tagged=ledger.tagged,
        budgets=ledger.budgets,
        bypassed=ledger.bypassed,
        tests={mode: dict(counts) for mode, counts in session.outcomes.items()},
        # a run of a part of the suite says nothing about the budgets of the rest
        unused_budgets=session.budgets.unused(ledger.tagged) if session.whole_suite else (),
        lost_workers=session.lost_workers,
    )


def say_summary(session: RunSession, terminal: Any) -> None:
    """Write the summary."""
    summary = summary_of(session)
    if not summary.rows and not summary.tests:
        return
    terminal.section("fullgraph", sep="=", bold=True)
    for line in render(summary, verbosity=terminal.verbosity, width=_width(terminal)):
        terminal.write_line(line.text, **dict.fromkeys(line.markup, True))
    if session.options.report is not None:
        terminal.write_line(f"fullgraph: report written to {session.options.report}")


def _width(terminal: Any) -> int:
    """Return the width of a terminal; a log file has none, and cuts no names."""
    if not getattr(terminal, "isatty", False):
        return _LOG_WIDTH
    return int(getattr(getattr(terminal, "_tw", None), "fullwidth", _LOG_WIDTH))


def write_report(session: RunSession) -> None:
    """Write the report file: a record that `Record.from_json` reads, and the run's own data."""
    path = session.options.report
    if path is None:
        return
    ledger, options = session.ledger, session.options
    data = json.loads(ledger.record.to_json())
    data["run"] = {
        "versions": {
            "python": platform.python_version(),
            "fullgraph": importlib.metadata.version("fullgraph"),
            "torch": ledger.record.torch,
        },
        "modes": list(options.modes),
        "backend": options.backend,
        "recompile_limit": options.recompile_limit,
        "dynamic": options.dynamic,
        "strict": options.strict,
        "compare": options.compare,
        "tests": {mode: dict(sorted(counts.items())) for mode, counts in session.outcomes.items()},
        "tagged": sorted(ledger.tagged),
        "bypassed": ledger.bypassed,
        "budgets": {
            name: {"graph_breaks": _finite(breaks), "recompiles": _finite(recompiles)}
            for name, (breaks, recompiles) in sorted(ledger.budgets.items())
        },
        "became_whole": list(summary_of(session).became_whole),
        "lost_workers": session.lost_workers,
    }
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _finite(allowed: float | None) -> bool | int | None:
    """Return an allowance as it is written in a budget."""
    if allowed is None:
        return None
    return True if allowed == float("inf") else int(allowed)
