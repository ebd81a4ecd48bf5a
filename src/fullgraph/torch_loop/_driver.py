"""The driver that all torch adapters share: flatten, check, run an engine, explain failures.

An adapter is this driver with `Rules` (what it takes) and an `Engine` (how flat loops run):
composition, so that a new adapter writes an engine and nothing else.

Outside of tracing a call goes::

    flatten and check the arguments         UnsupportedLoopError, UsageError
    engine.scan(call)                       compiled code
    if it raises NeedsRehearsal             a specialisation is about to be compiled:
        call.rehearse()                     one step of the plain driver, for the body's own
        engine.scan(call, rehearsed=True)   exceptions, carry rules and in-place writes
    if it raises anything else              the plain driver runs: what that raises is the answer,
                                            else LoopCaptureError or LoopCompilationError with
                                            torch's exception as cause
    copies where results share memory

Inside a user's own ``torch.compile`` it goes ``flatten, check, engine.inline_scan(call)``, all of
it traced by Dynamo.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from fullgraph.errors import LoopError
from fullgraph.loops import _eager
from fullgraph.loops._eager_torch import ops_for_this_call
from fullgraph.loops._foreign import whole_driver
from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._torch_cond import is_traced
from fullgraph.native.gradient.function import is_of_hook
from fullgraph.torch_loop._checkpoint import Checkpointed
from fullgraph.torch_loop._failures import translate
from fullgraph.torch_loop._rules import Rules, check_arguments, check_carried, check_output, refuse
from fullgraph.torch_loop._skeleton import Skeleton, collect, rebuild, skeleton_of
from fullgraph.torch_loop._transforms import active_transform
from fullgraph.torch_loop._writes import NoOutsideWrites

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "CarryChangedError",
    "Engine",
    "FlatScan",
    "NeedsRehearsal",
    "TorchLoopDriver",
    "apart",
    "flat_step",
    "same_form",
]

PyTree = Any
Tensors = list[Any]

#: A failing scan is run plainly to find the reason; a long one stops after so many steps.
_MOST_PLAIN_STEPS = 128
#: The adapter whose body is running, outside of tracing: some engines do not nest.
_RUNNING: ContextVar[str] = ContextVar("fullgraph_torch_loop", default="")


class CarryChangedError(LoopError):
    """Raised inside a capture, where no message can be made; the plain driver words it."""


def flat_step(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    carry_skeleton: Skeleton,
    row_skeleton: Skeleton,
    carry: Tensors,
    row: Tensors,
) -> tuple[Tensors, PyTree]:
    """Run one step of a body on flat leaves. Traceable: this is what engines capture.

    Parameters
    ----------
    body : callable
        As the user gave it.
    carry_skeleton, row_skeleton : Skeleton
        Structures of carry and x.
    carry, row : list of Tensor
        Their leaves.

    Returns
    -------
    carry : list of Tensor
        Leaves of the new carry, with structure, shapes and dtypes as before.
    y : PyTree
        As the body returned it.

    Raises
    ------
    CarryChangedError
        If structure, shape or dtype changed. The plain driver words it.
    """
    result = body(rebuild(carry_skeleton, carry), rebuild(row_skeleton, row))
    if type(result) is not tuple or len(result) != 2:
        raise CarryChangedError
    new, y = result
    leaves: list[Any] = []
    if not collect(carry_skeleton, new, leaves):
        raise CarryChangedError
    for index, before in enumerate(carry):
        after = leaves[index]
        if type(after) in SCALAR_KINDS and before.ndim == 0:  # which ones fit, the rehearsal says
            leaves[index] = torch.full((), after, dtype=before.dtype, device=before.device)
        elif not same_form(before, after):
            raise CarryChangedError
    return leaves, y


def same_form(before: Any, after: Any) -> bool:
    """Whether `after` is a tensor of the shape and dtype of the tensor `before`. Traceable."""
    return (
        isinstance(after, torch.Tensor)
        and after.dtype == before.dtype
        and after.shape == before.shape
    )


@dataclass(frozen=True, eq=False)
class FlatScan:
    """One scan call, flattened and checked.

    Attributes
    ----------
    body : callable
        As the user gave it.
    carry, row : Skeleton
        Structures of the carry and of one x (None without xs).
    init, xs : list of Tensor
        Leaves, as the user gave them: not copied, perhaps not contiguous, perhaps one tensor twice.
        Python numbers are still among `init` where the rules allow them.
    length : int
        Number of steps.
    reverse : bool
        Whether steps go from the last row to the first.
    rules : Rules
        Under which it was checked.
    checkpointed : Checkpointed, optional
        Around the body, where the call asked for gradients in less memory.
    """

    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]
    carry: Skeleton
    row: Skeleton
    init: list[Any]
    xs: Tensors
    length: int
    reverse: bool
    rules: Rules
    checkpointed: Checkpointed | None = None

    def rehearse(self) -> None:
        """Run the first step plainly, without gradients, and raise whatever is wrong with it.

        The driver calls this before a specialisation is compiled, outside of tracing. It finds what
        a capture cannot say or does not see: exceptions of the body, changed carries, writes into
        loans or into tensors closed over, and outputs that the rules refuse.
        """
        if self.length == 0:
            return
        seen: list[Any] = []

        def body(carry: PyTree, x: PyTree) -> Any:
            result = self.body(carry, x)
            if type(result) is tuple and len(result) == 2:
                seen[:] = result
            return result

        # An engine that takes nested loops compiles them in this step, which a function mode would
        # be traced into; it finds writes to the outside in what it has captured.
        watch = contextlib.nullcontext() if self.rules.nested else NoOutsideWrites(self.rules)
        with torch.random.fork_rng(devices=()), watch:
            self._plainly(body, 1)
        carried: list[Any] = []
        check_carried(self.rules, skeleton_of(seen[0], carried), carried)
        leaves: list[Any] = []
        check_output(self.rules, skeleton_of(seen[1], leaves), leaves, self.length)

    def run_plainly(self) -> None:
        """Run the plain driver over the scan, or the start of a long one, for what it raises."""
        self._plainly(self.body, min(self.length, _MOST_PLAIN_STEPS))

    def _plainly(self, body: Callable[..., Any], steps: int) -> None:
        first = self.length - steps if self.reverse else 0
        rows = [leaf[first : first + steps] for leaf in self.xs]
        _eager.scan(
            body,
            rebuild(self.carry, self.init),
            rebuild(self.row, rows),
            length=steps,
            reverse=self.reverse,
            ops=ops_for_this_call(),
        )


class NeedsRehearsal(Exception):  # noqa: N818 - a request, not an error
    """Raised by an engine that is about to compile a specialisation that was not rehearsed."""


class Engine(Protocol):
    """How flat loops run."""

    def scan(self, call: FlatScan, *, rehearsed: bool) -> tuple[list[Any], PyTree]:
        """Run a scan compiled; return the leaves of the last carry, and ys as a tree.

        Raise `NeedsRehearsal` before compiling unless `rehearsed`, and anything else on failure:
        the driver finds the reason. Results may share memory among themselves and with `init` and
        `xs`; the driver copies those.
        """

    def inline_scan(self, call: FlatScan) -> tuple[list[Any], PyTree]:
        """Emit a scan into the graph that somebody else's ``torch.compile`` is capturing.

        There is no rehearsal here, so a body may write into what it is handed: hand it clones.
        """


class TorchLoopDriver:
    """A scan for torch, with an engine and rules.

    Parameters
    ----------
    rules : Rules
        What is taken.
    engine : Engine
        What runs it.
    """

    def __init__(self, rules: Rules, engine: Engine) -> None:
        self._rules = rules
        self._engine = engine

    @whole_driver
    def scan(
        self,
        body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
        init: PyTree,
        xs: PyTree = None,
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[PyTree, PyTree]:
        """Run a scan; see `fullgraph.scan` for the meaning and the adapter for what it takes."""
        call = self._flatten(body, init, xs, length, reverse=reverse)
        if is_traced():
            leaves, ys = self._engine.inline_scan(call)
            return rebuild(call.carry, leaves), ys
        rules = self._rules
        transform = active_transform()
        if transform:
            raise refuse(rules, f"{transform} is active, and is not supported through this loop.")
        if _RUNNING.get() == rules.adapter and not rules.nested:
            raise refuse(rules, "a scan in the body of a scan is not supported.")
        token = _RUNNING.set(rules.adapter)
        try:
            leaves, ys = self._run(call)
        finally:
            _RUNNING.reset(token)
        return apart(call, leaves, ys)

    def _run(self, call: FlatScan) -> tuple[list[Any], PyTree]:
        """Run the engine, with a rehearsal if it asks for one, and explain its failure."""
        rehearsed, failure = False, None
        for _ in range(2):
            try:
                return self._engine.scan(call, rehearsed=rehearsed)
            except NeedsRehearsal:
                failure = None
            except Exception as error:  # explained below, outside of its context
                if is_of_hook(error):
                    raise
                failure = error
                break
            call.rehearse()
            rehearsed = True
        if not rehearsed:
            call.rehearse()
        call.run_plainly()
        reason = translate(self._rules.adapter, failure)
        if reason is failure:
            raise reason  # it has torch's exception as its cause already
        raise reason from failure

    def _flatten(
        self,
        body: Callable[..., Any],
        init: PyTree,
        xs: PyTree,
        length: int | None,
        *,
        reverse: bool,
    ) -> FlatScan:
        leaves: list[Any] = []
        rows: list[Any] = []
        carry, row = skeleton_of(init, leaves), skeleton_of(xs, rows)
        steps = check_arguments(self._rules, (carry, leaves), (row, rows), xs, length)
        around = body if isinstance(body, Checkpointed) else None
        body = body if around is None else around.body
        return FlatScan(body, carry, row, leaves, rows, steps, reverse, self._rules, around)


def apart(call: FlatScan, leaves: list[Any], ys: PyTree) -> tuple[PyTree, PyTree]:
    """Rebuild the results, with a copy of each that shares memory with an input or another."""
    used = {_storage(leaf) for leaf in (*call.init, *call.xs) if isinstance(leaf, torch.Tensor)}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        place = _storage(leaf)
        if place in used and leaf.numel():
            return leaf.clone()
        used.add(place)
        return leaf

    flat_ys: list[Any] = []
    skeleton = skeleton_of(ys, flat_ys)
    carry = rebuild(call.carry, [own(leaf) for leaf in leaves])
    return carry, rebuild(skeleton, [own(leaf) for leaf in flat_ys])


def _storage(leaf: torch.Tensor) -> int:
    return leaf.untyped_storage().data_ptr()
