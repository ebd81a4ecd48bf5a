"""Records: what happened in compiled calls, as frozen data with a JSON round trip."""

from __future__ import annotations

import dataclasses
import enum
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from fullgraph.errors import UsageError
from fullgraph.testing._modes import Mode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["SCHEMA", "BreakSite", "FunctionRecord", "Outcome", "Record", "Specialisation"]

SCHEMA = 2
"""Version of the JSON form; `Record.from_json` also reads 1, which lacks `BreakSite.raised`."""
_READ = (1, SCHEMA)

T = TypeVar("T")


class Outcome(enum.StrEnum):
    """What one call of a function came to; each call has exactly one."""

    GRAPH_RAN = "graph ran"
    """At least one compiled graph was executed."""
    TRACED_EMPTY = "traced empty"
    """Dynamo traced the call and found no tensor operation in it, as in shape-only code."""
    FRAME_SKIPPED = "frame skipped"
    """Dynamo gave the function up, or never saw it, and no graph ran."""
    OVER_LIMIT = "over the limit"
    """The recompile limit was reached, and no graph ran."""
    NO_TENSOR = "no tensor input"
    """There was nothing to compile: the call has no tensor among its inputs."""
    RAISED = "raised"
    """The function raised, and raises the same way in eager mode."""
    TORCH_BUG = "torch bug"
    """Compiling met a known bug of torch; the call was finished eagerly."""
    FAILED = "compile failed"
    """Compiling raised where eager does not; the call was finished eagerly."""
    EAGER = "eager"
    """Called in eager mode, as asked."""


