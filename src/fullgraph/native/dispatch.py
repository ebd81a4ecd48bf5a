"""From a call to its compiled loop, under Dynamo's guards.

Dynamo captures one step of a body and writes down what that capture depends on: closures, globals,
dtypes, grad mode. Every call checks those guards; if none of the captures so far fits, the body is
captured again. A plain ``torch.compile`` call spends most of its time outside the guards, so where
torch is a version whose private cache API is known, its entries are read and checked directly.
This is the only file that touches that API; on other versions the plain call is made.
"""

from __future__ import annotations

import itertools
import threading
import time
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import optree
import torch

from fullgraph.native.capture import Captured, lower, read_marks
from fullgraph.native.convert import refusal
from fullgraph.native.direct import Direct, direct_function
from fullgraph.native.gradient.function import differentiable_run
from fullgraph.native.gradient.joint import Activity, Joint, MarkedStep, find_activity, trace_joint
from fullgraph.native.gradient.loops import GradientLoops
from fullgraph.native.guards import needed_guards
from fullgraph.native.inductor import CAPTURING
from fullgraph.native.lanes import make_plan
from fullgraph.native.ops import Refused
from fullgraph.native.outer_state import changes_outer_state
from fullgraph.native.runtime import CompiledLoop, compile_loop
from fullgraph.native.tensor_index import needs_tensor_indices, with_tensor_indices
from fullgraph.native.while_runtime import CompiledWhile, compile_while

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Site", "Specialisation", "cache_entries_known"]

RECOMPILE_LIMIT: Final = 64
# Versions whose `_debug_get_cache_entry_list` is known to give live entries with guard managers.
KNOWN_TORCH: Final = ((2, 14), (2, 15))

_numbers = itertools.count()


