"""Gradients of a solve by the adjoint equation, solved backwards in time.

With ``a = dL/dy`` it is ``da/dt = -a df/dy``; parameters have ``dL/dp = -int a df/dp dt``, and an
initial time ``dL/dt0`` likewise. The state is computed again backwards beside them, and put right
at each output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import UsageError
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["solve_with_adjoint"]

PyTree = Any
Tensors = list[torch.Tensor]


def solve_with_adjoint(
    func: Any,
    y0: PyTree,
    t: Any,
    forward: Any,
    backward: Any,
    params: Sequence[Any] | None,
    *,
    seminorm: bool,
) -> PyTree:
    """Solve with `forward`, and differentiate with `backward`; see `odeint_adjoint`."""
    if params is None:
        if not isinstance(func, torch.nn.Module):
            raise UsageError(
                "func is no torch.nn.Module, so adjoint_params must say what to differentiate with "
                "respect to; adjoint_params=() if there is nothing."
            )
        params = tuple(func.parameters())
    wanted = [param for param in params if param.requires_grad]
    leaves, treedef = flatten(y0)
    if any(leaf.is_complex() for leaf in leaves):
        raise UsageError("odeint_adjoint does not take complex states; odeint does.")
    times = torch.as_tensor(t, dtype=None if isinstance(t, torch.Tensor) else leaves[0].dtype)
    solver = _Solver(func, treedef, len(leaves), forward, backward, seminorm)
    ys = _Adjoint.apply(solver, times, *leaves, *wanted)
    return unflatten(treedef, ys)


class _Solver:
    """The two solves of one call."""

    def __init__(
        self, func: Any, treedef: Any, count: int, forward: Any, backward: Any, seminorm: bool
    ) -> None:
        self.func = func
        self.count = count
        self._treedef = treedef
        self._forward = forward
        self._backward = backward
        self._seminorm = seminorm

    def forward(self, leaves: Sequence[torch.Tensor], t: torch.Tensor) -> Tensors:
        return flatten(self._forward.run(self.func, unflatten(self._treedef, leaves), t))[0]

    def slopes(self, t: torch.Tensor, leaves: Sequence[torch.Tensor]) -> Tensors:
        return flatten(self.func(t, unflatten(self._treedef, leaves)))[0]

    def backward(
        self,
        state: tuple[torch.Tensor, Tensors, Tensors, Tensors],
        params: Tensors,
        t: torch.Tensor,
        *,
        time: bool,
    ) -> tuple[torch.Tensor, Tensors, Tensors, Tensors]:
        """Solve state, adjoint and integrals from ``t[0]`` to ``t[1]``, which is earlier."""
        import dataclasses

        call = self._backward
        if call.adaptive:
            rtol, atol = float(call.rtol), float(call.atol)
            free = float("inf") if self._seminorm else atol
            tolerances = (atol, [atol] * self.count, [atol] * self.count, [free] * len(params))
            call = dataclasses.replace(call, rtol=rtol, atol=tolerances)

        def augmented(
            t: torch.Tensor, state: tuple[torch.Tensor, Tensors, Tensors, Tensors]
        ) -> tuple[torch.Tensor, Tensors, Tensors, Tensors]:
            _, y, adjoint, _ = state
            with torch.enable_grad():
                now = t.detach().clone().requires_grad_(time)
                leaves = [leaf.detach().clone().requires_grad_() for leaf in y]
                slopes = self.slopes(now, leaves)
                inputs = [*([now] if time else []), *leaves, *params]
                found: list[torch.Tensor | None] = [None] * len(inputs)
                outputs = [
                    (slope, -a)
                    for slope, a in zip(slopes, adjoint, strict=True)
                    if slope.requires_grad
                ]
                if outputs:
                    found = list(
                        torch.autograd.grad(
                            [slope for slope, _ in outputs],
                            inputs,
                            [a for _, a in outputs],
                            allow_unused=True,
                        )
                    )
            grads = [
                torch.zeros_like(i) if g is None else g for i, g in zip(inputs, found, strict=True)
            ]
            of_time = grads.pop(0).reshape(state[0].shape) if time else torch.zeros_like(state[0])
            detached = [slope.detach() for slope in slopes]
            return of_time, detached, grads[: self.count], grads[self.count :]

        ends = call.run(augmented, state, t)
        of_time, y, adjoint, integrals = ends
        return of_time[1], [v[1] for v in y], [v[1] for v in adjoint], [v[1] for v in integrals]


class _Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, solver: _Solver, t: torch.Tensor, *inputs: torch.Tensor) -> Any:
        leaves, params = inputs[: solver.count], inputs[solver.count :]
        with torch.no_grad():
            ys = solver.forward([leaf.detach() for leaf in leaves], t.detach())
        ctx.solver = solver
        ctx.save_for_backward(t, *ys, *params)
        return tuple(ys)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        solver: _Solver = ctx.solver
        t, *saved = ctx.saved_tensors
        ys, params = saved[: solver.count], saved[solver.count :]
        t = t.detach()
        time = bool(ctx.needs_input_grad[1])
        adjoint = [grad[-1] for grad in grads]
        of_times = [torch.zeros((), dtype=ys[0].dtype) for _ in range(len(t))]
        of_time = torch.zeros((), dtype=ys[0].dtype, device=ys[0].device)
        integrals = [torch.zeros_like(param) for param in params]
        for i in range(len(t) - 1, 0, -1):
            here = [y[i] for y in ys]
            if time:  # an output time moves its output along the slope
                slopes = solver.slopes(t[i].to(ys[0].dtype), here)
                pairs = zip(slopes, grads, strict=True)
                of_times[i] = torch.stack([(s * g[i]).sum() for s, g in pairs]).sum()
                of_time = of_time - of_times[i]
            state = (of_time, here, adjoint, integrals)
            ends = solver.backward(state, params, t[[i, i - 1]], time=time)
            of_time, _, adjoint, integrals = ends
            adjoint = [a + grad[i - 1] for a, grad in zip(adjoint, grads, strict=True)]
        of_times[0] = of_time
        for_t = torch.stack(of_times).to(t.dtype) if time else None
        return (None, for_t, *adjoint, *integrals)
