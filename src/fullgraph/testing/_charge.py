"""From the log of a call to what the call is charged with: its outcome and its break sites."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._records import BreakSite, Outcome, Specialisation, merge_sites
from fullgraph.testing._torch_bugs import known_bug

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.testing._dynamo.breaks import Break
    from fullgraph.testing._dynamo.calls import CallLog

__all__ = ["charged_sites", "compiled_specialisations", "outcome_of", "site_of"]


def site_of(event: Break) -> BreakSite:
    """Return the site at which `event` breaks the graph."""
    bug = known_bug(event, torch_release())
    return BreakSite(
        file=event.where.file,
        line=event.where.line,
        function=event.where.function,
        reason=event.reason,
        explanation=event.explanation,
        hints=event.hints,
        callers=tuple(f"{place.file}:{place.line} {place.function}" for place in event.callers),
        skips_frame=event.skips_frame,
        torch_bug=bug.name if bug is not None else None,
    )


def charged_sites(log: CallLog) -> tuple[BreakSite, ...]:
    """Return the sites of every specialisation that the call ran, and of every skipped frame.

    A specialisation that was compiled by an earlier call counts as one compiled by this call does.
    """
    events = [event for item in log.ran for event in item.breaks]
    sites = merge_sites(site_of(event) for event in (*events, *log.skipped))
    # one call, however often it came by: `times` keeps that number
    return tuple(dataclasses.replace(site, calls=1) for site in sites)


def compiled_specialisations(log: CallLog, *, raced: bool = False) -> tuple[Specialisation, ...]:
    """Return what the call compiled, in order: all but, or only, what another thread had too."""
    return tuple(
        Specialisation(i.frame, i.signature, i.guard, i.own, graphs=i.graphs)
        for i in log.compiled
        if i.raced is raced
    )


def outcome_of(log: CallLog, has_tensors: Callable[[], bool]) -> Outcome:
    """Return what a call that returned came to."""
    if log.graphs_run:
        return Outcome.GRAPH_RAN
    if log.over_limit:
        return Outcome.OVER_LIMIT
    if log.skipped:
        return Outcome.FRAME_SKIPPED
    if not has_tensors():
        return Outcome.NO_TENSOR
    if log.ran or log.empty:
        return Outcome.TRACED_EMPTY
    if log.no_tensor:
        return Outcome.NO_TENSOR
    return Outcome.FRAME_SKIPPED
