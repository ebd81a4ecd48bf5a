"""The texts of failing calls: which function, where, why, what torch advises, what to do."""

from __future__ import annotations

import linecache
import math
from typing import TYPE_CHECKING

from fullgraph.testing._advice import advice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.testing._records import BreakSite

__all__ = [
    "describe_site",
    "graph_break_message",
    "graph_raised_message",
    "not_whole_message",
    "recompile_message",
    "torch_bug_message",
]

_MOST_SITES = 8


def describe_site(site: BreakSite) -> str:
    """Return a few indented lines about one site: what to write instead comes first."""
    lines = [f"  {site.where} in {site.function or '?'}: {site.reason}"]
    source = linecache.getline(site.file, site.line).strip()
    if source:
        lines.append(f"    | {source}")
    if what := advice(site.reason, site.explanation, source):
        lines.append(f"    instead: {what}")
    if site.skips_frame:
        lines.append("    the whole function runs eagerly here, not only this line")
    if site.callers:
        lines.append(f"    called from: {' > '.join(site.callers)}")
    if site.explanation:
        lines.append(f"    torch: {site.explanation}")
    lines += [f"    hint: {hint}" for hint in site.hints[:2]]
    return "\n".join(lines)


def _sites(sites: Sequence[BreakSite]) -> str:
    text = "\n".join(describe_site(site) for site in sites[:_MOST_SITES])
    more = len(sites) - _MOST_SITES
    return text + (f"\n  ... and {more} more" if more > 0 else "")


def _lines(sites: Sequence[BreakSite]) -> str:
    return "this line" if len(sites) == 1 else "these lines"


def _places(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


def graph_break_message(
    name: str,
    sites: Sequence[BreakSite],
    budget: float,
    argument: str = "allow_graph_breaks",
) -> str:
    """Return the message of a `GraphBreakError`."""
    allowed = "none is allowed" if budget == 0 else f"{int(budget)} allowed"
    skipped = any(site.skips_frame for site in sites)
    raise_to = "True" if skipped or not sites else str(len(sites))
    return (
        f"{name} breaks the graph at {_places(len(sites))}, {allowed}:\n{_sites(sites)}\n"
        f"Rewrite {_lines(sites)}, or allow it: {argument}={raise_to}"
        + (" (a function given up exceeds every finite budget)" if skipped else "")
    )


def not_whole_message(
    name: str, sites: Sequence[BreakSite], argument: str = "allow_graph_breaks"
) -> str:
    """Return the message of a `FullGraphError`."""
    return (
        f"{name} is not one whole graph:\n{_sites(sites)}\n"
        f"Rewrite {_lines(sites)}, or allow breaks: mode 'compile' and {argument}=True, "
        "which lists every site, not only the first"
    )


def graph_raised_message(name: str, what: str) -> str:
    """Return the message of a `MismatchError` for what only compiled code raises."""
    return (
        f"{name}: eager code returns, compiled code raises {what}\n"
        "A graph runs outside of the `try` that surrounds its operators in the source: check the "
        "inputs before the operator, instead of catching what it raises"
    )


def recompile_message(
    name: str,
    count: int,
    budget: float,
    guards: Sequence[str],
    argument: str = "allow_recompiles",
) -> str:
    """Return the message of a `RecompileError`."""
    assert not math.isinf(budget), "an infinite budget cannot be exceeded"
    listed = "\n".join(f"  {guard}" for guard in guards[-_MOST_SITES:]) or "  (no guard reported)"
    allowed = "none is allowed" if budget == 0 else f"{int(budget)} allowed"
    return (
        f"{name} was compiled again {count} time{'s' * (count != 1)}, {allowed}; failed guards:\n"
        f"{listed}\nMake what varies a tensor, or allow it: {argument}={count}"
    )


def torch_bug_message(name: str, sites: Sequence[BreakSite]) -> str:
    """Return the message of a `TorchBugError`."""
    bugs = ", ".join(sorted({str(site.torch_bug) for site in sites}))
    return (
        f"{name} meets a known bug of torch ({bugs}):\n{_sites(sites)}\n"
        "Work around it in this line, use a torch without the bug, "
        "or let it pass: --fg-torch-bugs=pass"
    )
