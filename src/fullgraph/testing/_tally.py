"""Fold finished calls into function records; send each to whoever is recording."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.testing._records import (
    BreakSite,
    FunctionRecord,
    Outcome,
    Record,
    Specialisation,
    merge_sites,
)

if TYPE_CHECKING:
    from fullgraph.testing._modes import Mode

__all__ = ["Call", "Recorder", "Tally", "close_recorder", "open_recorder", "publish"]


@dataclass(frozen=True, slots=True)
class Call:
    """What one call came to."""

    name: str
    mode: Mode
    backend: str
    outcome: Outcome | None
    """None: something to add to a function's record that is no call of it."""
    whole: bool = False
    sites: tuple[BreakSite, ...] = ()
    compiled: tuple[Specialisation, ...] = ()
    raced: tuple[Specialisation, ...] = ()
    """Compiled by several threads at once: one specialisation, whoever came first."""
    over_limit: bool = False
    graphs: int = 0
    graphs_run: int = 0
    failure: str | None = None
    compile_seconds: float = 0.0
    seconds: float = 0.0


class Tally:
    """The running record of one function in one mode. Thread-safe."""

    def __init__(self, name: str, mode: Mode, backend: str) -> None:
        self._name, self._mode, self._backend = name, mode, backend
        self._lock = threading.Lock()
        self._calls: Counter[Outcome] = Counter()
        self._failures: Counter[str] = Counter()
        self._sites: dict[tuple[str, int, str], BreakSite] = {}
        self._compiled: dict[tuple[str, str, int], Specialisation] = {}
        self._provisional: set[tuple[str, str, int]] = set()
        self._whole = self._graphs = self._graphs_run = self._over_limit = 0
        self._compile_seconds = self._seconds = 0.0

    def add(self, call: Call) -> None:
        """Count one call."""
        with self._lock:
            if call.outcome is not None:
                self._calls[call.outcome] += 1
            self._whole += call.whole
            self._graphs += call.graphs
            self._graphs_run += call.graphs_run
            self._over_limit += call.over_limit
            self._compile_seconds += call.compile_seconds
            self._seconds += call.seconds
            if call.failure is not None:
                self._failures[call.failure] += 1
            for site in call.sites:
                known = self._sites.get(site.key)
                self._sites[site.key] = site if known is None else merge_sites((known, site))[0]
            for item in call.compiled:
                self._add_compiled(item)
            for item in call.raced:
                if item.key not in self._compiled:
                    self._compiled[item.key] = dataclasses.replace(item, guard=None)
                    self._provisional.add(item.key)

    def _add_compiled(self, item: Specialisation) -> None:
        if item.key in self._provisional:  # the call that came first has ended last
            self._provisional.remove(item.key)
            self._compiled[item.key] = item
            return
        repeat = 0
        while (item.frame, item.signature, repeat) in self._compiled:
            repeat += 1
        item = dataclasses.replace(item, repeat=repeat)
        self._compiled[item.key] = item

    @property
    def calls(self) -> int:
        """How many calls were counted so far."""
        with self._lock:
            return self._calls.total()

    def recompiles(self) -> tuple[int, tuple[str, ...]]:
        """Return the number of recompiles so far, and their failed guards."""
        with self._lock:
            items = tuple(self._compiled.values())
        guards = tuple(item.guard for item in items if item.guard is not None)
        return len(items) - len({item.frame for item in items}), guards

    def record(self) -> FunctionRecord:
        """Return what was counted so far."""
        with self._lock:
            return FunctionRecord(
                name=self._name,
                mode=self._mode,
                backend=self._backend,
                calls=dict(self._calls),
                whole=self._whole,
                graphs=self._graphs,
                graphs_run=self._graphs_run,
                partly_over_limit=self._over_limit,
                breaks=tuple(sorted(self._sites.values())),
                specialisations=tuple(self._compiled.values()),
                failures=dict(self._failures),
                compile_seconds=self._compile_seconds,
                seconds=self._seconds,
            )


class Recorder:
    """Collects the calls of all functions between `open_recorder` and `close_recorder`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tallies: dict[tuple[str, Mode, str], Tally] = {}
        self._unreached: set[str] = set()

    def add(self, call: Call) -> None:
        """Count one call."""
        key = (call.name, call.mode, call.backend)
        with self._lock:
            tally = self._tallies.get(key)
            if tally is None:
                tally = self._tallies[key] = Tally(*key)
        tally.add(call)

    def add_unreached(self, what: str) -> None:
        """Note a tagged function that a test did not call through its compiled form."""
        with self._lock:
            self._unreached.add(what)

    def record(self) -> Record:
        """Return what was collected so far."""
        import sys

        with self._lock:
            tallies = list(self._tallies.values())
            unreached = tuple(sorted(self._unreached))
        records = sorted((tally.record() for tally in tallies), key=lambda r: r.key)
        torch = sys.modules.get("torch")
        return Record(tuple(records), unreached, str(torch.__version__) if torch else "")


_open: list[Recorder] = []


def open_recorder(recorder: Recorder) -> None:
    """Send every call that ends from now on to `recorder` too."""
    _open.append(recorder)


def close_recorder(recorder: Recorder) -> None:
    """Undo `open_recorder`."""
    _open.remove(recorder)


def publish(call: Call) -> None:
    """Send a finished call to all open recorders."""
    for recorder in tuple(_open):
        recorder.add(call)


def publish_unreached(what: str) -> None:
    """Tell all open recorders of a tagged function that was not reached."""
    for recorder in tuple(_open):
        recorder.add_unreached(what)
