"""For projects without array namespaces: a recorded test, and what its marker demands."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from fullgraph.errors import GraphBreakError, NothingCompiledError, RecompileError, UsageError
from fullgraph.plugin.logs import detach_pytest_handlers
from fullgraph.testing import Recording, record
from fullgraph.testing._messages import graph_break_message, recompile_message
from fullgraph.testing._modes import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fullgraph.testing import Record

__all__ = ["Demand", "check", "parse_marker", "recorded"]


@contextlib.contextmanager
def recorded() -> Iterator[Recording]:
    """Record a block; the recorder of the run, which is open too, hears the same."""
    detach_pytest_handlers()
    with record() as recording:
        yield recording


@dataclass(frozen=True, slots=True)
class Demand:
    """What a marker ``fullgraph`` demands of its test."""

    package: str | None
    budget: Budget


def parse_marker(marker: pytest.Mark) -> Demand:
    """Return what a marker says.

    Raises
    ------
    pytest.UsageError
        If the marker is malformed.
    """
    unknown = sorted(set(marker.kwargs) - {"package", "graph_breaks", "recompiles"})
    package = marker.args[0] if marker.args else marker.kwargs.get("package")
    if unknown or len(marker.args) > 1 or (marker.args and "package" in marker.kwargs):
        raise pytest.UsageError(
            f"malformed marker fullgraph{marker.args}: it takes package, graph_breaks and "
            f"recompiles{', not ' + ', '.join(unknown) if unknown else ''}"
        )
    if package is not None and not isinstance(package, str):
        raise pytest.UsageError(f"malformed marker fullgraph: package={package!r} is not a name")
    try:
        budget = Budget.parse(
            marker.kwargs.get("graph_breaks", 0), marker.kwargs.get("recompiles", None)
        )
    except UsageError as error:
        raise pytest.UsageError(f"malformed marker fullgraph: {error}") from None
    return Demand(package, budget)


def check(demand: Demand, found: Record) -> None:
    """Fail a test whose record is not what its marker demands.

    Raises
    ------
    GraphBreakError
        If it breaks the graph in the package more often than allowed.
    RecompileError
        If a function was compiled again more often than allowed.
    NothingCompiledError
        If it compiled nothing at all.
    """
    breaks = found.breaks if demand.package is None else found.breaks_in(demand.package)
    sites = [site for site in breaks if site.torch_bug is None]
    allowed = demand.budget.graph_breaks
    count = float("inf") if any(site.skips_frame for site in sites) else len(sites)
    where = demand.package or "the test"
    if allowed is not None and count > allowed:
        text = graph_break_message(where, sites, allowed)
        raise GraphBreakError(text.replace("allow_graph_breaks=", "graph_breaks="))
    most = demand.budget.recompiles
    for function in found.functions:
        if most is not None and function.recompiles > most:
            guards = function.recompile_guards
            text = recompile_message(function.name, function.recompiles, most, guards)
            raise RecompileError(text.replace("allow_recompiles=", "recompiles="))
    if not found.graphs_run:
        raise NothingCompiledError(
            "the test has the marker fullgraph, and ran no compiled graph: call what "
            "torch.compile returned, on tensors, inside the test"
        )