def cache_entries_known() -> bool:
    """Whether this torch is a version whose cache entries can be read."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) not in KNOWN_TORCH:
        return False
    return hasattr(torch._dynamo.eval_frame, "_debug_get_cache_entry_list")  # noqa: SLF001


class _Invocation(threading.local):
    """What a call tells the compiled loop beside what Dynamo passes on, and what it answers."""

    xs: Sequence[torch.Tensor] = ()
    steps: int = 0
    direction: tuple[bool, int] = (False, 0)  # reverse, and steps of a segment
    ran: Specialisation | None = None
    results: Sequence[torch.Tensor] = ()


_invocation = _Invocation()

Results = tuple[Any, Any]


def _last_ran() -> Specialisation | None:
    """Return what ran last in this thread."""
    return _invocation.ran


@dataclass(eq=False)
class Specialisation:
    """One capture of a body, compiled.

    Attributes
    ----------
    captured, compiled
        The loop, and the function that runs it.
    capture_seconds, build_seconds : float
        What the first call spent on it.
    direct : callable or None
        The loop as a function of the caller's frame, written after its first run.
    direct_steps : int
        Up to how many steps it may run.
    gradient : (GradientLoops, Activity), optional
        The differentiable form, where an input requires grad.
    state_requires_grad : bool
        Whether it is a while loop whose first state requires grad: after no step it is the result.
    """

    captured: Captured
    compiled: CompiledLoop | CompiledWhile
    threads: int
    capture_seconds: float = 0.0
    build_seconds: float = 0.0
    direct: Direct | None = None
    direct_steps: int = 0
    gradient: tuple[GradientLoops, Activity] | None = None
    state_requires_grad: bool = False

    def run(self, *args: torch.Tensor) -> list[torch.Tensor]:
        """Run the loop on the arguments of the captured graph, as Dynamo's bytecode calls it."""
        captured = self.captured
        _invocation.ran = self
        if self.gradient is not None:
            results = self._run_differentiably(args)
        else:
            results = _invocation.results = self._run_plainly(args)
            n = len(captured.carry)
            if self.state_requires_grad and not int(results[n]):
                results = [*(args[i].clone() for i in captured.carry), *results[n:]]
        return [results[i] for i in captured.outputs]

    def _run_plainly(self, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        captured = self.captured
        return self.compiled(
            [
                *[args[i] for i in captured.carry],
                *_invocation.xs,
                *[args[i] for i in captured.consts],
                *captured.constants,
            ],
            _invocation.steps,
            reverse=_invocation.direction[0],
            threads=self.threads,
        )

    def _run_differentiably(self, args: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
        assert self.gradient is not None
        captured, (loops, activity) = self.captured, self.gradient
        steps, counts = _invocation.steps, list[torch.Tensor]()
        reverse, segment = _invocation.direction
        if captured.loop.going is not None:
            # How many steps there are is found first; then those are taken as a scan takes them,
            # which keeps as many rows.
            with torch.no_grad():
                counts = self._run_plainly(args)[len(captured.carry) :]
            steps = int(counts[0])
            if not steps:
                return [*(args[i].clone() for i in captured.carry), *counts]
        results = differentiable_run(
            loops,
            activity,
            (
                [args[i] for i in captured.carry],
                _invocation.xs,
                [args[i] for i in loops.joint.const_places],
            ),
            steps,
            reverse=reverse,
            segment=segment,
        )
        return [*results, *counts]

    def learn(self, results: Results) -> Direct | None:
        """Write the direct function, once the structure of the results is known."""
        captured = self.captured
        if self.gradient is not None or self.state_requires_grad:
            return None
        tree: Any = results
        leaves: list[Any] = optree.tree_leaves(tree)
        found = {id(result): i for i, result in enumerate(_invocation.results)}
        order = [found.get(id(leaf), -1) for leaf in leaves]
        if sorted(order) != list(range(len(found))):
            return None
        if len(captured.sources) != len(captured.carry) + len(captured.consts):
            return None
        steps = self.compiled.direct_steps(self.threads)
        if steps:
            # The expressions are Dynamo's own names for the tensors its guards have checked.
            self.direct = direct_function(
                self.compiled, captured.sources, captured.constants, results, order
            )
            self.direct_steps = steps
        return self.direct


@dataclass(eq=False)
class Site:
    """All captures of one function, which Dynamo keeps apart by its code object.

    Parameters
    ----------
    function : callable
        ``function(body, init, x) -> (carry, y)``, to be captured; its code is copied, so that each
        site has its own cache.
    vector_math : str
    threads : int
        As for the adapter.
    fast : bool
        Whether cache entries are read directly.
    fixed : tuple of str
        Parts of sources that are the same for all bodies of this site, and are not guarded.
    watch_state : bool
        Whether torch's global state (default dtype, grad mode) is guarded; the caller who says no
        sets it for each capture.
    """

    function: Callable[[Any, Any, Any], Results]
    vector_math: str = "sleef"
    threads: int = 1
    fast: bool = field(default_factory=cache_entries_known)
    fixed: tuple[str, ...] = ()
    watch_state: bool = True
    specialisations: list[Specialisation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._entries = torch._dynamo.eval_frame._debug_get_cache_entry_list  # noqa: SLF001
        # Code that Dynamo made, kept with what it runs; by identity, since entries come and go.
        self._ran: dict[int, tuple[types.CodeType, Direct, int]] = {}
        self._tensor_indices = False
        self._prepare(self.function)

    def _prepare(self, source: Callable[..., Any]) -> None:
        """Make `source` what is captured from now on."""
        name = f"{source.__code__.co_name}_{next(_numbers)}"
        self._code = source.__code__.replace(co_name=name)
        self._globals = source.__globals__
        own = types.FunctionType(self._code, self._globals, name, None, source.__closure__)
        self._slow = torch.compile(
            own,
            fullgraph=True,
            dynamic=False,
            backend=self._backend,
            options={"guard_filter_fn": self._needed},
        )

    def try_call(
        self,
        body: Any,
        init: Any,
        x: Any,
        xs: Sequence[torch.Tensor],
        steps: int,
        *,
        reverse: bool,
        segment: int = 0,
    ) -> Results | None:
        """Run a loop that was captured before, if the guards of one hold; else return None."""
        if not self.fast:
            return None
        frame = {"body": body, "init": init, "x": x}
        for entry in self._entries(self._code):
            if not entry.guard_manager.check(frame):
                continue
            code = entry.code
            known = self._ran.get(id(code))
            if known is not None and steps <= known[2]:
                order = (steps - 1, -1) if reverse else (0, 1)
                return known[1](frame, self._globals, xs, steps, *order)
            function = types.FunctionType(code, self._globals)
            direction = (reverse, segment)
            return self._run(function, (body, init, x), xs, steps, direction, code=code)
        return None

    def call(
        self,
        body: Any,
        init: Any,
        x: Any,
        xs: Sequence[torch.Tensor],
        steps: int,
        *,
        reverse: bool,
        segment: int = 0,
    ) -> Results:
        """Run a loop, captured now if need be.

        Raises
        ------
        Exception
            What Dynamo raises when it cannot capture, or what `lower` and `compile_loop` raise as
            its ``inner_exception``.
        """
        outer, CAPTURING.active = CAPTURING.active, True
        try:
            with torch._dynamo.config.patch(  # noqa: SLF001
                specialize_float=True, recompile_limit=RECOMPILE_LIMIT, suppress_errors=False
            ):
                try:
                    return self._run(self._slow, (body, init, x), xs, steps, (reverse, segment))
                except Exception as error:
                    if self._tensor_indices or not needs_tensor_indices(error):
                        raise
                self._tensor_indices = True
                self._prepare(with_tensor_indices(self.function))
                return self._run(self._slow, (body, init, x), xs, steps, (reverse, segment))
        finally:
            CAPTURING.active = outer

    def _run(
        self,
        function: Callable[..., Results],
        args: tuple[Any, Any, Any],
        xs: Sequence[torch.Tensor],
        steps: int,
        direction: tuple[bool, int],
        *,
        code: types.CodeType | None = None,
    ) -> Results:
        """Call what Dynamo made, and learn from the first run how to do without."""
        outer = (_invocation.xs, _invocation.steps, _invocation.direction)
        _invocation.xs, _invocation.steps, _invocation.direction = xs, steps, direction
        _invocation.ran = None
        try:
            results = function(*args)
            ran = _last_ran()
        finally:
            _invocation.xs, _invocation.steps, _invocation.direction = outer
        if code is not None and ran is not None and ran.direct is None:
            direct = ran.learn(results)
            if direct is not None:
                self._ran[id(code)] = (code, direct, ran.direct_steps)
        _invocation.results = ()
        return results

    def _needed(self, guards: Sequence[Any]) -> list[bool]:
        return needed_guards(guards, self.fixed, watch_state=self.watch_state)

    def _backend(
        self, gm: torch.fx.GraphModule, examples: list[torch.Tensor]
    ) -> Callable[..., list[torch.Tensor]]:
        begun = time.perf_counter()
        if changes_outer_state():
            raise refusal(
                "it changes Python state outside of it (appends to a list, sets an attribute)",
                "",
                "Return what should be kept as carry or y",
            )
        captured = lower(gm)
        gradient: tuple[GradientLoops, Activity] | None = None
        try:
            joint = self._differentiated(gm)
            lowered = time.perf_counter()
            compiled: CompiledLoop | CompiledWhile
            if joint is not None:
                loops = GradientLoops(joint[0], self.vector_math, self.threads)
                gradient, compiled = (loops, joint[1]), loops.forward_compiled
            if captured.loop.going is not None:
                compiled = compile_while(
                    captured.loop, make_plan(captured.loop), vector_math=self.vector_math
                )
            elif joint is None:
                compiled = compile_loop(
                    captured.loop,
                    make_plan(captured.loop, threads=self.threads),
                    vector_math=self.vector_math,
                )
        except Refused as reason:
            raise refusal(str(reason), "", "Use only what has a C form") from None
        found = Specialisation(
            captured,
            compiled,
            self.threads,
            capture_seconds=lowered - begun,
            build_seconds=time.perf_counter() - lowered,
            gradient=gradient,
            state_requires_grad=captured.loop.going is not None
            and torch.is_grad_enabled()
            and any(examples[i].requires_grad for i in captured.carry),
        )
        self.specialisations.append(found)
        return found.run

    @staticmethod
    def _differentiated(gm: torch.fx.GraphModule) -> tuple[Joint, Activity] | None:
        """Return the step with its derivative, if results depend on an input that requires grad."""
        if not torch.is_grad_enabled():
            return None
        marked = read_marks(gm)
        if not any(n.meta["example_value"].requires_grad for n in marked.arguments):
            return None
        step = MarkedStep(marked.step)  # the condition is no result
        activity = find_activity(step)
        return (trace_joint(step, activity), activity) if activity.any else None