@dataclass(frozen=True, slots=True, order=True)
class BreakSite:
    """A place where the graph breaks, and how often.

    Two breaks are one site if they have the same deepest line of user code and the same reason.
    """

    file: str
    line: int
    function: str
    reason: str
    explanation: str = ""
    hints: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    """How execution came there: ``file:line function``, outermost first."""
    skips_frame: bool = False
    """Whether the whole frame is given up here, not only split in two."""
    torch_bug: str | None = None
    """Name of the known torch bug that this is; such a site is not charged to a budget."""
    calls: int = 1
    """How many calls were charged with this site."""
    times: int = 1
    """How often the break happened, which a loop makes more than the number of calls."""
    raised: int = 0
    """How many of the calls raised in the end, as eager code does too."""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes two breaks the same site."""
        return self.file, self.line, self.reason

    @property
    def only_raised(self) -> bool:
        """Whether no call that met the site has returned."""
        return self.raised >= self.calls

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class Specialisation:
    """One compiled version of one frame."""

    frame: str
    """``module:qualname``; the rest of a function after a break is a frame of its own."""
    signature: str
    """The frame's arguments: dtype and shape of tensors, values of Python scalars."""
    guard: str | None = None
    """The failed guard that caused this compilation; None for the first of its frame."""
    own: bool = True
    """Whether the frame is the function itself, not a callee or what follows a break."""
    repeat: int = 0
    """Tells apart specialisations of equal signature, which something else distinguishes."""
    graphs: int = 0
    """Graphs that were compiled for it."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes two compilations, in two processes say, the same specialisation."""
        return self.frame, self.signature, self.repeat


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """All calls of one function in one mode."""

    name: str
    """``module:qualname``."""
    mode: Mode
    backend: str
    calls: Mapping[Outcome, int] = field(default_factory=dict)
    whole: int = 0
    """Calls that ran as one whole graph, or needed none: no break, no skipped frame."""
    graphs: int = 0
    """Graphs compiled."""
    graphs_run: int = 0
    """Graphs executed, over all calls."""
    partly_over_limit: int = 0
    """Calls in which some frame, not necessarily the function itself, was over the limit."""
    breaks: tuple[BreakSite, ...] = ()
    specialisations: tuple[Specialisation, ...] = ()
    failures: Mapping[str, int] = field(default_factory=dict)
    """Reasons of outcomes `FAILED` and `TORCH_BUG`, and how often; also those of `RAISED` where
    compiled code raises another exception than eager code does."""
    compile_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def total_calls(self) -> int:
        """Calls of every outcome."""
        return sum(self.calls.values())

    @property
    def coverage(self) -> float:
        """Share of calls that ran a graph; 0 without calls."""
        return self.calls.get(Outcome.GRAPH_RAN, 0) / max(1, self.total_calls)

    @property
    def compiles(self) -> int:
        """Specialisations of the function itself, not of callees or what follows a break."""
        return sum(item.own for item in self.specialisations)

    @property
    def recompiles(self) -> int:
        """Distinct specialisations beyond the first, summed over the function's frames."""
        return len(self.specialisations) - len({item.frame for item in self.specialisations})

    @property
    def recompile_guards(self) -> tuple[str, ...]:
        """The failed guard of every recompile that has one, in order."""
        return tuple(item.guard for item in self.specialisations if item.guard is not None)

    @property
    def key(self) -> tuple[str, str, str]:
        """What two records of one function have in common."""
        return self.name, str(self.mode), self.backend

    def __str__(self) -> str:
        """Return a line of numbers, and one for each break site."""
        outcomes = ", ".join(f"{n} {outcome}" for outcome, n in self.calls.items()) or "no calls"
        numbers = f"{self.whole} whole, {self.graphs} graphs, {self.recompiles} recompiles"
        lines = [f"{self.name} ({self.mode}): {outcomes}; {numbers}"]
        for site in self.breaks:
            calls = "1 call" if site.calls == 1 else f"{site.calls} calls"
            calls += ", which raised" if site.only_raised else ""
            lines.append(f"  {site.where} in {site.function or '?'}: {site.reason} ({calls})")
        return "\n".join(lines)

    def merge(self, other: FunctionRecord) -> FunctionRecord:
        """Return the record of the calls of both, as one process would have made it."""
        assert self.key == other.key, "only records of one function and mode can be merged"
        specialisations = {item.key: item for item in other.specialisations}
        specialisations.update({item.key: item for item in self.specialisations})
        return dataclasses.replace(
            self,
            calls=_sum_counts(self.calls, other.calls),
            whole=self.whole + other.whole,
            graphs=self.graphs + other.graphs,
            graphs_run=self.graphs_run + other.graphs_run,
            partly_over_limit=self.partly_over_limit + other.partly_over_limit,
            breaks=merge_sites((*self.breaks, *other.breaks)),
            specialisations=tuple(sorted(specialisations.values(), key=lambda item: item.key)),
            failures=_sum_counts(self.failures, other.failures),
            compile_seconds=self.compile_seconds + other.compile_seconds,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class Record:
    """What was recorded, function by function."""

    functions: tuple[FunctionRecord, ...] = ()
    unreached: tuple[str, ...] = ()
    """Tagged functions that were never called through their compiled form: ``test: function``."""
    torch: str = ""
    """Version of torch."""

    __iter__ = None  # a record is no sequence: iterate over its `functions`

    def __str__(self) -> str:
        """Return the functions' lines, then those that were not reached."""
        lines = [str(record) for record in self.functions] or ["nothing was recorded"]
        return "\n".join([*lines, *(f"never ran compiled: {what}" for what in self.unreached)])

    def __getitem__(self, name: str) -> FunctionRecord:
        """Return the only record of the function called `name`, in full or without its module."""
        found = [r for r in self.functions if name in _short_names(r.name)]
        if len(found) == 1:
            return found[0]
        have = ", ".join(f"{r.name} ({r.mode})" for r in self.functions) or "none"
        raise KeyError(f"{len(found)} records of {name!r}; recorded are: {have}")

    @property
    def breaks(self) -> tuple[BreakSite, ...]:
        """All break sites, of all functions, each once."""
        return merge_sites(site for record in self.functions for site in record.breaks)

    @property
    def graphs(self) -> int:
        """Graphs compiled."""
        return sum(record.graphs for record in self.functions)

    @property
    def graphs_run(self) -> int:
        """Graphs executed."""
        return sum(record.graphs_run for record in self.functions)

    @property
    def recompiles(self) -> int:
        """Recompiles of all functions."""
        return sum(record.recompiles for record in self.functions)

    def breaks_in(self, package: str) -> list[BreakSite]:
        """Return the sites whose line lies in `package`, an importable name or a path.

        Returns
        -------
        list of BreakSite
            In the order of `breaks`.

        Examples
        --------
        >>> Record().breaks_in("torch")
        []
        """
        roots = _roots(package)
        return [
            site
            for site in self.breaks
            if any(site.file == root or site.file.startswith(root + os.sep) for root in roots)
        ]

    def merge(self, other: Record) -> Record:
        """Return the record of both, as one process would have made it."""
        functions = {record.key: record for record in self.functions}
        for record in other.functions:
            mine = functions.get(record.key)
            functions[record.key] = record if mine is None else mine.merge(record)
        return Record(
            tuple(functions[key] for key in sorted(functions)),
            tuple(sorted({*self.unreached, *other.unreached})),
            self.torch or other.torch,
        )

    def to_json(self, *, indent: int | None = None) -> str:
        """Return the record as JSON text; `from_json` is its inverse."""
        return json.dumps({"schema": SCHEMA, **dataclasses.asdict(_plain(self))}, indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Record:
        """Return the record that `to_json` wrote.

        Returns
        -------
        Record
            Equal to the one that was written.

        Raises
        ------
        UsageError
            If the text is not such a record, or was written with another schema.
        """
        try:
            data = json.loads(text)
            schema = data.pop("schema")
        except (ValueError, AttributeError, KeyError, TypeError):
            raise UsageError("not a fullgraph record: expected JSON with a 'schema'") from None
        if schema not in _READ:
            raise UsageError(
                f"the record has schema {schema!r}, and this version reads "
                f"{_READ[0]} and {SCHEMA}: "
                "record again, or use the version of fullgraph that wrote it"
            )
        try:
            functions = tuple(_function_from(item) for item in data["functions"])
            return cls(functions, tuple(data["unreached"]), data["torch"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"not a fullgraph record of schema {schema}: {type(error).__name__}: {error}"
            ) from error


def _short_names(name: str) -> set[str]:
    """Return what a function may be asked for by; a module also by the name of its class."""
    qualname = name.rpartition(":")[2]
    return {name, qualname, qualname.removesuffix(".forward"), name.removesuffix(".forward")}


def merge_sites(sites: Iterable[BreakSite]) -> tuple[BreakSite, ...]:
    """Return each site once, with its counts added up, in the order of file and line."""
    merged: dict[tuple[str, int, str], BreakSite] = {}
    for site in sites:
        known = merged.get(site.key)
        merged[site.key] = (
            site
            if known is None
            else dataclasses.replace(
                known,
                calls=known.calls + site.calls,
                times=known.times + site.times,
                raised=known.raised + site.raised,
                skips_frame=known.skips_frame or site.skips_frame,
                callers=known.callers or site.callers,
            )
        )
    return tuple(sorted(merged.values()))


def _sum_counts(one: Mapping[T, int], two: Mapping[T, int]) -> Mapping[T, int]:
    return MappingProxyType(dict(Counter(one) + Counter(two)))


def _plain(record: Record) -> Record:
    """Return a copy whose mappings are dicts, which `dataclasses.asdict` can copy."""
    return dataclasses.replace(
        record,
        functions=tuple(
            dataclasses.replace(
                item,
                calls={str(outcome): n for outcome, n in item.calls.items()},  # type: ignore[misc]
                failures=dict(item.failures),
            )
            for item in record.functions
        ),
    )


def _function_from(data: dict[str, Any]) -> FunctionRecord:
    return FunctionRecord(
        **{
            **data,
            "mode": Mode(data["mode"]),
            "calls": {Outcome(name): n for name, n in data["calls"].items()},
            "breaks": tuple(
                BreakSite(**{**s, "hints": tuple(s["hints"]), "callers": tuple(s["callers"])})
                for s in data["breaks"]
            ),
            "specialisations": tuple(Specialisation(**s) for s in data["specialisations"]),
        }
    )


def _roots(package: str) -> tuple[str, ...]:
    """Return the folders or the file of an importable package, or the path itself."""
    if os.path.exists(package):
        return (os.path.abspath(package),)
    import importlib.util

    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(
            f"breaks_in({package!r}): there is no importable package and no path of that name"
        )
    if spec.submodule_search_locations:
        return tuple(os.path.abspath(place) for place in spec.submodule_search_locations)
    return (os.path.abspath(spec.origin or ""),)
