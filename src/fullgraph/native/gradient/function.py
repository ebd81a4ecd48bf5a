"""A differentiable loop as autograd sees it: once differentiable, and never silently more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import FullgraphException, GradientRefusedError
from fullgraph.native.gradient import checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.native.gradient.joint import Activity
    from fullgraph.native.gradient.loops import GradientLoops

__all__ = ["differentiable_run", "is_of_hook"]


@dataclass(frozen=True)
class _Run:
    """One call: the loops, and what is no tensor."""

    loops: GradientLoops
    activity: Activity
    steps: int
    reverse: bool
    segment: int


def differentiable_run(
    loops: GradientLoops,
    activity: Activity,
    tensors: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor], Sequence[torch.Tensor]],
    steps: int,
    *,
    reverse: bool,
    segment: int = 0,
) -> list[torch.Tensor]:
    """Run a loop whose results carry a gradient; return its final carry and ys.

    Parameters
    ----------
    loops : GradientLoops
        Compiled.
    activity : Activity
        Which results carry it.
    tensors : tuple of three sequences
        init, xs, closed-over tensors of the joint step.
    segment : int
        Save the carry every so many steps only, and compute the rest again; 0: save all of it;
        -1: choose how many steps.
    """
    if segment:
        work = loops.forward_compiled.plan.work
        segment = checkpoint.segment_length(steps, None if segment < 0 else segment, work)
    run = _Run(loops, activity, steps, reverse, segment)
    init, xs, consts = tensors
    try:
        return list(_Loop.apply(run, *init, *xs, *consts))
    except FullgraphException:
        raise
    except Exception as error:
        error._fullgraph_of_hook = True  # type: ignore[attr-defined]  # noqa: SLF001
        raise


def is_of_hook(error: BaseException) -> bool:
    """Whether a hook on saved tensors raised this, which then says nothing about the loop.

    ``torch.utils.checkpoint`` ends its second forward pass that way.
    """
    return getattr(error, "_fullgraph_of_hook", False)


class _Loop(torch.autograd.Function):
    """The loop, with its backward in C."""

    @staticmethod
    def forward(ctx: Any, run: _Run, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        joint = run.loops.joint
        n, m = len(joint.carry), len(joint.xs)
        init, xs, consts = tensors[:n], tensors[n : n + m], tensors[n + m :]
        if run.segment:
            segments = checkpoint.Segments(run.steps, run.segment, run.reverse)
            results, saved = checkpoint.run_forward(run.loops, init, xs, consts, segments)
        else:
            results, saved = run.loops.run_forward(init, xs, consts, run.steps, reverse=run.reverse)
        run.loops.latest_saved = run.steps, saved.own_bytes, saved.segment
        ctx.run, ctx.saved = run, replace(saved, tensors=())
        ctx.save_for_backward(*saved.tensors)
        # What is differentiated is kept, too, so that a second derivative finds its way here.
        ctx.behind = [t for t in tensors if t.requires_grad]
        flows = (*run.activity.new, *run.activity.ys)
        ctx.mark_non_differentiable(
            *(r for r, flow in zip(results, flows, strict=True) if not flow)
        )
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        run: _Run = ctx.run
        n = len(run.loops.joint.carry)
        _refuse_batches(cotangents)
        tensors = ctx.saved_tensors
        saved = replace(ctx.saved, tensors=tensors)
        with torch.no_grad():
            if run.segment:
                found = checkpoint.run_backward(run.loops, saved, cotangents[:n], cotangents[n:])
            else:
                found = run.loops.run_backward(saved, cotangents[:n], cotangents[n:])
        gradients = [g for group in found for g in group]
        if torch.is_grad_enabled():  # create_graph=True
            gradients = _refusing_more(gradients, [*ctx.behind, *tensors, *cotangents])
        return None, *gradients


def _refuse_batches(cotangents: Sequence[torch.Tensor | None]) -> None:
    """Raise where cotangents have no memory of their own: a transform of torch is over them."""
    try:
        for ct in cotangents:
            if ct is not None:
                ct.data_ptr()
    except RuntimeError as error:
        raise GradientRefusedError(
            "gradients of native loops cannot be batched (is_grads_batched=True, "
            "jacobian(vectorize=True)): take them one after the other, or run the loop eagerly "
            "with use_loop_adapter(namespace, None)"
        ) from error


def _refusing_more(
    found: list[torch.Tensor | None], behind: list[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    """Return gradients that raise where somebody differentiates them again."""
    there = [g for g in found if g is not None]
    reasons = [t for t in behind if t is not None]
    made = iter(_Once.apply(len(there), *there, *reasons))
    return [None if g is None else next(made) for g in found]


class _Once(torch.autograd.Function):
    """The identity, which cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        del ctx
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> None:
        del ctx, cotangents
        raise GradientRefusedError(
            "native loops have first derivatives only, and this asks for a second one (a hessian, "
            "a gradient penalty, create_graph=True and backward again). Run the loop eagerly for "
            "it, with use_loop_adapter(namespace, None)"
        )
