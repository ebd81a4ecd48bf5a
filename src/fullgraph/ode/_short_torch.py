"""The short way through an adaptive solve of one torch tensor with native loops.

A small solve takes tens of microseconds in C, so what surrounds the loop decides what it costs. For
the commonest call (one tensor on the CPU, increasing times, numbers as tolerances, no breakpoints)
everything that follows from the structure of the arguments is made once and kept in a `Template`;
the first slope, the first step, all steps and all outputs are one loop. Any other call, and any
that is differentiated, goes the ordinary way, and so does `Solution.interpolate`.
"""

from __future__ import annotations

import functools
import math
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from fullgraph.ode._adaptive import Adaptive
from fullgraph.ode._adaptive_bodies import first_body, step_body
from fullgraph.ode._arrays import library_of
from fullgraph.ode._control import Controller, Tolerances
from fullgraph.ode._loops import choose_loops
from fullgraph.ode._problem import check_slope, make_problem
from fullgraph.ode._solution import Solution, Stats, Status
from fullgraph.ode._whole import first_carry, up_to_outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.loops._adapter import LoopAdapter
    from fullgraph.ode.methods.base import Method

__all__ = ["short_solve"]

PyTree = Any
_DTYPES: Final = (torch.float64, torch.float32)
_REMEMBERED: Final = 256


@dataclass(frozen=True, eq=False)
class Template:
    """What follows from the structure of the arguments alone.

    Attributes
    ----------
    run : Adaptive
        A solve of this structure; of its problem neither values nor the right-hand side are used.
    adapter : LoopAdapter
        Who runs the loop.
    zero, quiet : Tensor
        Numbers that the loop starts with.
    blank : Tensor
        Zeros like the state.
    fresh : Tensor
        True.
    calls : (int, int)
        Evaluations of the right-hand side for each step, and before the first.
    codes : dict
        By the code of the right-hand side, which is kept alive beside: the code of its loop.
    """

    run: Adaptive
    adapter: LoopAdapter
    zero: torch.Tensor
    quiet: torch.Tensor
    blank: torch.Tensor
    fresh: torch.Tensor
    calls: tuple[int, int]
    codes: dict[int, tuple[types.CodeType, Any]] = field(default_factory=dict)

    def code(self, body: types.FunctionType, rhs: Any) -> types.CodeType:
        """Return code of its own for the loop over a right-hand side."""
        key = getattr(rhs, "__code__", None) or type(rhs)
        known = self.codes.get(id(key))
        if known is None:
            if len(self.codes) >= _REMEMBERED:
                self.codes.clear()
            known = self.codes[id(key)] = body.__code__.replace(co_name="whole_solve"), key
        return known[0]


@functools.lru_cache(maxsize=_REMEMBERED)
def _number(name: str, value: float, dtype: torch.dtype) -> torch.Tensor:
    """Return a 0-d tensor, which nothing writes into, for each name: guards see aliases."""
    return torch.tensor(value, dtype=dtype)


@functools.lru_cache(maxsize=_REMEMBERED)
def _template(
    shape: torch.Size,
    dtype: torch.dtype,
    method: Method,
    order: int,
    first: float | None,
    adapter: LoopAdapter,
) -> Template:
    y0, ts = torch.zeros(shape, dtype=dtype), torch.zeros(2, dtype=dtype)
    loops = choose_loops(library_of(y0, ts), "native")
    problem = make_problem(_no_slope, y0, torch.arange(2, dtype=dtype), (), 0)
    nothing = Tolerances([y0], [y0])
    run = Adaptive(problem, method, loops, Controller(order), nothing, 1.0, first, 1)
    stages = method.tableau.stages
    each = stages - 1 if method.tableau.first_same_as_last else stages
    return Template(
        run,
        adapter,
        torch.zeros((), dtype=dtype),
        torch.tensor(math.log(1e-4), dtype=dtype),
        y0,
        torch.tensor(True),
        (each, 1 if first is not None else 2),
    )


