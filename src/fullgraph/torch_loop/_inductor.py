"""The bounded engine: a scan unrolled by Dynamo and compiled by Inductor."""

from __future__ import annotations

import contextlib
import itertools
import threading
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.loops import LoopAdapter, _eager
from fullgraph.loops._eager_torch import ops_for_this_call
from fullgraph.loops._torch_cond import is_traced
from fullgraph.torch_loop._driver import (
    CarryChangedError,
    FlatScan,
    NeedsRehearsal,
    TorchLoopDriver,
    flat_step,
    same_form,
)
from fullgraph.torch_loop._failures import NotCapturedError, is_limit_hit, limit_error
from fullgraph.torch_loop._quiet import quiet_compilation
from fullgraph.torch_loop._rules import Rules, check_output, refuse
from fullgraph.torch_loop._skeleton import Skeleton, collect, rebuild, skeleton_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["SPECIALISATION_LIMIT", "bounded_adapter"]

PyTree = Any
SPECIALISATION_LIMIT = 64
_serial = itertools.count(1)


def bounded_adapter(*, max_steps: int, max_elements: int) -> LoopAdapter:
    """Return the adapter that `torch_compile_loop_adapter` documents."""
    rules = Rules(
        adapter="torch_compile_loop_adapter",
        max_steps=max_steps,
        max_elements=max_elements,
        dtypes=(torch.float32, torch.float64),
        one_dtype=True,
        scalars=False,
        empty=False,
        zero_steps=False,
        namedtuples=False,
        nested=False,
    )
    driver = TorchLoopDriver(rules, _Unrolled(rules))

    def while_loop(
        cond: Callable[[PyTree], Any],
        body: Callable[[PyTree], PyTree],
        init: PyTree,
        *,
        max_steps: int | None = None,
    ) -> PyTree:
        if max_steps is not None:
            raise refuse(
                rules,
                "a while_loop with max_steps would run all of them, stopped or not, and is not "
                "supported.",
            )
        ops = ops_for_this_call()
        return _eager.while_loop(cond, body, init, max_steps=None, ops=ops)[0]

    return LoopAdapter(scan=driver.scan, checkpoint=None, while_loop=while_loop)


def _unroll(
    body: Callable[..., Any],
    carry_skeleton: Skeleton,
    row_skeleton: Skeleton,
    init: list[Any],
    xs: list[Any],
    length: int,
    reverse: bool,
) -> tuple[list[Any], PyTree]:
    """Run a scan step by step, to be traced."""
    carry = init
    stacked: list[list[Any]] = []
    y_skeleton: Skeleton = None
    for i in range(length):
        step = length - 1 - i if reverse else i
        carry, y = flat_step(body, carry_skeleton, row_skeleton, carry, [leaf[step] for leaf in xs])
        leaves: list[Any] = []
        if i == 0:
            y_skeleton = skeleton_of(y, leaves)
        elif not collect(y_skeleton, y, leaves) or not all(map(same_form, stacked[0], leaves)):
            raise CarryChangedError  # the plain driver words this too
        stacked.append(leaves)
    if reverse:
        stacked = stacked[::-1]
    ys = [torch.stack([step[k] for step in stacked]) for k in range(len(stacked[0]))]
    return [leaf.clone() for leaf in carry], rebuild(y_skeleton, ys)


