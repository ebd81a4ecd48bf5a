"""The log of what Dynamo does in a `record` block outside of our own calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.testing._charge import site_of
from fullgraph.testing._dynamo.calls import CallLog
from fullgraph.testing._dynamo.errors import break_of
from fullgraph.testing._modes import Mode
from fullgraph.testing._records import Outcome, Specialisation, merge_sites
from fullgraph.testing._tally import Call, publish

if TYPE_CHECKING:
    from fullgraph.testing._dynamo.breaks import Break
    from fullgraph.testing._dynamo.calls import Specialisation as Compiled

__all__ = ["AmbientLog"]


class AmbientLog(CallLog):
    """Hands everything on at once, frame by frame: no call of ours will end and sum it up.

    Each function whose frame Dynamo compiled is a function of the record, of every open block's:
    the log of one of them hears what there is.
    """

    def _add(self, frame: str, outcome: Outcome | None, **what: Any) -> None:
        name, resumed, _ = frame.partition(" resumed at line ")
        if resumed:  # the rest of a call, which was counted when it began
            outcome, what["whole"] = None, False
        publish(Call(name, Mode.COMPILE, "user", outcome, **what))

    def saw_run(self, item: Compiled) -> None:
        """Count a call, or what follows a break of one."""
        sites = merge_sites(site_of(event) for event in item.breaks)
        ran = Outcome.GRAPH_RAN if item.graphs else Outcome.TRACED_EMPTY
        self._add(
            item.frame,
            ran,
            sites=sites,
            graphs_run=item.graphs,
            whole=not sites,
        )

    def saw_compiled(self, item: Compiled) -> None:
        """Count a compilation."""
        made = Specialisation(
            item.frame, item.signature, item.guard, not item.resumes, graphs=item.graphs
        )
        self._add(
            item.frame, None, compiled=(made,), graphs=item.graphs, compile_seconds=item.seconds
        )

    def saw_skip(self, frame: str, event: Break) -> None:
        """Count a call of a function that Dynamo gave up."""
        self._add(frame, Outcome.FRAME_SKIPPED, sites=(site_of(event),))

    def saw_limit(self, frame: str, event: Break) -> None:
        """Count a call over the limit."""
        del event
        self._add(frame, Outcome.OVER_LIMIT, over_limit=True)

    def saw_nothing(self, frame: str, *, tensors: bool) -> None:
        """Count a call without operations; one without tensors is Python as usual."""
        if tensors:
            self._add(frame, Outcome.TRACED_EMPTY, whole=True)

    def saw_failure(self, frame: str, error: Exception, seconds: float) -> None:
        """Count a call whose tracing raised."""
        site = site_of(break_of(error))
        self._add(
            frame, Outcome.FAILED, sites=(site,), failure=site.reason, compile_seconds=seconds
        )
