"""while_loop of the native adapter: condition and body as one C function."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.loops import WhileResult, _eager, _torch_while
from fullgraph.loops._eager_torch import ops_for_this_call
from fullgraph.loops._plan import first_device
from fullgraph.loops._torch_cond import is_traced
from fullgraph.loops._tree import flatten, unflatten
from fullgraph.native.capture import mark
from fullgraph.native.cells import shared_cells
from fullgraph.native.dispatch import Site
from fullgraph.native.emit import UNBOUNDED
from fullgraph.native.gradient.function import is_of_hook
from fullgraph.torch_loop._driver import CarryChangedError
from fullgraph.torch_loop._failures import translate
from fullgraph.torch_loop._native_step import NAME, SITES, reason_of, step_of
from fullgraph.torch_loop._quiet import quiet_compilation
from fullgraph.torch_loop._rules import check_state, refuse
from fullgraph.torch_loop._skeleton import rebuild, skeleton_of
from fullgraph.torch_loop._transforms import active_transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.native.dispatch import Specialisation
    from fullgraph.torch_loop._rules import Rules

__all__ = ["NativeWhile", "captured_turn", "plain_while", "short_while"]

PyTree = Any
Cond = Any
Body = Any

#: A failing loop is run plainly to find the reason, so many steps at most.
_MOST_PLAIN_STEPS = 128


class NativeWhile:
    """Runs while loops natively and keeps what it has compiled.

    Parameters
    ----------
    rules : Rules
        What the adapter takes.
    vector_math : str
        As for the adapter.
    """

    def __init__(self, rules: Rules, vector_math: str) -> None:
        self.rules = rules
        self._vector_math = vector_math
        # By the ids of the codes of condition and body, which are kept alive beside, and what
        # their closures share.
        self.sites: OrderedDict[tuple[int, int, tuple[int, ...]], tuple[Any, Site]] = OrderedDict()

    def run(
        self, cond: Cond, body: Body, init: PyTree, *, max_steps: int | None = None
    ) -> PyTree | WhileResult:
        """Run a while loop; see `fullgraph.while_loop`."""
        if is_traced():
            ops = ops_for_this_call()
            traced = _torch_while.while_loop(cond, body, init, max_steps=max_steps, ops=ops)
            if traced is not _torch_while.NOT_TRACED:
                return traced
            return plain_while(cond, body, init, max_steps=max_steps)
        init = self._prepared(cond, body, init, max_steps)
        site, limit = self.site(cond, body), UNBOUNDED if max_steps is None else max_steps
        results = site.try_call((cond, body), init, None, (), limit, reverse=False)
        if results is None:
            # One plain step finds what a capture cannot say: exceptions of the body, a changed
            # carry, a condition that is no truth value, writes into the carry.
            with torch.random.fork_rng(devices=()):
                first = plain_while(cond, body, init, max_steps=min(1, limit))
            if int(first.steps) == 0:  # nothing to run, and the body may not fit this state
                return first.state if max_steps is None else first
            results = self._captured(site, cond, body, init, limit)
        return results[0] if max_steps is None else WhileResult(results[0], *results[1])

    def compile(self, cond: Cond, body: Body, init: PyTree) -> None:
        """Compile a loop for a state, whether or not it would take a step from there."""
        init = self._prepared(cond, body, init, None)
        self._captured(self.site(cond, body), cond, body, init, 0)

    def _prepared(self, cond: Cond, body: Body, init: PyTree, max_steps: int | None) -> PyTree:
        """Check the arguments; return the carry with strong leaves."""
        leaves: list[Any] = []
        skeleton = skeleton_of(init, leaves)
        check_state(self.rules, skeleton, leaves, max_steps)
        transform = active_transform()
        if transform:
            raise refuse(
                self.rules, f"{transform} is active, and is not supported through this loop."
            )
        strong = [
            leaf.resolve_neg() if leaf.is_neg() else leaf
            for leaf in _strong(cond, body, rebuild(skeleton, leaves))
        ]
        return rebuild(skeleton, strong)

    @staticmethod
    def _captured(site: Site, cond: Cond, body: Body, init: PyTree, limit: int) -> Any:
        """Capture the loop and run it, or explain why that fails."""
        try:
            with quiet_compilation():
                return site.call((cond, body), init, None, (), limit, reverse=False)
        except Exception as error:  # explained below, outside of its context
            if is_of_hook(error):
                raise
            cause, failure = error, reason_of(error)
        plain_while(cond, body, init, max_steps=min(limit, _MOST_PLAIN_STEPS))
        raise translate(NAME, failure) from cause

    def site(self, cond: Cond, body: Body) -> Site:
        """Return where captures of a condition and a body are kept."""
        codes = [getattr(f, "__code__", None) or type(f) for f in (cond, body)]
        key = id(codes[0]), id(codes[1]), shared_cells(cond, body)
        known = self.sites.get(key)
        if known is None:
            known = codes, Site(captured_turn, self._vector_math)
            self.sites[key] = known
            if len(self.sites) > SITES:
                self.sites.popitem(last=False)
        return known[1]

    def specialisations(self) -> list[Specialisation]:
        """Return everything that was compiled and is still remembered."""
        return [s for _, site in self.sites.values() for s in site.specialisations]


def short_while(loops: NativeWhile, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run` with a short cut for a condition and body that were compiled before.

    As for scans, what is checked of the carry was true at the capture, and Dynamo's guards say
    whether it still is.
    """
    sites, compiling = loops.sites, torch.compiler.is_dynamo_compiling
    short = loops.rules.max_steps is None and loops.rules.max_elements is None

    def native_while(
        cond: Cond, body: Body, init: PyTree, *, max_steps: int | None = None
    ) -> PyTree | WhileResult:
        if short and not compiling():
            codes = getattr(cond, "__code__", None), getattr(body, "__code__", None)
            site = sites.get((id(codes[0]), id(codes[1]), shared_cells(cond, body)))
            if site is not None and active_transform() is None:
                limit = UNBOUNDED if max_steps is None else max_steps
                found = site[1].try_call((cond, body), init, None, (), limit, reverse=False)
                if found is not None:
                    if max_steps is None:
                        return found[0]
                    return WhileResult(found[0], *found[1])
        return run(cond, body, init, max_steps=max_steps)

    def inner(
        cond: Cond, body: Body, init: PyTree, *, max_steps: int | None = None
    ) -> PyTree | WhileResult:
        """Run a loop inside of a body: traced with it, and plain in the rehearsal."""
        if is_traced():
            return loops.run(cond, body, init, max_steps=max_steps)
        return plain_while(cond, body, init, max_steps=max_steps)

    native_while.loops = loops  # type: ignore[attr-defined]
    native_while.inner = inner  # type: ignore[attr-defined]
    return native_while