def _on_clones(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a body that is handed clones, so that what it writes reaches nobody else's tensor."""

    def run(carry: PyTree, x: PyTree) -> Any:
        leaves: list[Any] = []
        skeleton = skeleton_of((carry, x), leaves)
        return body(*rebuild(skeleton, [leaf.clone() for leaf in leaves]))

    return run


def _captured(
    body: Callable[..., Any],
    carry_skeleton: Skeleton,
    row_skeleton: Skeleton,
    init: list[Any],
    xs: list[Any],
    length: int,
    reverse: bool,
) -> tuple[list[Any], PyTree]:
    """Run `_unroll`, but only while Dynamo traces.

    This is what makes a silent eager run impossible, whatever switched compilation off.
    """
    if not is_traced():
        raise NotCapturedError
    return _unroll(body, carry_skeleton, row_skeleton, init, xs, length, reverse)


class _CallState(threading.local):
    """What the backend must know about the call in this thread."""

    rehearsed = False
    wants_rehearsal = False
    ran = False


class _Unrolled:
    """The engine: one compiled function, and so one set of specialisations, per adapter."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._state = _CallState()
        self._compiled_keys: set[int] = set()
        self._seen: list[dict[str, str]] = []
        # Dynamo counts specialisations by code object: an own one keeps two adapters apart.
        code = _captured.__code__.replace(co_name=f"bounded_scan_{next(_serial)}")
        function = FunctionType(code, _captured.__globals__, code.co_name)
        self._compiled: Callable[..., Any] = torch.compile(  # type: ignore[call-overload]
            function,
            fullgraph=True,
            dynamic=False,
            backend=self._backend,
            recompile_limit=SPECIALISATION_LIMIT,
            isolate_recompiles=True,
        )

    def scan(self, call: FlatScan, *, rehearsed: bool) -> tuple[list[Any], PyTree]:
        """Run a scan compiled."""
        key = _key(call)
        if not rehearsed and key not in self._compiled_keys:
            raise NeedsRehearsal  # foreseen; what only Dynamo sees, a closure say, comes below
        state = self._state
        state.rehearsed, state.wants_rehearsal, state.ran = rehearsed, False, False
        arguments = (call.body, call.carry, call.row, call.init, call.xs, call.length, call.reverse)
        try:
            with quiet_compilation() if rehearsed else contextlib.nullcontext():
                result: tuple[list[Any], PyTree] = self._compiled(*arguments)
        except Exception as error:
            if state.wants_rehearsal:
                raise NeedsRehearsal from None
            if is_limit_hit(error):
                varied = self._what_varied(call)
                raise limit_error(self._rules.adapter, SPECIALISATION_LIMIT, varied) from error
            raise
        if not state.ran:
            raise NotCapturedError
        if rehearsed:
            self._compiled_keys.add(key)
            self._seen.append(_describe(call))
        return result

    def inline_scan(self, call: FlatScan) -> tuple[list[Any], PyTree]:
        """Unroll into somebody else's graph."""
        carry, ys = _unroll(
            _on_clones(call.body),
            call.carry,
            call.row,
            call.init,
            call.xs,
            call.length,
            call.reverse,
        )
        leaves: list[Any] = []
        skeleton = skeleton_of(ys, leaves)
        check_output(self._rules, skeleton, [leaf[0] for leaf in leaves], call.length)
        return carry, ys

    def _backend(self, module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        """Compile a captured graph with Inductor, once its body has been rehearsed."""
        state = self._state
        if not state.rehearsed:
            state.wants_rehearsal = True
            raise NeedsRehearsal
        compiled = torch._inductor.compile(module, inputs)  # noqa: SLF001 - documented by torch

        def run(*args: Any) -> Any:
            state.ran = True
            return compiled(*args)

        return run

    def _what_varied(self, call: FlatScan) -> str:
        """Say in which respects the specialisations differ."""
        seen = [*self._seen, _describe(call)]
        varied = [
            f"{name} ({len({one[name] for one in seen})} of them)"
            for name in seen[0]
            if len({one[name] for one in seen}) > 1
        ]
        return ", ".join(varied) or "values that the body closes over"


def _key(call: FlatScan) -> int:
    """Return a hash of what can be seen of a specialisation without running Dynamo's guards."""
    code = getattr(call.body, "__code__", call.body)
    leaves = [
        (leaf.shape, leaf.stride(), leaf.dtype, leaf.requires_grad)
        for leaf in (*call.init, *call.xs)
    ]
    form = (str(call.carry), str(call.row), call.length, call.reverse, torch.is_grad_enabled())
    return hash((id(code), tuple(leaves), form))


def _describe(call: FlatScan) -> dict[str, str]:
    """Describe a call by what specialisations differ in, as text, so that nothing is kept alive."""
    body = call.body
    leaves = [*call.init, *call.xs]
    return {
        "bodies": f"{getattr(body, '__module__', '')}.{getattr(body, '__qualname__', body)}"[:200],
        "lengths": str(call.length),
        "directions": str(call.reverse),
        "structures": f"{call.carry} {call.row}",
        "shapes": str([tuple(leaf.shape) for leaf in leaves]),
        "dtypes": str([leaf.dtype for leaf in leaves]),
        "strides": str([leaf.stride() for leaf in leaves]),
        "leaves that need gradients": str([leaf.requires_grad for leaf in leaves]),
    }
