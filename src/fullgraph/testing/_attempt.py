"""One call of a function, through as many engines as it takes."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from fullgraph.errors import (
    FullGraphError,
    GraphBreakError,
    MismatchError,
    TorchBugError,
)
from fullgraph.testing._charge import (
    charged_sites,
    compiled_specialisations,
    outcome_of,
    site_of,
)
from fullgraph.testing._dynamo.calls import CallLog, pop, push
from fullgraph.testing._dynamo.errors import break_of, is_compile_failure
from fullgraph.testing._messages import (
    graph_raised_message,
    not_whole_message,
    torch_bug_message,
)
from fullgraph.testing._modes import Mode
from fullgraph.testing._records import BreakSite, Outcome
from fullgraph.testing._snapshot import Snapshot
from fullgraph.testing._tally import Call
from fullgraph.testing._target import has_tensor_inputs, not_yet_run, placed, unseen

if TYPE_CHECKING:
    from fullgraph.testing._engine import Engine
    from fullgraph.testing._torch_call import CompiledCall

__all__ = ["Attempt"]


class Attempt:
    """One call, through as many engines as it takes."""

    def __init__(self, owner: CompiledCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._owner, self._args, self._kwargs = owner, args, kwargs
        self._start = time.perf_counter()
        self._logs: list[CallLog] = []
        self._saved: Snapshot | None = None

    def plain(self, outcome: Outcome) -> Any:
        """Call the function itself."""
        __tracebackhide__ = True
        try:
            result = self._owner.func(*self._args, **self._kwargs)
        except BaseException:  # pytest.skip in the function, say
            self._finish(Outcome.RAISED)
            raise
        self._finish(outcome)
        return result

    def breaking(self) -> Any:
        """Call in compile mode."""
        __tracebackhide__ = True
        try:
            result = self._run(self._owner.breaking)
        except Exception as error:  # noqa: BLE001 - raised below, or what eager code raises is
            failure = error
        else:
            log = self._logs[-1]
            return self._returned(result, log, sites=self._seen(log))
        if not is_compile_failure(failure):
            return self._raised(failure, charged_sites(self._logs[-1]))
        self._restore()
        return self._replayed(failure, GraphBreakError)

    def fullgraph(self, *, must: bool) -> Any:
        """Call as one whole graph; what is not whole fails if it must be, else is broken up."""
        __tracebackhide__ = True
        try:
            result = self._run(self._owner.whole)
        except Exception as error:  # noqa: BLE001 - raised below, or what eager code raises is
            failure = error
        else:
            return self._returned(result, self._logs[-1], sites=self._seen(self._logs[-1]))
        if not is_compile_failure(failure):
            return self._raised(failure, ())
        self._restore()
        if must or _is_limit(failure):
            return self._replayed(failure, FullGraphError)
        return self.breaking()

    def _run(self, engine: Engine) -> Any:
        __tracebackhide__ = True
        log = engine.new_log()
        log.before = self._save
        self._logs.append(log)
        try:
            return engine(log, self._args, self._kwargs)
        except BaseException as error:
            if not isinstance(error, Exception):  # KeyboardInterrupt; pytest.skip in the function
                self._finish(Outcome.RAISED)
            raise

    def _save(self) -> None:
        # Of whole compiled code nothing is traced after it has started, and a graph that changes
        # nothing can be repeated as it is: the cost of a snapshot, 60 us, is spared.
        self._saved = Snapshot(self._args, self._kwargs, self._owner.func)

    def _restore(self) -> None:
        if self._saved is not None:
            self._saved.restore()
            self._saved = None

    def _seen(self, log: CallLog) -> tuple[BreakSite, ...]:
        """Return the sites of a call that returned; one that Dynamo never saw is a site too."""
        sites = charged_sites(log)
        if sites or outcome_of(log, self._has_tensors) is not Outcome.FRAME_SKIPPED:
            return sites
        return (unseen(self._owner.func, self._owner.name),)

    def _has_tensors(self) -> bool:
        return has_tensor_inputs(self._owner.func, self._args, self._kwargs)

    def _returned(self, result: Any, log: CallLog, *, sites: tuple[BreakSite, ...]) -> Any:
        __tracebackhide__ = True
        outcome = outcome_of(log, self._has_tensors)
        lazy = not_yet_run(result, self._owner.func, self._owner.name)
        if lazy is not None:
            sites = (*sites, lazy)
            if outcome in (Outcome.TRACED_EMPTY, Outcome.NO_TENSOR):
                outcome = Outcome.FRAME_SKIPPED
        whole = not sites and not log.over_limit and outcome is not Outcome.FRAME_SKIPPED
        call = self._finish(outcome, whole=whole, sites=sites)
        must_be_whole = self._owner.mode is Mode.FULLGRAPH and (
            self._owner.budget.whole or self._owner.strict
        )
        if must_be_whole and sites and any(site.torch_bug is None for site in sites):
            raise FullGraphError(
                not_whole_message(self._owner.name, call.sites, self._owner.budget.arguments[0])
            )
        self._owner.check(call)
        return result

    def _raised(self, failure: Exception, sites: tuple[BreakSite, ...]) -> Any:
        """End a call whose code raised while it ran.

        A graph runs outside of the ``try`` that surrounds its operators in the source. So what one
        of them raises there may not be what eager code makes of it, which is the truth.
        """
        __tracebackhide__ = True
        if self._logs[-1].graph_error is None or self._owner.errors_as_compiled:
            self._finish(Outcome.RAISED, sites=sites)
            raise failure
        self._restore()
        self._eagerly(sites, failure)
        said = f"{type(failure).__name__} when the graph ran: {failure}"
        if (line := self._logs[-1].graph_line) is not None:
            said += f" (at {line.file}:{line.line} in {line.function})"
        self._finish(Outcome.FAILED, sites=sites, failure=said)
        raise MismatchError(graph_raised_message(self._owner.name, said)) from failure

    def _eagerly(self, sites: tuple[BreakSite, ...], failure: Exception | None = None) -> Any:
        """Call the function itself; end the call if it raises."""
        __tracebackhide__ = True
        bystander = CallLog()
        push(bystander)  # tagged functions that it calls stay plain
        try:
            return self._owner.breaking.func(*self._args, **self._kwargs)
        except BaseException as error:
            other = None
            if failure is not None and type(error) is not type(failure):
                names = type(failure).__name__, type(error).__name__
                other = "the graph raised {} where eager code raises {}".format(*names)
            self._finish(Outcome.RAISED, sites=sites, failure=other)
            raise
        finally:
            pop(bystander)

    def _replayed(self, failure: Exception, kind: type[GraphBreakError | FullGraphError]) -> Any:
        """Call eagerly after compiling failed: what eager code does is the truth."""
        __tracebackhide__ = True
        owner = self._owner
        result = self._eagerly(())
        site = site_of(break_of(failure))
        if _is_limit(failure):
            self._finish(Outcome.OVER_LIMIT)
            return result
        if site.torch_bug is not None:
            failed = f"torch bug: {site.torch_bug}"
            self._finish(Outcome.TORCH_BUG, sites=(site,), failure=failed)
            if owner.fail_on_torch_bugs:
                raise TorchBugError(torch_bug_message(owner.name, (site,))) from without_traceback(
                    failure
                )
            return result
        call = self._finish(Outcome.FAILED, sites=(site,), failure=site.reason)
        if kind is FullGraphError:
            raise FullGraphError(
                not_whole_message(owner.name, call.sites, owner.budget.arguments[0])
            ) from without_traceback(failure)
        try:
            owner.check(call)
        except GraphBreakError as error:
            raise error from without_traceback(failure)
        return result

    def _finish(
        self,
        outcome: Outcome,
        *,
        whole: bool = False,
        sites: tuple[BreakSite, ...] = (),
        failure: str | None = None,
    ) -> Call:
        owner, logs = self._owner, self._logs
        raised = int(outcome is Outcome.RAISED)
        sites = tuple(
            dataclasses.replace(placed(site, owner.func, owner.name), raised=raised)
            for site in sites
        )
        call = Call(
            name=owner.name,
            mode=owner.mode,
            backend=owner.settings.backend,
            outcome=outcome,
            whole=whole,
            sites=sites,
            compiled=tuple(item for log in logs for item in compiled_specialisations(log)),
            raced=tuple(i for log in logs for i in compiled_specialisations(log, raced=True)),
            over_limit=any(log.over_limit for log in logs),
            graphs=sum(log.graphs_compiled for log in logs),
            graphs_run=sum(log.graphs_run for log in logs),
            failure=failure,
            compile_seconds=sum(log.seconds for log in logs),
            seconds=time.perf_counter() - self._start,
        )
        owner.finish(call)
        return call


def without_traceback(error: Exception) -> Exception:
    """Return `error` for use as a cause: its message says what Dynamo met, its frames only how."""
    return error.with_traceback(None)


def _is_limit(error: BaseException) -> bool:
    return type(error).__name__ == "FailOnRecompileLimitHit"
