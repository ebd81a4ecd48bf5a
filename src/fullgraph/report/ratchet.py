"""The ratchet: what is captured may get better, and not worse.

A baseline says, for each series of torch releases, function and mode, what was captured when it was
written. `compare` holds a record against it. Nothing here reads or writes a file.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.report.measures import (
    charged_sites,
    compiled_items,
    coverage_percent,
    is_whole,
    mode_label,
    place,
    torch_series,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from fullgraph.testing._records import BreakSite, FunctionRecord, Record

__all__ = ["Baseline", "Change", "Comparison", "Entry", "Kind", "compare", "entries_of", "updated"]

Key = tuple[str, str]
"""Function, as ``module:qualname``, and mode."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is captured of one function in one mode.

    A break is known by file, enclosing function and reason, not by its line: code that moves is not
    a change. Two breaks that only the line tells apart are counted.
    """

    whole: bool = False
    coverage: int = 100
    """Per cent of the calls with something to compile that ran a graph, rounded down."""
    recompiles: int = 0
    breaks: Mapping[str, int] = field(default_factory=dict)
    """Number of sites by ``file function: reason``."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """Entries by torch series ("2.14"), function and mode."""

    by_torch: Mapping[str, Mapping[Key, Entry]] = field(default_factory=dict)


class Kind(enum.StrEnum):
    """What has changed."""

    BREAK = "break"
    WHOLE = "whole"
    RECOMPILES = "recompiles"
    COVERAGE = "coverage"
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Change:
    """One difference of one function in one mode."""

    function: str
    mode: str
    kind: Kind
    worse: bool
    text: str
    """What changed, in a few words."""
    sites: tuple[BreakSite, ...] = ()
    """Where, for breaks that are in the record."""
    guards: tuple[str, ...] = ()
    """The failed guards, where there are more recompiles."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A record held against a baseline."""

    torch: str
    """Full version of torch."""
    changes: tuple[Change, ...] = ()
    compared: int = 0
    """Functions, in one mode each, that both have."""
    not_called: tuple[Key, ...] = ()
    """Entries of the baseline that the run, being a part of the suite, did not call."""
    known_torch: tuple[str, ...] = ()
    """Torch series that the baseline has, if it lacks this one; nothing was compared then."""
    missing_torch: bool = False

    @property
    def worse(self) -> tuple[Change, ...]:
        """What fails the run."""
        return tuple(change for change in self.changes if change.worse)

    @property
    def better(self) -> tuple[Change, ...]:
        """Improvements, and new functions that are whole."""
        return tuple(change for change in self.changes if not change.worse)

    @property
    def failed(self) -> bool:
        """Whether the run fails."""
        return self.missing_torch or bool(self.worse)


def break_key(site: BreakSite, root: str = "") -> str:
    """Return what a break is known by in a baseline."""
    return f"{place(site.file, root)} {site.function or '?'}: {' '.join(site.reason.split())}"


def entry_of(item: FunctionRecord, root: str = "") -> Entry:
    """Return what a baseline keeps of one record."""
    return Entry(
        whole=is_whole(item),
        coverage=coverage_percent(item),
        recompiles=item.recompiles,
        breaks=dict(sorted(Counter(break_key(s, root) for s in charged_sites(item)).items())),
    )


def entries_of(record: Record, root: str = "") -> dict[Key, Entry]:
    """Return what a baseline keeps of a record, by function and mode; eager calls are no news.

    Parameters
    ----------
    record : Record
        Of a run, workers merged.
    root : str, optional
        Folder of the project, from which file names are written.
    """
    found: dict[Key, Entry] = {}
    for item in compiled_items(record):
        key, entry = (item.name, mode_label(item)), entry_of(item, root)
        found[key] = _worst(found[key], entry) if key in found else entry
    return dict(sorted(found.items()))


def updated(baseline: Baseline, record: Record, *, root: str = "", complete: bool) -> Baseline:
    """Return the baseline with what `record` says of its torch; other series stay as they are.

    Parameters
    ----------
    baseline : Baseline
        The one to start from.
    record : Record
        Of a run.
    root : str, optional
        Folder of the project.
    complete : bool
        Whether the whole suite ran: then entries of functions that were not called are dropped, in
        the modes that the record has.

    Returns
    -------
    Baseline
        A new one; neither argument is changed.
    """
    series = torch_series(record.torch)
    found = entries_of(record, root)
    before = baseline.by_torch.get(series, {})
    modes = {mode for _, mode in found}
    kept = {key: entry for key, entry in before.items() if not complete or key[1] not in modes}
    merged = dict(sorted({**kept, **found}.items()))
    return Baseline(dict(sorted({**baseline.by_torch, series: merged}.items())))


