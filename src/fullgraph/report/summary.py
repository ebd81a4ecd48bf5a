"""From records to a summary: a pure function, and frozen data that any rendering can read."""

from __future__ import annotations

import os
import sysconfig
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.report.measures import charged_sites, is_whole, mode_label
from fullgraph.testing._modes import Mode
from fullgraph.testing._records import FunctionRecord, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fullgraph.testing._records import BreakSite, Record

__all__ = ["Bypass", "LimitPrice", "Row", "Site", "Summary", "TorchBugLine", "summarise"]


@dataclass(frozen=True, slots=True)
class Site:
    """A break site of one function, in words."""

    where: str
    reason: str
    calls: int
    skips_frame: bool
    only_raised: bool = False
    """Whether all of the calls raised, in eager code too."""


@dataclass(frozen=True, slots=True)
class Row:
    """One function in one mode."""

    function: str
    mode: str
    calls: int
    coverage: float
    """Share of calls that ran a graph."""
    whole: bool
    """Whether every call that did not raise was one whole graph, or needed none."""
    graphs: int
    """Graphs of all distinct specialisations."""
    recompiles: int
    seconds: float
    outcomes: Mapping[str, int]
    sites: tuple[Site, ...] = ()
    """Where it breaks, the site with most calls first; known torch bugs are not among them."""

    @property
    def first_reason(self) -> str:
        """``file:line: reason`` of the site with most calls, or nothing."""
        return f"{self.sites[0].where}: {self.sites[0].reason}" if self.sites else ""


@dataclass(frozen=True, slots=True)
class Bypass:
    """A tagged function that tests ran plainly instead of compiled."""

    function: str
    tests: int
    where: str
    """``file:line`` of one of the calls."""


@dataclass(frozen=True, slots=True)
class TorchBugLine:
    """A known bug of torch, and how many calls met it."""

    name: str
    calls: int
    functions: tuple[str, ...]
    where: str


@dataclass(frozen=True, slots=True)
class LimitPrice:
    """What the recompile limit has cost in coverage."""

    limit: int
    calls: int
    """Calls in compiled modes."""
    over: int
    """Those that ran no graph, since the limit was reached."""
    partly: int
    """Those that ran graphs, but some of their frames plainly."""
    worst: tuple[tuple[str, int, int], ...]
    """Function, calls over the limit, all its calls: the most affected ones."""


@dataclass(frozen=True, slots=True)
class Summary:
    """All that is worth saying about a run."""

    rows: tuple[Row, ...] = ()
    tests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Tests by mode and outcome."""
    unreached: tuple[str, ...] = ()
    """Tagged functions that no test called compiled."""
    bypassed: tuple[Bypass, ...] = ()
    became_whole: tuple[str, ...] = ()
    """Functions whose budget allows breaks, and that have none any more."""
    torch_bugs: tuple[TorchBugLine, ...] = ()
    limit: LimitPrice | None = None
    unused_budgets: tuple[str, ...] = ()
    lost_workers: tuple[str, ...] = ()
    torch: str = ""


def summarise(
    record: Record,
    *,
    limit: int,
    tagged: Iterable[str] = (),
    budgets: Mapping[str, tuple[float | None, float | None]] | None = None,
    bypassed: Mapping[str, Mapping[str, str]] | None = None,
    tests: Mapping[str, Mapping[str, int]] | None = None,
    unused_budgets: Iterable[str] = (),
    lost_workers: Iterable[str] = (),
) -> Summary:
    """Sum a run up.

    Parameters
    ----------
    record : Record
        The records of all functions, those of several processes merged.
    limit : int
        The recompile limit under which they were taken.
    tagged : iterable of str
        All tagged functions that tests could have called.
    budgets : mapping
        Graph breaks and recompiles that are allowed, by function; None: not limited.
    bypassed : mapping
        Function to tests that ran it only plainly, each with ``file:line`` of the call.
    tests : mapping
        Number of tests by mode and outcome.
    unused_budgets, lost_workers
        Handed on.
    """
    functions = sorted(record.functions, key=lambda item: item.key)
    called = {item.name for item in functions}
    return Summary(
        rows=tuple(_row(item) for item in functions),
        tests=tests or {},
        unreached=tuple(sorted(set(tagged) - called)),
        bypassed=tuple(
            Bypass(name, len(places), shorten(min(places.values())))
            for name, places in sorted((bypassed or {}).items())
            if places
        ),
        became_whole=tuple(_became_whole(functions, budgets or {})),
        torch_bugs=tuple(_torch_bugs(functions)),
        limit=_price(functions, limit),
        unused_budgets=tuple(sorted(unused_budgets)),
        lost_workers=tuple(sorted(lost_workers)),
        torch=record.torch,
    )


def _row(item: FunctionRecord) -> Row:
    sites = charged_sites(item)
    return Row(
        function=item.name,
        mode=mode_label(item),
        calls=item.total_calls,
        coverage=item.coverage,
        whole=is_whole(item),
        graphs=sum(made.graphs for made in item.specialisations),
        recompiles=item.recompiles,
        seconds=item.seconds or item.compile_seconds,
        outcomes={str(outcome): n for outcome, n in sorted(item.calls.items()) if n},
        sites=tuple(
            Site(shorten(site.where), site.reason, site.calls, site.skips_frame, site.only_raised)
            for site in sorted(sites, key=lambda site: (-site.calls, site))
        ),
    )


def _became_whole(
    functions: Iterable[FunctionRecord], budgets: Mapping[str, tuple[float | None, float | None]]
) -> list[str]:
    """Return functions that may break, and were whole in every call of every compiled mode."""
    by_name: dict[str, list[FunctionRecord]] = {}
    for item in functions:
        by_name.setdefault(item.name, []).append(item)
    return [
        name
        for name, items in by_name.items()
        if (budgets.get(name, (None, None))[0] or 0) > 0
        and all(is_whole(item) for item in items)
        and any(item.graphs_run for item in items)
    ]


def _torch_bugs(functions: Iterable[FunctionRecord]) -> list[TorchBugLine]:
    found: dict[str, list[tuple[str, BreakSite]]] = {}
    for item in functions:
        for site in item.breaks:
            if site.torch_bug is not None:
                found.setdefault(site.torch_bug, []).append((item.name, site))
    return [
        TorchBugLine(
            name,
            sum(site.calls for _, site in sites),
            tuple(sorted({function for function, _ in sites})),
            shorten(min(site.where for _, site in sites)),
        )
        for name, sites in sorted(found.items())
    ]


def _price(functions: Iterable[FunctionRecord], limit: int) -> LimitPrice | None:
    compiled = [
        item for item in functions if item.mode is not Mode.EAGER and item.backend != "user"
    ]
    if not compiled:
        return None
    over = [
        (item.name, item.calls[Outcome.OVER_LIMIT], item.total_calls)
        for item in compiled
        if item.calls.get(Outcome.OVER_LIMIT)
    ]
    total_over = sum(count for _, count, _ in over)
    return LimitPrice(
        limit=limit,
        calls=sum(item.total_calls for item in compiled),
        over=total_over,
        partly=max(0, sum(item.partly_over_limit for item in compiled) - total_over),
        worst=tuple(sorted(over, key=lambda entry: (-entry[1], entry[0]))[:3]),
    )


def shorten(where: str) -> str:
    """Return ``file:line`` from an import root, or from here, if it lies in one."""
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), os.getcwd()]
    for marker in ("/site-packages/", "\\site-packages\\"):
        if marker in where:
            return where.rpartition(marker)[2]
    for root in roots:
        if root and where.startswith(root + os.sep):
            return where[len(root) + 1 :]
    return where
