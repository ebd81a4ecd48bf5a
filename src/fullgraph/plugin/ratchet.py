"""What a run is held to and written as at its end: baseline, HTML report, GitHub annotations.

Loaded by a run that asks for one of them, with options that `fullgraph.plugin.options` declares.
"""

from __future__ import annotations

import linecache
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from fullgraph.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from fullgraph.plugin.session import RunSession
    from fullgraph.report.ratchet import Baseline, Comparison

__all__ = ["RatchetOptions", "RunRatchet"]

_PARTIAL = ("lf", "deselect", "ignore", "ignore_glob", "stepwise")
"""Options of pytest that leave tests out, beside those that `RunSession.whole_suite` knows."""


@dataclass(frozen=True, slots=True)
class RatchetOptions:
    """What a run asks for."""

    baseline: Path | None = None
    update: bool = False
    html: Path | None = None
    github: bool = False

    @classmethod
    def of(cls, config: pytest.Config) -> RatchetOptions:
        """Return the options of a run, paths resolved from where it started.

        Raises
        ------
        pytest.UsageError
            If options contradict each other, or a folder or the baseline is not there.
        """
        baseline, html = _path(config, "--fg-baseline"), _path(config, "--fg-html")
        update = config.getoption("--fg-update-baseline")
        if update and baseline is None:
            raise pytest.UsageError("--fg-update-baseline needs --fg-baseline=FILE: what to write")
        if baseline is not None and not update and not baseline.is_file():
            raise pytest.UsageError(
                f"--fg-baseline={baseline}: there is no such file; write it with "
                "--fg-update-baseline"
            )
        return cls(baseline, update, html, config.getoption("--fg-github"))


def _path(config: pytest.Config, option: str) -> Path | None:
    given = config.getoption(option)
    if given is None:
        return None
    path: Path = config.invocation_params.dir / os.path.expanduser(given)
    if not path.parent.is_dir():
        raise pytest.UsageError(f"{option}={given}: there is no folder {path.parent}")
    return path


class RunRatchet:
    """The end of one run, settled once: by the terminal summary, or when the session finishes."""

    def __init__(self, config: pytest.Config) -> None:
        self.options = RatchetOptions.of(config)
        self._root = str(config.rootpath)
        self._before = _read(self.options)
        self._settled = False
        self._comparison: Comparison | None = None
        self._lines: list[tuple[str, bool]] = []
        self.failed = False

    def settle(self, run: RunSession, exitstatus: int) -> None:
        """Compare, and write what is asked for."""
        if self._settled:
            return
        self._settled = True
        if self.options.baseline is not None:
            self._hold(run, exitstatus)
        if self.options.html is not None:
            from fullgraph.report.html import render_html

            text = render_html(run.ledger.record, root=self._root)
            self.options.html.write_text(text, encoding="utf-8")
            self._say(f"HTML report written to {self.options.html}")
        if self.options.github:
            self._for_github(run)

    def say(self, terminal: Any) -> None:
        """Write the lines about the baseline and the files."""
        for line, bad in self._lines:
            terminal.write_line(line, **({"red": True} if bad else {}))

    def _say(self, line: str, bad: bool = False) -> None:
        self._lines.append((line, bad))

    def _hold(self, run: RunSession, exitstatus: int) -> None:
        record = run.ledger.record
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._say("the run was not finished: it was not compared with the baseline", bad=True)
            return
        if run.lost_workers:
            self.failed = True
            self._say("records of crashed workers are missing: baseline not compared", bad=True)
            return
        if not any(item.mode != "eager" for item in record.functions):
            self.failed = True
            self._say(
                "nothing was recorded to hold against the baseline: choose compiled modes, "
                "--fg-modes=compile,fullgraph, and tests that call tagged functions",
                bad=True,
            )
            return
        self._compare(run, complete=_complete(run))

    def _compare(self, run: RunSession, *, complete: bool) -> None:
        from fullgraph.report.ratchet import compare, updated
        from fullgraph.report.ratchet_file import to_text

        assert self.options.baseline is not None, "asked before"
        record, path = run.ledger.record, self.options.baseline
        found = compare(self._before, record, root=self._root, complete=complete)
        self._comparison = found
        self._describe(found, verbose=run.config.getoption("verbose") > 0)
        if not self.options.update:
            self.failed = found.failed
            return
        after = updated(self._before, record, root=self._root, complete=complete)
        path.write_text(to_text(after), encoding="utf-8")
        what = "the whole suite" if complete else "the part of the suite that ran"
        self._say(f"baseline {path} updated from {what} (torch {record.torch})")

    def _describe(self, found: Comparison, *, verbose: bool) -> None:
        from fullgraph.report.ratchet_text import describe

        if found.missing_torch and self.options.update:
            return
        lines = describe(found, root=self._root, source=linecache.getline, every=verbose)
        for line in lines:
            self._say(line, bad=found.failed and (line.startswith("worse") or line is lines[-1]))

    def _for_github(self, run: RunSession) -> None:
        from fullgraph.report.github import workflow_commands
        from fullgraph.report.markdown import render_markdown

        record, root, found = run.ledger.record, self._root, self._comparison
        for line in workflow_commands(record, root=root, comparison=found):
            self._say(line)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(render_markdown(record, root=root, comparison=found))


def _read(options: RatchetOptions) -> Baseline:
    from fullgraph.report.ratchet import Baseline
    from fullgraph.report.ratchet_file import from_text

    path = options.baseline
    if path is None or not path.is_file():
        return Baseline()
    try:
        return from_text(path.read_text(encoding="utf-8"), str(path))
    except (UsageError, UnicodeDecodeError) as error:
        raise pytest.UsageError(str(error)) from None


def _complete(run: RunSession) -> bool:
    """Whether every test of the suite was meant to run, and none was left out half way."""
    get = run.config.getoption
    return run.whole_suite and not any(get(name, None) for name in (*_PARTIAL, "maxfail"))
