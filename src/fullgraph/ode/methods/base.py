"""What a method is: the contract that every file of this folder fulfils.

A method says how a state gets from ``t`` to ``t + h``. It knows nothing of loops, step control or
array libraries: states are lists of array leaves, and all arithmetic is operators.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ExplicitRungeKutta", "Method", "Step", "Tableau", "combination"]

Array = Any
State = list[Array]


@dataclass(frozen=True)
class Tableau:
    """Butcher tableau of an explicit method.

    Attributes
    ----------
    c : tuple of float
        Stage times, the first one 0.
    a : tuple of tuple of float
        Row i has the i weights of stage i; the first row is empty.
    b : tuple of float
        Weights of the result.
    error : tuple of float or None
        Weights of the error estimate: `b` minus those of the embedded method. None for a method
        without one.
    middle : tuple of float or None
        Weights of the state half way, for the quartic dense output; None means cubic.
    """

    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    error: tuple[float, ...] | None = None
    middle: tuple[float, ...] | None = None

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.b)

    @property
    def first_same_as_last(self) -> bool:
        """Whether the last stage is the derivative at the new state."""
        return self.stages > 1 and self.c[-1] == 1 and self.a[-1] == self.b[:-1] and not self.b[-1]


@dataclass(frozen=True)
class Step:
    """What one step gives.

    Attributes
    ----------
    y : list of array
        The new state.
    slopes : list of list of array
        Derivatives at the stages; the first is the one at the old state.
    """

    y: State
    slopes: list[State]


class Method(abc.ABC):
    """A one-step method.

    Attributes
    ----------
    name : str
        As `fullgraph.ode.solve` takes it.
    order : int
        Order of convergence of fixed steps.
    estimate_order : int or None
        Order of the error estimate's decay per step, less one: the step controller's exponent is
        its inverse. None for a method without an estimate.
    citation : str
        Where the coefficients come from.
    """

    name: str
    order: int
    estimate_order: int | None = None
    citation: str

    @property
    @abc.abstractmethod
    def tableau(self) -> Tableau:
        """The coefficients."""

    @abc.abstractmethod
    def step(
        self,
        f: Callable[[Array, State], State],
        t: Array,
        h: Array,
        widths: Sequence[Array],
        y: State,
        slope: State | None,
    ) -> Step:
        """Take one step.

        Parameters
        ----------
        f : callable
            ``f(t, y)``, the derivatives of the leaves of the state.
        t, h : array
            Time and length of the step.
        widths : sequence of array
            `h` once for each leaf, in its dtype and broadcastable against it.
        y : list of array
            The state.
        slope : list of array or None
            ``f(t, y)`` where it is known already.
        """

    def middle(self, widths: Sequence[Array], step: Step) -> State:
        """Return how far the state has moved half way through a step; ``[]`` if it is not known."""
        weights = self.tableau.middle
        if weights is None:
            return []
        changes = combination(weights, step.slopes)
        return [h * change for h, change in zip(widths, changes, strict=True)]

    def error(self, widths: Sequence[Array], step: Step) -> State:
        """Return the estimated error of a step."""
        weights = self.tableau.error
        assert weights is not None
        changes = combination(weights, step.slopes)
        return [h * change for h, change in zip(widths, changes, strict=True)]


class ExplicitRungeKutta(Method):
    """A method that is its tableau."""

    def step(
        self,
        f: Callable[[Array, State], State],
        t: Array,
        h: Array,
        widths: Sequence[Array],
        y: State,
        slope: State | None,
    ) -> Step:
        """Evaluate the stages one after the other; see `Method.step`."""
        tableau = self.tableau
        slopes = [f(t, y) if slope is None else slope]
        reached = y
        for c, row in zip(tableau.c[1:], tableau.a[1:], strict=True):
            reached = moved(y, widths, row, slopes)
            slopes.append(f(t + c * h, reached))
        if not tableau.first_same_as_last:
            reached = moved(y, widths, tableau.b, slopes)
        return Step(reached, slopes)


def moved(
    y: State, widths: Sequence[Array], weights: Sequence[float], slopes: Sequence[State]
) -> State:
    """Return ``y + h * (weighted sum of slopes)``, leaf by leaf."""
    changes = combination(weights, slopes)
    return [leaf + h * change for leaf, h, change in zip(y, widths, changes, strict=True)]


def combination(weights: Sequence[float], slopes: Sequence[State]) -> State:
    """Return the weighted sum of slopes, leaf by leaf; terms of weight 0 are left out."""
    terms = [(w, slope) for w, slope in zip(weights, slopes, strict=True) if w != 0]
    total: State = []
    for place in range(len(slopes[0])):
        weight, slope = terms[0]
        leaf = slope[place] if weight == 1 else weight * slope[place]
        for weight, slope in terms[1:]:
            leaf = leaf + weight * slope[place]
        total.append(leaf)
    return total
