"""A record as one HTML file: no network, readable without JavaScript, light and dark.

The text is made by a pure function; reading source lines is a parameter of it.
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import linecache
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fullgraph.errors import MissingBackendError
from fullgraph.report.measures import (
    Status,
    calls_to_compile,
    charged_sites,
    compiled_items,
    coverage_percent,
    is_whole,
    mode_label,
    place,
    status,
    torch_bug_sites,
)
from fullgraph.testing._advice import advice
from fullgraph.testing._records import Outcome, merge_sites

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fullgraph.testing._records import BreakSite, FunctionRecord, Record

__all__ = ["render_html"]

_CONTEXT = 2
_MOST_GUARDS = 5
_MOST_NAMES = 12
_MODES = ("compile", "fullgraph", "own")


@dataclass(frozen=True, slots=True)
class ReasonView:
    """What torch says about a kind of break, once for all sites of it."""

    anchor: str
    reason: str
    explanation: str
    hints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SiteView:
    """A break site, once for all functions that run into it."""

    anchor: str
    where: str
    function: str
    reason: str
    said: str
    """Anchor of what torch says about it, or nothing."""
    callers: tuple[str, ...]
    instead: str
    skips_frame: bool
    torch_bug: str
    calls: int
    lines: tuple[tuple[int, str], ...]
    """Source around it, with line numbers; empty if the file cannot be read."""
    line: int
    users: tuple[str, ...]
    more_users: int


@dataclass(frozen=True, slots=True)
class ModeView:
    """One function in one mode."""

    mode: str
    status: Status
    rank: int
    """By which the column is sorted: the worst first."""
    outcomes: str


@dataclass(frozen=True, slots=True)
class FunctionView:
    """A row of the table."""

    name: str
    modes: tuple[ModeView | None, ...]
    """In the order of the table's columns."""
    breaks: tuple[tuple[str, str, str, str], ...]
    """Anchor, place, reason and line of source of each site, those with most calls first."""
    guards: tuple[str, ...]
    more_guards: int
    failures: tuple[str, ...]
    calls: int
    coverage: int | None
    """In the worst mode; None if no call had anything to compile."""
    sites: int
    recompiles: int
    seconds: float
    level: str


@dataclass(frozen=True, slots=True)
class ModuleView:
    """A row of the overview."""

    name: str
    cells: tuple[tuple[int, int, int] | None, ...]
    """For each mode: functions, whole ones, whole ones in per cent."""
    sites: int
    calls: int
    seconds: float


def render_html(
    record: Record,
    *,
    root: str = "",
    title: str = "fullgraph report",
    notes: Sequence[str] = (),
    source: Callable[[str, int], str] = linecache.getline,
) -> str:
    """Return the report as the text of one HTML file.

    Parameters
    ----------
    record : Record
        What to show; eager calls are left out.
    root : str, optional
        Folder of the project, from which file names are written.
    title : str, optional
        Heading, and title of the window.
    notes : sequence of str, optional
        Lines said above the table, e.g. that a run was interrupted.
    source : callable, optional
        Returns a line of source for a file and a line number, "" where there is none.

    Returns
    -------
    str
        One self-contained page: style, script and data are inside it.

    Raises
    ------
    MissingBackendError
        If jinja2 is not installed.
    """
    items = compiled_items(record)
    columns = tuple(mode for mode in _MODES if any(mode_label(item) == mode for item in items))
    reader = _Reader(root, source)
    sites = _site_views(items, reader)
    rows = _rows(items, columns, {key: view.anchor for key, view in sites.items()}, reader)
    context: dict[str, Any] = {
        "title": title,
        "torch": record.torch,
        "notes": notes,
        "columns": columns,
        "rows": rows,
        "modules": _modules(items, columns),
        "sites": [view for view in sites.values() if not view.torch_bug],
        "bugs": [view for view in sites.values() if view.torch_bug],
        "reasons": list(reader.reasons.values()),
        "unreached": record.unreached,
        "totals": _totals(items, rows, sites.values()),
    }
    return str(_template().render(**context))


class _Reader:
    """Where names of files, lines of source and what torch says come from."""

    def __init__(self, root: str, source: Callable[[str, int], str]) -> None:
        self._root, self._source = root, source
        self.reasons: dict[tuple[Any, ...], ReasonView] = {}

    def place(self, file: str) -> str:
        return place(file, self._root)

    def where(self, site: BreakSite) -> str:
        return f"{self.place(site.file)}:{site.line}"

    def line(self, site: BreakSite) -> str:
        return self._source(site.file, site.line).strip()

    def around(self, site: BreakSite) -> tuple[tuple[int, str], ...]:
        if not self.line(site):
            return ()
        numbers = range(max(1, site.line - _CONTEXT), site.line + _CONTEXT + 1)
        return tuple((n, self._source(site.file, n).rstrip("\n")) for n in numbers)

    def said(self, site: BreakSite) -> str:
        """Return the anchor of what torch says about a break of this kind."""
        if not (site.explanation or site.hints):
            return ""
        key = site.reason, site.explanation, site.hints
        if key not in self.reasons:
            anchor = f"r{len(self.reasons) + 1}"
            self.reasons[key] = ReasonView(anchor, *key)
        return self.reasons[key].anchor


def _template() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise MissingBackendError(
            "the HTML report needs jinja2, which is not installed: pip install 'fullgraph[report]'"
        ) from error
    folder = importlib.resources.files("fullgraph.report") / "templates"
    names = ("report.html", "report.css", "report.js")
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in names}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(texts),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["spans"] = lambda text: [
        (part, number % 2 == 1) for number, part in enumerate(text.split("`"))
    ]
    return environment.get_template("report.html")


