"""Step control: error norms, the first step, the next step.

The controller is proportional-integral, in Hairer's form with the exponents of his DOPRI5 scaled to
the order of the estimate. All of it is in logarithms, so that one exponential and one logarithm
serve a step, and choices are `where`, so that rows of a batch choose for themselves.

References
----------
E. Hairer, S. P. Norsett, G. Wanner, Solving Ordinary Differential Equations I, 2nd edition,
sections II.4 (first step) and IV.2 of volume II (control). K. Gustafsson, ACM Transactions on
Mathematical Software 17, 1991.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._problem import Problem

__all__ = ["Controller", "Tolerances", "first_step"]

Array = Any
State = list[Array]

_LEAST_SQUARE = 1e-20  # of an error norm: below it is rounding
_LEAST_LOG_BEFORE = math.log(1e-4)  # what an earlier error may count as at least


@dataclass(frozen=True)
class Tolerances:
    """Relative and absolute tolerance, one array for each leaf, which broadcasts against it."""

    relative: State
    absolute: State


@dataclass(frozen=True)
class Controller:
    """Constants of the controller.

    Attributes
    ----------
    order : int
        `Method.estimate_order`.
    safety, shrink, grow : float
        Factor on the ideal step, and the bounds on its change.
    longest : float or None
        Longest step.
    """

    order: int
    safety: float = 0.9
    shrink: float = 0.2
    grow: float = 10.0
    longest: float | None = None

    def next(
        self, fast: Any, square: Array, log_before: Array, accepted: Array
    ) -> tuple[Array, Array]:
        """Return the factor on the step, and the logarithm of the error to remember.

        Parameters
        ----------
        fast : namespace
        square : array
            Squared error norm of the step; 1 is just acceptable.
        log_before : array
            Logarithm of the error norm of the step before.
        accepted : array of bool
        """
        beta = 0.2 / self.order
        alpha = 1.0 / self.order - 0.75 * beta
        log_error = 0.5 * fast.log(fast.clip(square, _LEAST_SQUARE, 1e30))
        proportional = -alpha * log_error + beta * log_before
        exponent = fast.where(accepted, proportional, log_error * (-1.0 / self.order))
        factor = fast.clip(self.safety * fast.exp(exponent), self.shrink, self.grow)
        factor = fast.where(accepted, factor, fast.clip(factor, self.shrink, 1.0))
        # A comparison with nan is false: steps that are not finite shrink most.
        finite = square <= 1e30
        factor = fast.where(finite, factor, fast.full_like(factor, self.shrink))
        remembered = fast.clip(log_error, _LEAST_LOG_BEFORE, 100.0)
        return factor, fast.where(accepted & finite, remembered, log_before)


def squared_norm(problem: Problem, values: State, scales: State) -> Array:
    """Return the squared norm of scaled values, for each row of the batch.

    It is the mean square over a leaf, and the largest of those of the leaves.
    """
    layout, fast = problem.layout, problem.library.fast
    dtype = problem.ts.dtype
    total = None
    for i, (value, scale) in enumerate(zip(values, scales, strict=True)):
        share = fast.abs(value / scale) if value.dtype != layout.dtypes[i] else value / scale
        square = problem.library.cast(share * share, dtype)
        others = layout.others[i]
        if others:
            square = fast.sum(square, axis=others) * (1.0 / max(layout.counts[i], 1))
        # Not xp.maximum, so that nan wins: a leaf that is not finite rejects the step.
        total = square if total is None else fast.where(total >= square, total, square)
    return total


def scales(
    problem: Problem, relative: State, absolute: State, old: State, new: State | None
) -> State:
    """Return the errors that are allowed, leaf by leaf."""
    fast = problem.library.fast
    found = []
    for place, y in enumerate(old):
        size = fast.abs(y)
        if new is not None:
            size = fast.maximum(size, fast.abs(new[place]))
        found.append(absolute[place] + relative[place] * size)
    return found


def first_step(
    problem: Problem,
    f: Callable[[Array, State], State],
    order: int,
    allowed: State,
    start: tuple[Array, State, State],
    length: Array,
) -> Array:
    """Return the first step to try, for each row of the batch.

    It is a hundredth of what the slope allows, bettered by the change of the slope over it.

    Parameters
    ----------
    f : callable
    order : int
    allowed : list of array
        Errors that are allowed at the start.
    start : tuple
        Time, state and slope.
    length : array
        Length of the interval, which bounds the step.
    """
    fast, layout = problem.library.fast, problem.layout
    t, y, slope = start
    size = fast.sqrt(squared_norm(problem, y, allowed))
    speed = fast.sqrt(squared_norm(problem, slope, allowed))
    small = (size < 1e-5) | (speed < 1e-5)
    one = fast.ones_like(speed)
    guess = fast.where(small, 1e-6 * one, 0.01 * size / fast.where(small, one, speed))
    guess = fast.minimum(guess, length)
    widths = layout.widths(guess)
    moved = [leaf + h * k for leaf, h, k in zip(y, widths, slope, strict=True)]
    change = [b - a for a, b in zip(slope, f(t + guess, moved), strict=True)]
    safe = fast.where(guess > 0, guess, one)
    bend = fast.sqrt(squared_norm(problem, change, allowed)) / safe
    most = fast.maximum(speed, bend)
    flat = most <= 1e-15
    power = fast.exp(fast.log(0.01 / fast.where(flat, one, most)) / order)
    better = fast.where(flat, fast.maximum(1e-6 * one, guess * 1e-3), power)
    return fast.minimum(fast.minimum(100 * guess, better), length)
