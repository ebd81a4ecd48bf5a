"""A function called through torch.compile, every call recorded and held to its budget."""

from __future__ import annotations

import functools
import threading
import time
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import (
    FullGraphError,
    GraphBreakError,
    RecompileError,
    TorchBugError,
    UsageError,
)
from fullgraph.testing._adaptors import is_generator_function, traceable
from fullgraph.testing._alongside import call_both
from fullgraph.testing._charge import (
    charged_sites,
    compiled_specialisations,
    outcome_of,
    site_of,
)
from fullgraph.testing._dynamo.backends import check_backend, counting_backend
from fullgraph.testing._dynamo.calls import CallLog, inside_call, pop, push
from fullgraph.testing._dynamo.device import has_redundant_default, plain_default_device
from fullgraph.testing._dynamo.errors import break_of, is_compile_failure
from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._dynamo.watch import watching
from fullgraph.testing._messages import (
    graph_break_message,
    not_whole_message,
    recompile_message,
    torch_bug_message,
)
from fullgraph.testing._modes import Budget, Mode
from fullgraph.testing._names import display_name
from fullgraph.testing._options import DEFAULT_RECOMPILE_LIMIT
from fullgraph.testing._progress import in_progress
from fullgraph.testing._records import BreakSite, FunctionRecord, Outcome
from fullgraph.testing._snapshot import Snapshot
from fullgraph.testing._tally import Call, Tally, publish
from fullgraph.testing._target import has_tensor_inputs, is_python, placed, unseen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["CompiledCall", "Settings"]

DEFAULT_CONFIG: dict[str, Any] = {
    # NumPy tracing turns NumPy scalars into 0-d arrays, which changes the dtype of results
    "trace_numpy": False,
    # no budget of ours is kept by this limit, which counts over all functions that share a callee
    "accumulated_recompile_limit": 1 << 20,
}