Key = tuple[str, int, str]


def _key(site: BreakSite) -> Key:
    return site.key


def _shown(item: FunctionRecord) -> list[BreakSite]:
    return [*charged_sites(item), *torch_bug_sites(item)]


def _site_views(items: Iterable[FunctionRecord], reader: _Reader) -> dict[Key, SiteView]:
    """Return a view of each site, those with most calls first."""
    merged: dict[Key, BreakSite] = {}
    users: dict[Key, dict[str, None]] = {}
    calls: Counter[Key] = Counter()
    for item in items:
        for site in _shown(item):
            key = _key(site)
            merged.setdefault(key, site)
            calls[key] += site.calls
            users.setdefault(key, {})[item.name] = None
    ordered = sorted(merged, key=lambda key: (-calls[key], key[0], key[1], key[2]))
    return {
        key: _site_view(f"s{number}", merged[key], calls[key], list(users[key]), reader)
        for number, key in enumerate(ordered, 1)
    }


def _site_view(
    anchor: str, site: BreakSite, calls: int, users: list[str], reader: _Reader
) -> SiteView:
    return SiteView(
        anchor=anchor,
        where=reader.where(site),
        function=site.function,
        reason=site.reason,
        said=reader.said(site),
        callers=tuple(map(reader.place, site.callers)),
        instead=advice(site.reason, site.explanation, reader.line(site)) or "",
        skips_frame=site.skips_frame,
        torch_bug=site.torch_bug or "",
        calls=calls,
        lines=reader.around(site),
        line=site.line,
        users=tuple(users[:_MOST_NAMES]),
        more_users=max(0, len(users) - _MOST_NAMES),
    )


def _rows(
    items: Iterable[FunctionRecord],
    columns: tuple[str, ...],
    anchors: Mapping[Key, str],
    reader: _Reader,
) -> list[FunctionView]:
    by_name: dict[str, dict[str, FunctionRecord]] = {}
    for item in items:
        modes = by_name.setdefault(item.name, {})
        label = mode_label(item)
        if label in modes:  # two backends in one mode
            same = dataclasses.replace(item, mode=modes[label].mode, backend=modes[label].backend)
            modes[label] = modes[label].merge(same)
        else:
            modes[label] = item
    return [
        _row(name, [modes.get(column) for column in columns], anchors, reader)
        for name, modes in sorted(by_name.items())
    ]


_RANKS = {"bad": 0, "warn": 1, "bug": 2, "none": 3, "good": 4}


def _row(
    name: str,
    items: Sequence[FunctionRecord | None],
    anchors: Mapping[Key, str],
    reader: _Reader,
) -> FunctionView:
    present = [item for item in items if item is not None]
    views = tuple(None if item is None else _mode_view(item) for item in items)
    levels = [view.status.level for view in views if view is not None]
    breaks = merge_sites(site for item in present for site in _shown(item))
    guards = tuple(dict.fromkeys(g for item in present for g in item.recompile_guards))
    return FunctionView(
        name=name,
        modes=views,
        breaks=tuple(
            (anchors[_key(site)], reader.where(site), site.reason, reader.line(site))
            for site in sorted(breaks, key=lambda site: (-site.calls, site))
        ),
        guards=guards[:_MOST_GUARDS],
        more_guards=max(0, len(guards) - _MOST_GUARDS),
        failures=tuple(dict.fromkeys(reason for item in present for reason in item.failures)),
        calls=sum(item.total_calls for item in present),
        coverage=min(
            (coverage_percent(item) for item in present if calls_to_compile(item)), default=None
        ),
        sites=sum(site.torch_bug is None for site in breaks),
        recompiles=sum(item.recompiles for item in present),
        seconds=sum(item.seconds or item.compile_seconds for item in present),
        level=min(levels, key=lambda level: _RANKS[level]),
    )


def _mode_view(item: FunctionRecord) -> ModeView:
    known = status(item)
    return ModeView(
        mode=mode_label(item),
        status=known,
        rank=1000 * _RANKS[known.level] - len(charged_sites(item)),
        outcomes=", ".join(f"{outcome} {n}" for outcome, n in sorted(item.calls.items()) if n),
    )


def _modules(items: Iterable[FunctionRecord], columns: tuple[str, ...]) -> list[ModuleView]:
    by_module: dict[str, list[FunctionRecord]] = {}
    for item in items:
        by_module.setdefault(item.name.partition(":")[0], []).append(item)
    views = []
    for name, members in sorted(by_module.items()):
        cells: list[tuple[int, int, int] | None] = []
        for column in columns:
            found = [item for item in members if mode_label(item) == column]
            whole = sum(map(is_whole, found))
            cells.append((len(found), whole, 100 * whole // len(found)) if found else None)
        views.append(
            ModuleView(
                name,
                tuple(cells),
                len({site.key for item in members for site in charged_sites(item)}),
                sum(item.total_calls for item in members),
                sum(item.seconds or item.compile_seconds for item in members),
            )
        )
    return views


def _totals(
    items: Sequence[FunctionRecord], rows: Sequence[FunctionView], sites: Iterable[SiteView]
) -> dict[str, Any]:
    calls = sum(item.total_calls for item in items)
    ran = sum(item.calls.get(Outcome.GRAPH_RAN, 0) for item in items)
    return {
        "functions": len(rows),
        "whole": sum(all(v is None or v.status.level == "good" for v in r.modes) for r in rows),
        "sites": sum(not site.torch_bug for site in sites),
        "calls": calls,
        "coverage": 100 * ran // calls if calls else 0,
        "recompiles": sum(item.recompiles for item in items),
        "seconds": sum(item.seconds or item.compile_seconds for item in items),
    }
