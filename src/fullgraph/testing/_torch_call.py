"""A function called through torch.compile, every call recorded and held to its budget."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from fullgraph.errors import (
    GraphBreakError,
    RecompileError,
    TorchBugError,
)
from fullgraph.testing._adaptors import is_generator_function, traceable
from fullgraph.testing._alongside import call_both
from fullgraph.testing._attempt import Attempt
from fullgraph.testing._dynamo.calls import inside_call
from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._engine import Engine, Settings
from fullgraph.testing._messages import (
    graph_break_message,
    recompile_message,
    torch_bug_message,
)
from fullgraph.testing._modes import Budget, Mode
from fullgraph.testing._names import display_name
from fullgraph.testing._progress import in_progress
from fullgraph.testing._records import FunctionRecord, Outcome
from fullgraph.testing._tally import Call, Tally, publish
from fullgraph.testing._target import has_tensor_inputs, is_python

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CompiledCall", "Settings"]


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
        errors_as_compiled: bool = False,
        name: str | None = None,
    ) -> None:
        torch_release()  # a missing or old torch is named here, not at the first call
        self.func = func
        self.mode = mode
        self.budget = budget or Budget()
        self.settings = settings or Settings()
        self.strict = strict
        self._compare = compare
        self.fail_on_torch_bugs = fail_on_torch_bugs
        # whoever compares wants to see what compiled code raises, not what eager code would
        self.errors_as_compiled = errors_as_compiled or compare
        self.name = name or display_name(func)
        self._tally = Tally(self.name, mode, self.settings.backend)
        self._lazy = is_generator_function(func)
        self._python = is_python(func)
        target = traceable(func)
        self.breaking = Engine(target, self.name, self.settings, fullgraph=False)
        self.whole = Engine(target, self.name, self.settings, fullgraph=True)

    def __reduce__(self) -> tuple[Any, ...]:
        again = functools.partial(
            CompiledCall,
            budget=self.budget,
            settings=self.settings,
            strict=self.strict,
            compare=self._compare,
            fail_on_torch_bugs=self.fail_on_torch_bugs,
            errors_as_compiled=self.errors_as_compiled,
            name=self.name,
        )
        return again, (self.func, self.mode)

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
        __tracebackhide__ = True
        if inside_call():  # it is part of another function's capture, and recorded there
            return self.func(*args, **kwargs)
        if self.mode is Mode.EAGER:
            return Attempt(self, args, kwargs).plain(Outcome.EAGER)
        if not self._python and not has_tensor_inputs(self.func, args, kwargs):
            # no Python to trace, no tensor in it
            return Attempt(self, args, kwargs).plain(Outcome.NO_TENSOR)
        with in_progress(self.name):
            if self._compare:
                func = self.breaking.func  # a generator function, run to its end
                result = call_both(
                    func, self._attempt, args, kwargs, name=self.name, owner=self.func
                )
            else:
                result = self._attempt(args, kwargs)
        return iter(result) if self._lazy else result

    def _attempt(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        attempt = Attempt(self, args, kwargs)
        if self.mode is Mode.FULLGRAPH:
            return attempt.fullgraph(must=self.budget.whole or self.strict)
        return attempt.breaking()

    def finish(self, call: Call) -> None:
        """Count a call that has ended."""
        self._tally.add(call)
        publish(call)

    def check(self, call: Call) -> None:
        """Raise if `call` exceeds the budget of its function."""
        __tracebackhide__ = True
        bugs = [site for site in call.sites if site.torch_bug is not None]
        if bugs and self.fail_on_torch_bugs:
            raise TorchBugError(torch_bug_message(self.name, bugs))
        limit = self.budget.graph_breaks
        if limit is not None and self.mode is Mode.COMPILE:
            sites = [site for site in call.sites if site.torch_bug is None]
            count = float("inf") if any(site.skips_frame for site in sites) else len(sites)
            if count > limit:
                raise GraphBreakError(
                    graph_break_message(self.name, sites, limit, self.budget.arguments[0])
                )
        most = self.budget.recompiles
        if most is not None and call.compiled:
            recompiles, guards = self._tally.recompiles()
            if recompiles > most:
                raise RecompileError(
                    recompile_message(self.name, recompiles, most, guards, self.budget.arguments[1])
                )
