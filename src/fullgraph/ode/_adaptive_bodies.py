"""The bodies of loops of adaptive steps: the first slope and step, and every step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fullgraph.ode._control import first_step, scales, squared_norm

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._adaptive import Adaptive
    from fullgraph.ode._adaptive_state import PlainCarry

__all__ = ["first_body", "step_body"]

Array = Any
PyTree = Any
State = list[Array]

_STRETCH = 1.01  # a step that leaves less than a hundredth of itself goes to the end

#: A derivative, and the relative and absolute tolerances of each leaf.
Given = tuple[Any, State, State]


def first_body(
    run: Adaptive,
    end: Array,
    limits: tuple[Array, Array] | None,
    given: Given | None = None,
) -> Callable[[PlainCarry, Any], tuple[PlainCarry, None]]:
    """Return the body of the loop of one step that evaluates the first slope.

    Parameters
    ----------
    given : tuple, optional
        ``(f, relative, absolute)``: a derivative and tolerances instead of the problem's own.
    """
    problem, first, sign = run.problem, run.first, run.sign
    # Tensors are closed over by name: compiled loops have their shortest call then.
    relative, absolute = run.tolerances.relative, run.tolerances.absolute
    slope_of = None
    if given is not None:
        slope_of, relative, absolute = given
    order, longest = run.controller.order, run.controller.longest
    fast = problem.library.fast

    def first_slope(carry: PlainCarry, x: Any) -> tuple[PlainCarry, None]:
        s, _, _, _, y, _ = carry
        f = problem.derivative(sign, limits) if slope_of is None else slope_of
        slope = f(s, y)
        length = end - s
        if first is None:
            allowed = scales(problem, relative, absolute, y, None)
            h = first_step(problem, f, order, allowed, (s, y, slope), length)
            h = problem.library.stopped(h)
        else:
            h = fast.minimum(first * fast.ones_like(length), length)
        if longest is not None:
            h = fast.clip(h, 0.0, longest)
        log_error = fast.full_like(h, math.log(1e-4))
        return (s, h, log_error, fast.zeros_like(h), list(y), slope), None

    return first_slope


def step_body(
    run: Adaptive,
    end: Array,
    limits: tuple[Array, Array] | None,
    given: Given | None = None,
    *,
    dense: bool,
) -> Callable[[PyTree, Any], tuple[PyTree, PyTree]]:
    """Return the body of the loop; `given` is as for `first_body`."""
    problem, method, controller = run.problem, run.method, run.controller
    relative, absolute = run.tolerances.relative, run.tolerances.absolute
    slope_of = None
    if given is not None:
        slope_of, relative, absolute = given
    sign, layout = run.sign, problem.layout
    library, fast = problem.library, problem.library.fast
    fsal = method.tableau.first_same_as_last
    stops = library.is_jax

    def adaptive_step(carry: PlainCarry, _: Any) -> tuple[PlainCarry, PyTree]:
        s, h, log_before, tries, y, slope = carry
        f = problem.derivative(sign, limits) if slope_of is None else slope_of
        left = end - s
        active = (h > 0) & (left > 0)
        last = h * _STRETCH >= left
        used = fast.where(last, left, h)
        if stops:
            used = library.stopped(used)
        widths = layout.widths(used)
        step = method.step(f, s, used, widths, y, slope)
        new = step.y
        final = step.slopes[-1] if fsal else f(s + used, new)
        allowed = scales(problem, relative, absolute, y, new)
        square = squared_norm(problem, method.error(widths, step), allowed)
        if stops:
            square = library.stopped(square)
        accepted = (square <= 1) & active
        factor, log_after = controller.next(fast, square, log_before, accepted)
        moved = s + used
        # Where steps have no gradient: the value of the end, and the gradient of the start.
        reached = moved + library.stopped(end - moved) if stops else end
        moved = fast.where(last, reached, moved)
        s_next = fast.where(accepted, moved, s)
        h_next = used * factor
        if controller.longest is not None:
            h_next = fast.clip(h_next, 0.0, controller.longest)
        # A step too small to change the time is none: the row stops.
        moves = (s_next + h_next > s_next) & active
        h_next = fast.where(moves, h_next, fast.where(active, 0.0 * s_next, h))
        if stops:
            h_next = library.stopped(h_next)
        takes = [layout.spread(accepted, i) for i in range(len(y))]
        y_next = list(map(fast.where, takes, new, y))
        f_next = list(map(fast.where, takes, final, slope))
        record: PyTree = s_next
        if dense:
            record = (s_next, y_next, f_next, method.middle(widths, step))
        tries = tries + library.cast(active, tries.dtype)
        return (s_next, h_next, log_after, tries, y_next, f_next), record

    return adaptive_step
