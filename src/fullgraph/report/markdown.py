"""A record as Markdown, short enough for a step summary or a comment."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fullgraph.report.measures import (
    calls_to_compile,
    charged_sites,
    compiled_items,
    coverage_percent,
    mode_label,
    place,
    status,
    torch_bug_sites,
)
from fullgraph.report.ratchet_text import describe
from fullgraph.testing._advice import advice
from fullgraph.testing._records import merge_sites

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fullgraph.report.ratchet import Comparison
    from fullgraph.testing._records import FunctionRecord, Record

__all__ = ["render_markdown", "table"]

_MOST = 50
_ICONS = {"good": "🟢", "warn": "🟡", "bad": "🔴", "bug": "🟣", "none": "⚪"}
_ORDER = {"bad": 0, "warn": 1, "bug": 2, "none": 3, "good": 4}


_SPAN = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"[\\|<>*_\[\]]")


def render_markdown(
    record: Record,
    *,
    root: str = "",
    title: str = "fullgraph",
    comparison: Comparison | None = None,
    notes: Sequence[str] = (),
    most: int = _MOST,
) -> str:
    """Return a summary: totals, functions that are not whole, the sites, the bugs of torch.

    Parameters
    ----------
    record : Record
        What to show; eager calls are left out.
    root : str, optional
        Folder of the project, from which file names are written.
    title : str, optional
        Heading.
    comparison : Comparison, optional
        With a baseline; shown first.
    notes : sequence of str, optional
        Lines said under the heading.
    most : int, optional
        Longest table; what is left out is counted.

    Returns
    -------
    str
        GitHub-flavoured Markdown.
    """
    items = compiled_items(record)
    lines = [f"## {_text(title)}", ""]
    for note in notes:
        lines += [f"> {_text(note)}", ""]
    if comparison is not None:
        lines += ["```diff", *describe(comparison, root=root), "```", ""]
    lines += [*_totals(items, record.torch), ""]
    lines += _functions(items, most)
    lines += _sites(items, root, most)
    lines += _bugs(items, root)
    return "\n".join(lines).rstrip() + "\n"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the lines of a table; cells are Markdown already."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _totals(items: Sequence[FunctionRecord], torch: str) -> Iterator[str]:
    modes = list(dict.fromkeys(mode_label(item) for item in items))
    if not modes:
        yield f"No function was called in a compiled mode (torch {torch or 'unknown'})."
        return
    rows = []
    for mode in modes:
        found = [item for item in items if mode_label(item) == mode]
        rows.append(
            (
                mode,
                str(len(found)),
                str(sum(status(item).level == "good" for item in found)),
                str(len({site.key for item in found for site in charged_sites(item)})),
                str(sum(item.recompiles for item in found)),
                str(sum(item.total_calls for item in found)),
                f"{sum(item.seconds or item.compile_seconds for item in found):.1f}",
            )
        )
    headings = ("mode", "functions", "whole", "break sites", "recompiles", "calls", "seconds")
    yield from table(headings, rows)
    yield ""
    yield f"torch {torch or 'unknown'}"


def _functions(items: Sequence[FunctionRecord], most: int) -> Iterator[str]:
    shown = [item for item in items if status(item).level != "good"]
    if not shown:
        return
    shown.sort(key=lambda item: (_ORDER[status(item).level], item.name, item.mode))
    rows = [
        (
            _code(item.name),
            mode_label(item),
            f"{_ICONS[status(item).level]} {status(item).text}",
            str(item.total_calls),
            f"{coverage_percent(item)} %" if calls_to_compile(item) else "",
            str(item.recompiles),
        )
        for item in shown[:most]
    ]
    yield "### Not whole"
    yield ""
    yield from table(("function", "mode", "", "calls", "coverage", "recompiles"), rows)
    yield from _more(len(shown), most)
    yield ""


def _sites(items: Sequence[FunctionRecord], root: str, most: int) -> Iterator[str]:
    sites = merge_sites(site for item in items for site in charged_sites(item))
    if not sites:
        return
    ordered = sorted(sites, key=lambda site: (-site.calls, site))
    rows = [
        (
            _code(f"{place(site.file, root)}:{site.line}"),
            _text(site.reason),
            str(site.calls),
            _text(advice(site.reason, site.explanation) or ""),
        )
        for site in ordered[:most]
    ]
    yield "### Break sites"
    yield ""
    yield from table(("where", "reason", "calls", "instead"), rows)
    yield from _more(len(ordered), most)
    yield ""


def _bugs(items: Sequence[FunctionRecord], root: str) -> Iterator[str]:
    sites = merge_sites(site for item in items for site in torch_bug_sites(item))
    if not sites:
        return
    yield "### Known bugs of torch"
    yield ""
    for site in sites:
        where = _code(f"{place(site.file, root)}:{site.line}")
        yield f"- {_text(site.torch_bug or '')}, at {where}: {site.calls} calls"


def _more(count: int, most: int) -> Iterator[str]:
    if count > most:
        yield ""
        yield f"and {count - most} more"


def _text(text: str) -> str:
    """Return text that no Markdown or HTML is read out of; `code` stays."""
    parts = _SPAN.split(" ".join(text.split()))
    return "".join(
        part.replace("|", "\\|") if number % 2 else _SPECIAL.sub(r"\\\g<0>", part)
        for number, part in enumerate(parts)  # code spans are every second part
    )


def _code(text: str) -> str:
    return "`" + " ".join(text.split()).replace("`", "'").replace("|", "\\|") + "`"
