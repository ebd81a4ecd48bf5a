"""A comparison with a baseline as text: what, where, under which torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.report.measures import place, torch_series
from fullgraph.report.ratchet import Kind
from fullgraph.testing._advice import advice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fullgraph.report.ratchet import Change, Comparison
    from fullgraph.testing._records import BreakSite

__all__ = ["describe", "verdict"]

_MOST_BETTER = 10
_MOST_SITES = 5


def no_source(_file: str, _line: int) -> str:
    """Return no line of source."""
    return ""


def describe(
    comparison: Comparison,
    *,
    root: str = "",
    source: Callable[[str, int], str] = no_source,
    every: bool = False,
) -> list[str]:
    """Return the lines of a readable diff; the last one is the verdict.

    Parameters
    ----------
    comparison : Comparison
        What to describe.
    root : str, optional
        Folder from which file names are written.
    source : callable, optional
        Returns a line of source for a file and a number, e.g. ``linecache.getline``.
    every : bool, optional
        Whether all improvements are listed, not only the first ten.
    """
    lines: list[str] = []
    if comparison.worse:
        lines.append(f"worse than the baseline (torch {comparison.torch}):")
        lines += _by_function(comparison.worse, root, source)
    better = comparison.better if every else comparison.better[:_MOST_BETTER]
    if better:
        lines.append(f"better than the baseline (torch {comparison.torch}):")
        lines += _by_function(better, root, source)
        if rest := len(comparison.better) - len(better):
            lines.append(f"  ... and {rest} more")
    return [*lines, verdict(comparison)]


def verdict(comparison: Comparison) -> str:
    """Return one line that says how a comparison went."""
    if comparison.missing_torch:
        series = torch_series(comparison.torch)
        have = ", ".join(comparison.known_torch) or "no torch at all"
        return (
            f"the baseline has no entries for torch {series}, only for {have}: nothing was "
            "compared; add them with --fg-update-baseline under this torch"
        )
    parts = [
        f"{comparison.compared} compared",
        f"{len({(c.function, c.mode) for c in comparison.worse})} worse",
        f"{len({(c.function, c.mode) for c in comparison.better})} better",
    ]
    if comparison.not_called:
        parts.append(f"{len(comparison.not_called)} not called in this part of the suite")
    return f"baseline, functions by mode: {', '.join(parts)} (torch {comparison.torch})"


def _by_function(
    changes: Iterable[Change], root: str, source: Callable[[str, int], str]
) -> Iterator[str]:
    last = None
    for change in changes:
        if (change.function, change.mode) != last:
            last = change.function, change.mode
            yield f"  {change.function} ({change.mode})"
        yield f"    {_sign(change)} {change.kind}: {change.text}"
        for site in change.sites[:_MOST_SITES]:
            yield from _site(site, change.worse, root, source)
        if len(change.sites) > _MOST_SITES:
            yield f"        ... and {len(change.sites) - _MOST_SITES} more sites"
        for guard in change.guards:
            yield f"        failed guard: {_short(guard)}"


def _sign(change: Change) -> str:
    if change.kind is Kind.BREAK:
        return "+" if change.worse else "-"
    return "!" if change.worse else "*"


def _site(
    site: BreakSite, worse: bool, root: str, source: Callable[[str, int], str]
) -> Iterator[str]:
    text = source(site.file, site.line).strip()
    yield f"        {place(site.file, root)}:{site.line}" + (f"  {text}" if text else "")
    what = advice(site.reason, site.explanation)
    if worse and what:
        yield f"        instead: {what}"


def _short(text: str, most: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 3] + "..."
