"""The summary on a terminal: lines of text, with pytest's own colours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fullgraph.report.summary import LimitPrice, Row, Summary

__all__ = ["HEADINGS", "Line", "price_in_words", "render"]

HEADINGS = ("function", "mode", "calls", "coverage", "graphs", "sites", "recompiles", "seconds")
_NARROW = ("function", "mode", "calls", "cover", "graphs", "sites", "again", "s")
"""The same, where a terminal leaves names fewer columns than `_ENOUGH`."""
_ENOUGH = 32
_MOST_NAMES = 10


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text, and how it is marked where the terminal can."""

    text: str
    markup: tuple[str, ...] = ()
    """Names of pytest's own markup: ``"green"``, ``"bold"``."""


def render(summary: Summary, *, verbosity: int = 0, width: int = 100) -> list[Line]:
    """Return the lines of the summary.

    Parameters
    ----------
    summary : Summary
        What to say.
    verbosity : int, optional
        Below -1 the totals and what needs attention; from there on a row for each function and
        mode with its first reason; above 0 every site, every name and what the calls came to.
    width : int, optional
        Longest line of the table.
    """
    lines: list[Line] = []
    if verbosity > -2:
        lines += _table(summary.rows, verbosity, width)
    return [*lines, *(Line(text) for text in notes(summary, verbosity=verbosity))]


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.function,
        row.mode,
        str(row.calls),
        _percent(row.coverage),
        str(row.graphs),
        str(len(row.sites)) if row.sites else "whole" if row.whole else "0",
        str(row.recompiles),
        f"{row.seconds:.1f}",
    )


def _below(row: Row, verbosity: int) -> Iterator[str]:
    """Give the lines below a row: reasons, and with -v what the calls came to."""
    if verbosity > 0:
        yield "    " + ", ".join(f"{outcome} {n}" for outcome, n in row.outcomes.items())
    for site in row.sites if verbosity > 0 else row.sites[:1]:
        marks = ", whole frame skipped" if site.skips_frame else ""
        if site.only_raised:
            marks += ", which raised" if site.calls == 1 else ", all of which raised"
        yield f"    {site.where}: {site.reason} ({_count(site.calls, 'call')}{marks})"


def _table(rows: Sequence[Row], verbosity: int, width: int) -> Iterator[Line]:
    if not rows:
        return
    numbers = [_cells(row) for row in rows]
    widths, name_width = _widths([HEADINGS, *numbers], width)
    cells = [HEADINGS, *numbers]
    if name_width < min(widths[0], _ENOUGH):
        cells = [_NARROW, *numbers]
        widths, name_width = _widths(cells, width)
    for number, line in enumerate(cells):
        name = _fitted(line[0], name_width)
        rest = [
            cell.ljust(size) if i == 1 else cell.rjust(size)
            for i, (cell, size) in enumerate(zip(line[1:], widths[1:], strict=True), 1)
        ]
        text = "  ".join([name.ljust(name_width), *rest]).rstrip()
        if number == 0:
            yield Line(text, ("bold",))
            continue
        row = rows[number - 1]
        colour = "green" if row.whole else "yellow" if row.coverage else "red"
        yield Line(text, (colour,))
        yield from (Line(below[:width], ("light",)) for below in _below(row, verbosity))


def _widths(cells: Sequence[tuple[str, ...]], width: int) -> tuple[list[int], int]:
    """Return the width of each column, and what a line of `width` leaves for the first."""
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEADINGS))]
    return widths, max(12, min(widths[0], width - sum(widths[1:]) - 2 * (len(widths) - 1)))


def _fitted(name: str, width: int) -> str:
    """Return a name without the outer packages, where it is too long for its column."""
    rest = name
    while len(rest) > width - (3 if rest != name else 0):
        _, dot, inner = rest.partition(".")
        if not dot or ":" in rest.partition(".")[0]:  # only the function is left: its end
            return "..." + name[3 - width :]
        rest = inner
    return name if rest == name else f"...{rest}"