class Settings:
    """How to compile: backend, recompile limit, dynamic shapes, Dynamo settings."""

    __slots__ = ("backend", "config", "dynamic", "recompile_limit")

    def __init__(
        self,
        *,
        backend: str = "trace",
        recompile_limit: int = DEFAULT_RECOMPILE_LIMIT,
        dynamic: bool | None = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.backend = check_backend(backend)
        self.recompile_limit = recompile_limit
        self.dynamic = dynamic
        self.config = {**DEFAULT_CONFIG, **_checked(config or {})}


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    from torch._dynamo import config as known

    for name in config:
        if not hasattr(known, name):
            raise UsageError(
                f"config has {name!r}, which is no setting of torch._dynamo.config in torch "
                f"{torch.__version__}: leave it out, or correct its name"
            )
    return config


class _Engine:
    """One torch.compile object, and what it has learnt about frames that cannot be compiled."""

    def __init__(
        self, func: Callable[..., Any], name: str, settings: Settings, *, fullgraph: bool
    ) -> None:
        self.func, self._name, self._settings, self._fullgraph = func, name, settings, fullgraph
        self._lock = threading.Lock()
        self._compiled: Callable[..., Any] | None = None
        self._skips: dict[Any, Any] = {}
        self._limits: dict[Any, Any] = {}

    def new_log(self) -> CallLog:
        return CallLog(config=self._settings.config, skips=self._skips, limits=self._limits)

    def __call__(self, log: CallLog, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = self._compiled or self._compile()
        push(log)
        try:
            with watching(log, self._name, (args, kwargs)):
                if has_redundant_default():
                    with plain_default_device():
                        return compiled(*args, **kwargs)
                return compiled(*args, **kwargs)
        finally:
            pop(log)

    def _compile(self) -> Callable[..., Any]:
        with self._lock:
            if self._compiled is None:
                settings = self._settings
                self._compiled = torch.compile(  # type: ignore[call-overload]
                    self.func,
                    backend=counting_backend(settings.backend),
                    fullgraph=self._fullgraph,
                    dynamic=settings.dynamic,
                    # closures made from one piece of code would share one limit otherwise
                    isolate_recompiles=True,
                    recompile_limit=settings.recompile_limit,
                )
            return self._compiled


class CompiledCall:
    """Call a function in one mode; see `fullgraph.testing.compiled`."""

    def __init__(
        self,
        func: Callable[..., Any],
        mode: Mode,
        *,
        budget: Budget | None = None,
        settings: Settings | None = None,
        strict: bool = False,
        compare: bool = False,
        fail_on_torch_bugs: bool = False,
        name: str | None = None,
    ) -> None:
        torch_release()  # a missing or old torch is named here, not at the first call
        self._func = func
        self._mode = mode
        self._budget = budget or Budget()
        self._settings = settings or Settings()
        self._strict = strict
        self._compare = compare
        self._fail_on_torch_bugs = fail_on_torch_bugs
        self._name = name or display_name(func)
        self._tally = Tally(self._name, mode, self._settings.backend)
        self._lazy = is_generator_function(func)
        self._python = is_python(func)
        target = traceable(func)
        self._breaking = _Engine(target, self._name, self._settings, fullgraph=False)
        self._whole = _Engine(target, self._name, self._settings, fullgraph=True)

    def __reduce__(self) -> tuple[Any, ...]:
        again = functools.partial(
            CompiledCall,
            budget=self._budget,
            settings=self._settings,
            strict=self._strict,
            compare=self._compare,
            fail_on_torch_bugs=self._fail_on_torch_bugs,
            name=self._name,
        )
        return again, (self._func, self._mode)

    @property
    def record(self) -> FunctionRecord:
        """What the calls so far came to."""
        return self._tally.record()

    @property
    def calls(self) -> int:
        """How many calls were recorded so far."""
        return self._tally.calls

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function; raise what its budget demands."""
        if inside_call():  # it is part of another function's capture, and recorded there
            return self._func(*args, **kwargs)
        if self._mode is Mode.EAGER:
            return _Attempt(self, args, kwargs).plain(Outcome.EAGER)
        if not self._python and not has_tensor_inputs(self._func, args, kwargs):
            # no Python to trace, no tensor in it
            return _Attempt(self, args, kwargs).plain(Outcome.NO_TENSOR)
        with in_progress(self._name):
            if self._compare:
                func = self._breaking.func  # a generator function, run to its end
                result = call_both(
                    func, self._attempt, args, kwargs, name=self._name, owner=self._func
                )
            else:
                result = self._attempt(args, kwargs)
        return iter(result) if self._lazy else result

    def _attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        attempt = _Attempt(self, args, kwargs)
        if self._mode is Mode.FULLGRAPH:
            return attempt.fullgraph(must=self._budget.whole or self._strict)
        return attempt.breaking()

    def finish(self, call: Call) -> None:
        """Count a call that has ended."""
        self._tally.add(call)
        publish(call)

    def check(self, call: Call) -> None:
        """Raise if `call` exceeds the budget of its function."""
        bugs = [site for site in call.sites if site.torch_bug is not None]
        if bugs and self._fail_on_torch_bugs:
            raise TorchBugError(torch_bug_message(self._name, bugs))
        limit = self._budget.graph_breaks
        if limit is not None and self._mode is Mode.COMPILE:
            sites = [site for site in call.sites if site.torch_bug is None]
            count = float("inf") if any(site.skips_frame for site in sites) else len(sites)
            if count > limit:
                raise GraphBreakError(graph_break_message(self._name, sites, limit))
        most = self._budget.recompiles
        if most is not None and call.compiled:
            recompiles, guards = self._tally.recompiles()
            if recompiles > most:
                raise RecompileError(recompile_message(self._name, recompiles, most, guards))


class _Attempt:
    """One call, through as many engines as it takes."""

    def __init__(self, owner: CompiledCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._owner, self._args, self._kwargs = owner, args, kwargs
        self._start = time.perf_counter()
        self._logs: list[CallLog] = []
        self._saved: Snapshot | None = None

    def plain(self, outcome: Outcome) -> Any:
        """Call the function itself."""
        try:
            result = self._owner._func(*self._args, **self._kwargs)  # noqa: SLF001
        except BaseException:  # pytest.skip in the function, say
            self._finish(Outcome.RAISED)
            raise
        self._finish(outcome)
        return result

    def breaking(self) -> Any:
        """Call in compile mode."""
        try:
            result = self._run(self._owner._breaking)  # noqa: SLF001
        except Exception as error:
            if not is_compile_failure(error):
                self._finish(Outcome.RAISED, sites=charged_sites(self._logs[-1]))
                raise
            failure = error
        else:
            log = self._logs[-1]
            return self._returned(result, log, sites=self._seen(log))
        self._restore()
        return self._replayed(failure, GraphBreakError)

    def fullgraph(self, *, must: bool) -> Any:
        """Call as one whole graph; what is not whole fails if it must be, else is broken up."""
        try:
            result = self._run(self._owner._whole)  # noqa: SLF001
        except Exception as error:
            if not is_compile_failure(error):
                self._finish(Outcome.RAISED)
                raise
            failure = error
        else:
            return self._returned(result, self._logs[-1], sites=self._seen(self._logs[-1]))
        self._restore()
        if must or _is_limit(failure):
            return self._replayed(failure, FullGraphError)
        return self.breaking()

    def _run(self, engine: _Engine) -> Any:
        log = engine.new_log()
        log.before = self._save
        self._logs.append(log)
        try:
            return engine(log, self._args, self._kwargs)
        except Exception:
            raise  # the caller finds out whose it is
        except BaseException:  # KeyboardInterrupt, or pytest.skip in the function
            self._finish(Outcome.RAISED)
            raise

    def _save(self) -> None:
        # Of whole compiled code nothing is traced after it has started, so that a failure to trace
        # cannot follow, and the cost of a snapshot, 60 us, is spared.
        self._saved = Snapshot(self._args, self._kwargs, self._owner._func)  # noqa: SLF001

    def _restore(self) -> None:
        if self._saved is not None:
            self._saved.restore()
            self._saved = None

    def _seen(self, log: CallLog) -> tuple[BreakSite, ...]:
        """Return the sites of a call that returned; one that Dynamo never saw is a site too."""
        sites = charged_sites(log)
        if sites or outcome_of(log, self._has_tensors) is not Outcome.FRAME_SKIPPED:
            return sites
        return (unseen(self._owner._func, self._owner._name),)  # noqa: SLF001

    def _has_tensors(self) -> bool:
        return has_tensor_inputs(self._owner._func, self._args, self._kwargs)  # noqa: SLF001

    def _returned(self, result: Any, log: CallLog, *, sites: tuple[BreakSite, ...]) -> Any:
        outcome = outcome_of(log, self._has_tensors)
        whole = not sites and not log.over_limit and outcome is not Outcome.FRAME_SKIPPED
        call = self._finish(outcome, whole=whole, sites=sites)
        must_be_whole = self._owner._mode is Mode.FULLGRAPH and (  # noqa: SLF001
            self._owner._budget.whole or self._owner._strict  # noqa: SLF001
        )
        if must_be_whole and sites and any(site.torch_bug is None for site in sites):
            raise FullGraphError(not_whole_message(self._owner._name, call.sites))  # noqa: SLF001
        self._owner.check(call)
        return result

    def _replayed(self, failure: Exception, kind: type[GraphBreakError | FullGraphError]) -> Any:
        """Call eagerly after compiling failed: what eager code does is the truth."""
        owner = self._owner
        bystander = CallLog()
        push(bystander)  # tagged functions that it calls stay plain
        try:
            result = owner._breaking.func(*self._args, **self._kwargs)  # noqa: SLF001
        except BaseException:
            self._finish(Outcome.RAISED)
            raise
        finally:
            pop(bystander)
        site = site_of(break_of(failure))
        if _is_limit(failure):
            self._finish(Outcome.OVER_LIMIT)
            return result
        if site.torch_bug is not None:
            failed = f"torch bug: {site.torch_bug}"
            self._finish(Outcome.TORCH_BUG, sites=(site,), failure=failed)
            if owner._fail_on_torch_bugs:  # noqa: SLF001
                raise TorchBugError(torch_bug_message(owner._name, (site,))) from failure  # noqa: SLF001
            return result
        call = self._finish(Outcome.FAILED, sites=(site,), failure=site.reason)
        if kind is FullGraphError:
            raise FullGraphError(not_whole_message(owner._name, call.sites)) from failure  # noqa: SLF001
        try:
            owner.check(call)
        except GraphBreakError as error:
            raise error from failure
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
        sites = tuple(placed(site, owner._func, owner._name) for site in sites)  # noqa: SLF001
        call = Call(
            name=owner._name,  # noqa: SLF001
            mode=owner._mode,  # noqa: SLF001
            backend=owner._settings.backend,  # noqa: SLF001
            outcome=outcome,
            whole=whole,
            sites=sites,
            compiled=tuple(item for log in logs for item in compiled_specialisations(log)),
            over_limit=any(log.over_limit for log in logs),
            graphs=sum(log.graphs_compiled for log in logs),
            graphs_run=sum(log.graphs_run for log in logs),
            failure=failure,
            compile_seconds=sum(log.seconds for log in logs),
            seconds=time.perf_counter() - self._start,
        )
        owner.finish(call)
        return call


def _is_limit(error: BaseException) -> bool:
    return type(error).__name__ == "FailOnRecompileLimitHit"
