"""Loops inside a differentiated body: their gradients are loops of ours, too.

torch can differentiate its scan operator, but saves what does not change once for every step, and
trips over integers in the carry. So a nested loop that derivatives flow through is taken over when
the joint step is traced: its body is split into a forward and a backward loop as any other, and the
traced graph gets one operator for each, which becomes a `Nested` node of the IR.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING, Any, Final

import torch

from fullgraph.native.gradient.loops import collect_gradients
from fullgraph.native.gradient.split import never_there, split_forward, split_nested
from fullgraph.native.loaded import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.native.gradient.joint import Activity, Joint
    from fullgraph.native.gradient.split import Backward, CotangentKind, Forward, Source
    from fullgraph.native.ir import Loop, Node

__all__ = ["DIFFERENTIATED", "NESTED", "NestedGradients", "nested_wants"]

DIFFERENTIATED: Final = ", differentiated"  # ends the mark of a loop in whose gradient we are

_LIBRARY = torch.library.Library("fullgraph", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define(  # type: ignore[no-untyped-call]
    "nested_loop(Tensor[] init, Tensor[] xs, Tensor[] consts, int length, int key) -> Tensor[]"
)
# Loops by key while a step that contains them is traced.
_LOOPS: dict[int, Loop] = {}
_keys = itertools.count()


def _fake(
    init: list[torch.Tensor], xs: object, consts: object, length: int, key: int
) -> list[torch.Tensor]:
    del xs, consts
    loop = _LOOPS[key]
    ys = [torch.empty((length, *y.shape), dtype=torch_dtype(y.dtype)) for y in loop.ys]
    return [*(torch.empty(c.shape, dtype=c.dtype) for c in init), *ys]


torch.library.register_fake("fullgraph::nested_loop", _fake, lib=_LIBRARY)
NESTED: Final = torch.ops.fullgraph.nested_loop.default


def nested_wants(arguments: Any, *, inside: bool) -> bool:
    """Whether derivatives flow through a scan with these arguments.

    Gradients are off around every scan of ours, so that torch does not differentiate it; the mark
    in its body says whether they were on. `inside` of a nested loop they flow wherever they can,
    since the body of one cannot switch them: Dynamo refuses that.
    """
    body, init, xs, extra = arguments[:4]
    marks = body.graph.find_nodes(op="call_function", target=torch.ops.fullgraph.mark)
    marks += body.graph.find_nodes(op="call_function", target=torch.ops.fullgraph.mark.default)
    on = inside or any(str(n.args[1]).endswith(DIFFERENTIATED) for n in marks)
    return on and any(
        isinstance(t, torch.Tensor) and t.requires_grad and t.is_floating_point()
        for t in (*init, *xs, *extra)
    )


class _Nested:
    """One nested loop, split."""

    def __init__(self, joint: Joint, activity: Activity, loops: dict[int, Loop]) -> None:
        self.joint, self.activity = joint, activity
        self.forward: Forward = split_forward(joint)
        self.backward: Backward = split_nested(joint, self.forward)
        self._loops = loops
        self.forward_key = self._register(self.forward.loop)

    def _register(self, loop: Loop) -> int:
        key = next(_keys)
        self._loops[key] = _LOOPS[key] = loop
        return key

    def backward_for(self, cotangents: Sequence[torch.Tensor | None]) -> tuple[Backward, int]:
        """Return the backward, with the key of its loop, for cotangents of carry and ys."""
        n = len(self.joint.carry)
        kinds: list[CotangentKind] = ["zero" if ct is None else "rows" for ct in cotangents[n:]]
        missing = [i for i in range(n) if cotangents[i] is None]
        absent = never_there(self.joint, kinds, missing)
        backward = split_nested(self.joint, self.forward, kinds, absent)
        return backward, self._register(dataclasses.replace(backward.loop, reverse=True))


class NestedGradients:
    """The nested loops of one step, split once for each set of inputs that require grad."""

    def __init__(self) -> None:
        self.loops: dict[int, Loop] = {}
        self._known: dict[tuple[Any, ...], _Nested] = {}
        self._inner: list[Any] = []

    def __del__(self) -> None:
        for key in self.loops:
            _LOOPS.pop(key, None)

    def run(self, node: torch.fx.Node, arguments: Any) -> list[torch.Tensor]:
        """Return what a scan gives, with a gradient."""
        body, init, xs, extra = arguments[:4]
        rows = [torch.empty(t.shape[1:], dtype=t.dtype) for t in xs]
        wanted = tuple(t.requires_grad for t in (*init, *xs, *extra))
        nested = self._known.get((node, wanted))
        if nested is None:
            nested = self._known[node, wanted] = self._split(body, init, rows, extra, wanted)
        consts = [extra[i] for i in nested.joint.const_places]
        with torch.enable_grad():
            results: Any = _Function.apply(nested, len(init), len(xs), *init, *xs, *consts)
        return list(results)

    def _split(
        self, body: Any, init: Any, rows: Any, extra: Any, wanted: tuple[bool, ...]
    ) -> _Nested:
        from fullgraph.native.gradient.joint import GraphStep, find_activity, trace_joint

        with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001
            examples = [
                torch.empty(t.shape, dtype=t.dtype).requires_grad_(flag)
                for t, flag in zip((*init, *rows, *extra), wanted, strict=True)
            ]
            step = GraphStep(body, examples, len(init), len(rows))
            activity = find_activity(step)
            joint = trace_joint(step, activity)
        self.loops |= step.nested.loops
        self._inner.append(step)  # its loops are part of these
        return _Nested(joint, activity, self.loops)


class _Function(torch.autograd.Function):
    """A nested loop in the graph of autograd, while the joint step is traced."""

    @staticmethod
    def forward(ctx: Any, nested: _Nested, n: int, m: int, *tensors: torch.Tensor) -> Any:
        init, xs = list(tensors[:n]), list(tensors[n : n + m])
        consts = [*tensors[n + m :], *nested.joint.constants]
        length = xs[0].shape[0]
        forward, joint = nested.forward, nested.joint
        outputs = NESTED(init, xs, [consts[i] for i in forward.consts], length, nested.forward_key)
        ys = outputs[n:]
        after = dict(zip(forward.carries, ys[len(forward.saved) :], strict=True))
        ctx.nested, ctx.length = nested, length
        ctx.carries = n
        places: dict[str, Any] = {"x": xs, "const": consts, "init": init, "y": ys, "next": after}

        def saved(source: Source) -> torch.Tensor:
            if source.kind == "carry":  # the carry before a step: init, then that after the last
                first = init[source.index].unsqueeze(0)
                return torch.cat([first, after[source.index][: length - 1]])
            found: torch.Tensor = places[source.kind][source.index]
            return found

        ctx.sources = [
            s for s in (*nested.backward.rows, *nested.backward.consts) if s.kind != "ct"
        ]
        ctx.save_for_backward(*(saved(s) for s in ctx.sources))
        ctx.set_materialize_grads(False)
        results = outputs[: n + len(joint.ys)]
        flows = (*nested.activity.new, *nested.activity.ys)
        ctx.mark_non_differentiable(
            *(r for r, flow in zip(results, flows, strict=True) if not flow)
        )
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        nested: _Nested = ctx.nested
        n = ctx.carries
        joint = nested.joint
        backward, key = nested.backward_for(cotangents)
        held = dict(zip(ctx.sources, ctx.saved_tensors, strict=True))

        def tensor(source: Source) -> Any:
            if source.kind == "ct":
                return cotangents[n + source.index]
            found: torch.Tensor = held[source]
            return found

        def zeros(like: Node) -> torch.Tensor:
            return torch.zeros(like.shape, dtype=torch_dtype(like.dtype))

        first = [cotangents[i] for i in backward.carry]
        begin = [
            zeros(joint.carry[i]) if ct is None else ct
            for i, ct in zip(backward.carry, first, strict=True)
        ]
        begin += [zeros(total.step) for _, total in backward.totals]
        results = NESTED(
            begin,
            [tensor(s) for s in backward.rows],
            [tensor(s) for s in backward.consts],
            ctx.length,
            key,
        )
        found = collect_gradients(joint, backward, list(results))
        return (None, None, None, *(g for group in found for g in group))