def compare(baseline: Baseline, record: Record, *, root: str = "", complete: bool) -> Comparison:
    """Hold a record against a baseline.

    Worse, and failing, are: a break site more; a recompile more; coverage lost; no longer whole; a
    new function that is not whole; after a run of the whole suite, a function that no test calls
    any more. A torch series that the baseline lacks fails too: nothing would be held otherwise.

    Parameters
    ----------
    baseline : Baseline
        What was captured before.
    record : Record
        What is captured now.
    root : str, optional
        Folder of the project, from which file names are written.
    complete : bool
        Whether the whole suite ran.

    Returns
    -------
    Comparison
        What is worse and what is better, function by function.

    Examples
    --------
    >>> from fullgraph.testing import Record
    >>> compare(Baseline(), Record(torch="2.14.1"), complete=True).missing_torch
    True
    """
    series = torch_series(record.torch)
    before = baseline.by_torch.get(series)
    if before is None:
        return Comparison(record.torch, known_torch=tuple(baseline.by_torch), missing_torch=True)
    items = {(item.name, mode_label(item)): item for item in compiled_items(record)}
    now = entries_of(record, root)
    changes: list[Change] = []
    for key, entry in now.items():
        if key in before:
            changes += _changes(items[key], before[key], entry, root)
        else:
            changes.append(_new(items[key], entry))
    # of a mode that did not run, nothing is known
    missing = [key for key in before if key not in now and key[1] in {mode for _, mode in now}]
    if complete:
        changes += [
            Change(*key, Kind.GONE, True, "no test calls it compiled any more") for key in missing
        ]
    return Comparison(
        record.torch,
        tuple(sorted(changes, key=lambda change: (change.function, change.mode, change.kind))),
        compared=len(before.keys() & now.keys()),
        not_called=() if complete else tuple(missing),
    )


def _worst(one: Entry, two: Entry) -> Entry:
    """Return one entry for a function that was run on two backends."""
    names = sorted({*one.breaks, *two.breaks})
    return Entry(
        whole=one.whole and two.whole,
        coverage=min(one.coverage, two.coverage),
        recompiles=max(one.recompiles, two.recompiles),
        breaks={n: max(one.breaks.get(n, 0), two.breaks.get(n, 0)) for n in names},
    )


def _changes(item: FunctionRecord, before: Entry, now: Entry, root: str) -> Iterator[Change]:
    function, mode = item.name, mode_label(item)
    for name in sorted({*before.breaks, *now.breaks}):
        old, new = before.breaks.get(name, 0), now.breaks.get(name, 0)
        if old != new:
            sites = tuple(s for s in charged_sites(item) if break_key(s, root) == name)
            count = "" if max(old, new) == 1 else f" ({old} -> {new} sites)"
            yield Change(function, mode, Kind.BREAK, new > old, name + count, sites)
    if before.whole != now.whole:
        text = "is one whole graph" if now.whole else "is no longer one whole graph"
        sites = () if now.breaks else tuple(charged_sites(item))
        failed = _failures(item) if not (now.whole or now.breaks) else ""
        yield Change(function, mode, Kind.WHOLE, before.whole, text + failed, sites)
    if before.recompiles != now.recompiles:
        more = now.recompiles > before.recompiles
        guards = item.recompile_guards[-3:] if more else ()
        text = f"{before.recompiles} -> {now.recompiles}"
        yield Change(function, mode, Kind.RECOMPILES, more, text, guards=guards)
    if before.coverage != now.coverage:
        text = f"{before.coverage} % -> {now.coverage} %"
        yield Change(function, mode, Kind.COVERAGE, now.coverage < before.coverage, text)


def _new(item: FunctionRecord, entry: Entry) -> Change:
    function, mode = item.name, mode_label(item)
    if entry.whole or not (entry.breaks or item.failures or entry.coverage < 100):
        text = "one whole graph" if entry.whole else "nothing to compile in any call that returned"
        return Change(function, mode, Kind.NEW, False, text)
    sites = tuple(charged_sites(item))
    return Change(function, mode, Kind.NEW, True, "not one whole graph" + _failures(item), sites)


def _failures(item: FunctionRecord) -> str:
    reasons: Iterable[str] = item.failures
    first = next(iter(reasons), "")
    return f": {' '.join(first.split())}" if first else ""