def notes(summary: Summary, *, verbosity: int = 0) -> Iterator[str]:
    """Give what is said below the table."""
    yield from _totals(summary)
    limit = summary.limit
    if verbosity >= 0 or (limit is not None and limit.over + limit.partly):
        yield from price_in_words(summary.limit)
    yield from _named("tagged, but never called compiled by any test", summary.unreached, verbosity)
    if summary.bypassed:
        yield "called plainly, past their compiled form:"
        for entry in summary.bypassed if verbosity > 0 else summary.bypassed[:_MOST_NAMES]:
            yield f"  {entry.function} in {_count(entry.tests, 'test')}, at {entry.where}"
        yield from _more(len(summary.bypassed), verbosity)
    for bug in summary.torch_bugs:
        yield (
            f"known torch bug {bug.name}: {_count(bug.calls, 'call')} of "
            f"{_count(len(bug.functions), 'function')}, at {bug.where} (torch {summary.torch})"
        )
    yield from _named(
        "became whole: their budget allows breaks that they no longer have",
        summary.became_whole,
        verbosity,
    )
    yield from _named("budgets that fit no tagged function", summary.unused_budgets, verbosity)
    if summary.lost_workers:
        yield f"no records from workers that crashed: {', '.join(summary.lost_workers)}"


def _totals(summary: Summary) -> Iterator[str]:
    """Give a line for each mode: tests, calls, coverage, whole functions, time."""
    modes = list(dict.fromkeys([*summary.tests, *(row.mode for row in summary.rows)]))
    for mode in modes:
        parts = []
        if counts := summary.tests.get(mode):
            parts.append(", ".join(f"{n} {outcome}" for outcome, n in sorted(counts.items())))
        rows = [row for row in summary.rows if row.mode == mode]
        if rows:
            calls = sum(row.calls for row in rows)
            covered = sum(row.coverage * row.calls for row in rows) / max(1, calls)
            parts.append(
                f"{_count(calls, 'call')} of {_count(len(rows), 'function')}, "
                f"{_percent(covered)} ran a graph, "
                f"{sum(row.whole for row in rows)} whole, "
                f"{_count(sum(row.graphs for row in rows), 'graph')}, "
                f"{_count(sum(row.recompiles for row in rows), 'recompile')}, "
                f"{sum(row.seconds for row in rows):.1f} s"
            )
        yield f"{mode}: {'; '.join(parts)}"


def price_in_words(price: LimitPrice | None) -> Iterator[str]:
    """Say what the recompile limit has bought and cost."""
    if price is None or not price.calls:
        return
    if not price.over and not price.partly:
        yield f"recompile limit {price.limit}: no call was over it"
        return
    if not price.over:
        yield (
            f"recompile limit {price.limit}: {price.partly} of {_count(price.calls, 'call')} "
            f"({_percent(price.partly / price.calls)}) ran some of their frames eagerly, because "
            "these had more specialisations than that"
        )
        yield "  a higher --fg-recompile-limit tests them too, and takes longer"
        return
    text = (
        f"recompile limit {price.limit}: {price.over} of {_count(price.calls, 'call')} "
        f"({_percent(price.over / price.calls)}) ran no graph, because their function had more "
        "specialisations than that, and tested nothing but eager code"
    )
    if price.partly:
        text += f"; {price.partly} more ran some of their frames so"
    yield text
    for name, over, calls in price.worst:
        yield f"  {name}: {over} of {_count(calls, 'call')}"
    yield "  a higher --fg-recompile-limit tests them too, and takes longer"


def _named(what: str, names: Sequence[str], verbosity: int) -> Iterator[str]:
    if not names:
        return
    yield f"{what} ({len(names)}):"
    yield from (f"  {name}" for name in (names if verbosity > 0 else names[:_MOST_NAMES]))
    yield from _more(len(names), verbosity)


def _more(count: int, verbosity: int) -> Iterator[str]:
    if count > _MOST_NAMES and verbosity <= 0:
        yield f"  ... and {count - _MOST_NAMES} more (-v)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _percent(share: float) -> str:
    """Return a share in per cent; 100 % and 0 % are said only of all and of nothing."""
    whole = math.floor(100 * share) if share > 0.5 else math.ceil(100 * share)
    return f"{whole} %"