def _no_slope(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError


def _whole_body(
    template: Template,
    rhs: Callable[..., torch.Tensor],
    args: tuple[Any, ...],
    relative: torch.Tensor,
    absolute: torch.Tensor,
    end: torch.Tensor,
    most: torch.Tensor,
) -> types.FunctionType:
    """Return the body of the loop over output times, which begins with the first slope and step."""

    def whole_solve(carry: Any, t: torch.Tensor) -> tuple[Any, torch.Tensor]:
        fresh, now = carry
        run = template.run

        def slope_of(s: torch.Tensor, y: list[torch.Tensor]) -> list[torch.Tensor]:
            slope = rhs(s, y[0], *args)
            check_slope(slope, y[0])
            return [slope]

        given = slope_of, [relative], [absolute]
        begin = first_body(run, end, None, given)
        step = step_body(run, end, None, given, dense=True)
        while_loop: Any = template.adapter.while_loop.inner  # type: ignore[union-attr]
        fresh, plain = while_loop(
            lambda c: c[0],
            lambda c: (torch.zeros_like(c[0]), begin(c[1], None)[0]),
            (fresh, now[0]),
        )
        up_to = up_to_outputs(run.problem, step, most, while_loop)
        now, found = up_to((plain, *now[1:]), t)
        return (fresh, now), found[0]

    assert isinstance(whole_solve, types.FunctionType)
    return whole_solve


def short_solve(
    rhs: Callable[..., Any],
    y0: torch.Tensor,
    ts: torch.Tensor,
    args: tuple[Any, ...],
    method: tuple[Method, int],
    tolerances: tuple[float, float],
    first: float | None,
    most: int,
    adapter: LoopAdapter,
    otherwise: Callable[[], Solution],
) -> Solution | None:
    """Solve, or return None where this call needs the ordinary way.

    Parameters
    ----------
    method : (Method, int)
        The method, and the order of its estimate.
    otherwise : callable
        The ordinary way, for `Solution.interpolate`.
    """
    dtype = y0.dtype
    if (
        dtype not in _DTYPES
        or ts.dtype is not dtype
        or not (y0.is_cpu and ts.is_cpu)
        or ts.ndim != 1
        or len(ts) < 2
        or y0.is_neg()
        or y0.is_sparse
    ):
        return None
    times = ts.tolist()
    if not _increasing(times):
        return None
    template = _template(y0.shape, dtype, *method, first, adapter)
    relative = _number("rtol", tolerances[0], dtype)
    absolute = _number("atol", tolerances[1], dtype)
    end = ts[-1]
    made = _whole_body(
        template, rhs, args, relative, absolute, end, _number("max_steps", float(most), dtype)
    )
    body = types.FunctionType(
        template.code(made, rhs), made.__globals__, "whole_solve", None, made.__closure__
    )
    body.fullgraph_fixed = ("template",)  # type: ignore[attr-defined]
    zero, blank = template.zero, template.blank
    plain = (ts[0], zero, template.quiet, zero, [y0], [blank])
    middle = template.run.method.tableau.middle is not None
    init = template.fresh, first_carry(plain, middle=middle)
    found = template.adapter.scan.try_short(body, init, ts)  # type: ignore[attr-defined]
    if found is None:
        if _is_differentiated(rhs, y0, ts, args):
            return None
        found = template.adapter.scan(body, init, ts)
    (_, (carry, *_, accepted)), ys = found
    return _solution(template, ts, ys, carry, accepted, times[-1], otherwise)


def _increasing(times: list[float]) -> bool:
    if not (math.isfinite(times[0]) and math.isfinite(times[-1])):
        return False
    before = times[0]
    for after in times[1:]:
        if not after > before:
            return False
        before = after
    return True


def _is_differentiated(
    rhs: Callable[..., Any], y0: torch.Tensor, ts: torch.Tensor, args: tuple[Any, ...]
) -> bool:
    if not torch.is_grad_enabled():
        return False
    slope = rhs(ts[0], y0, *args)
    return any(getattr(t, "requires_grad", False) for t in (y0, ts, slope))


def _solution(
    template: Template,
    ts: torch.Tensor,
    ys: torch.Tensor,
    carry: Any,
    accepted: torch.Tensor,
    end: float,
    otherwise: Callable[[], Solution],
) -> Solution:
    time, step, _, tries, state, _ = carry
    status = Status.SUCCESS
    if time.item() < end:
        status = Status.MAX_STEPS if step.item() > 0 else Status.STEP_TOO_SMALL
    count, attempts = int(accepted.item()), int(tries.item())
    each, before = template.calls
    numbers = torch.tensor([status.code, count, attempts - count, attempts * each + before])
    code, kept, rejected, calls = numbers.unbind()
    again: list[Solution] = []

    def interpolate(t: Any) -> PyTree:
        if not again:
            again.append(otherwise())
        return again[0].interpolate(t)

    return Solution(
        ts, ys, state[0], time, code, Stats(kept, rejected, calls), interpolate, lambda: status.code
    )