def plain_while(
    cond: Cond, body: Body, init: PyTree, *, max_steps: int | None
) -> PyTree | WhileResult:
    """Run a while loop as plain Python."""
    ops = ops_for_this_call()
    state, steps, done = _eager.while_loop(cond, body, init, max_steps=max_steps, ops=ops)
    if max_steps is None:
        return state
    device = first_device(flatten(state)[0], ops)
    return WhileResult(state, ops.scalar(steps, None, device), ops.scalar(done, None, device))


def _strong(cond: Cond, body: Body, init: PyTree) -> list[Any]:
    """Return the leaves of the carry, Python scalars as tensors of the dtype they take."""
    leaves, treedef = flatten(init)
    ops = ops_for_this_call()
    strong = _eager.strong_state(cond, body, leaves, treedef, ops, first_device(leaves, ops))
    ordered: list[Any] = []
    skeleton_of(unflatten(treedef, strong), ordered)
    return ordered


def captured_turn(
    body: tuple[Cond, Body], init: PyTree, x: None
) -> tuple[PyTree, tuple[torch.Tensor, torch.Tensor]]:
    """Ask the condition and take one step; this is what Dynamo captures.

    Parameters are called what `Site` calls them, since guards look them up by name.
    """
    del x
    cond, advance = body
    leaves: list[Any] = []
    skeleton = skeleton_of(init, leaves)
    carry = [mark(leaf, "carry", i) for i, leaf in enumerate(leaves)]
    going = truth_of(cond(rebuild(skeleton, carry)))
    new, _ = step_of(lambda state, _: (advance(state), None), skeleton, None, carry, [])
    steps = mark(torch.zeros((), dtype=torch.int64), "steps", 0)
    return (
        rebuild(skeleton, [mark(leaf, "new", i) for i, leaf in enumerate(new)]),
        (steps, mark(going, "going", 0)),
    )


def truth_of(verdict: Any) -> torch.Tensor:
    """Return what a condition gave as a tensor; what is wrong with it the rehearsal has said."""
    if isinstance(verdict, bool):
        return torch.full((), verdict, dtype=torch.bool)
    if not isinstance(verdict, torch.Tensor) or verdict.dtype != torch.bool or verdict.ndim:
        raise CarryChangedError
    return verdict
