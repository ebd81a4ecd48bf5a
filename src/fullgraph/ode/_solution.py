"""What a solve returns."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fullgraph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Solution", "Stats", "Status"]

Array = Any
PyTree = Any


class Status(enum.Enum):
    """How a solve ended; the value is the message, `code` its number in `Solution.codes`."""

    SUCCESS = "the end of ts was reached"
    MAX_STEPS = (
        "max_steps was reached before the end of ts: allow more steps, loosen rtol and atol, or "
        "look for a stiff or unstable right-hand side"
    )
    STEP_TOO_SMALL = (
        "the step became too small to change the time: the right-hand side gives values that are "
        "not finite, jumps, or is asked for more digits than its dtype has"
    )

    @property
    def code(self) -> int:
        """Number of this status in `Solution.codes`."""
        return list(Status).index(self)


class Stats(NamedTuple):
    """What a solve cost: integers, or integer arrays with one value for each row of the batch.

    Attributes
    ----------
    accepted, rejected : int or array
        Steps whose result was kept, and was not.
    rhs_calls : int or array
        Evaluations of the right-hand side for these steps and for the choice of the first.
    """

    accepted: Any
    rejected: Any
    rhs_calls: Any


@dataclass(frozen=True)
class Solution:
    """The result of `fullgraph.ode.solve`.

    Attributes
    ----------
    ts : array of shape (n,)
        Output times.
    ys : PyTree
        The state at these times: each leaf has a leading axis of n. NaN at times that were not
        reached.
    y : PyTree
        The last state that was reached.
    t : array
        The time at which it was reached, one for each row of the batch.
    codes : array of int
        `Status.code` of each row of the batch, or one.
    stats : Stats
        Steps and evaluations.
    """

    ts: Array
    ys: PyTree
    y: PyTree
    t: Array
    codes: Array
    stats: Stats
    _interpolant: Callable[[Array], PyTree] = field(repr=False)
    _worst: Callable[[], int | None] = field(repr=False)

    @property
    def status(self) -> Status:
        """How the solve ended; in a batch, the worst of its rows.

        Raises
        ------
        UsageError
            If the solve is being traced, by ``jax.jit`` for one: `codes` is an array.
        """
        worst = self._worst()
        if worst is None:
            raise UsageError(
                "the status of a traced solve is not known yet: return solution.codes from the "
                "traced function, and compare with Status.SUCCESS.code."
            )
        return list(Status)[worst]

    def interpolate(self, t: Any) -> PyTree:
        """Return the state at any times of the interval.

        The first call repeats the solve to keep its steps, if they were not kept.

        Parameters
        ----------
        t : float or array
            Times between the first and the last of `ts`.

        Returns
        -------
        PyTree
            Like the state, with the axes of `t` in front of those of each leaf.

        Raises
        ------
        UsageError
            (a ValueError) if a time is outside of the interval.

        Notes
        -----
        Within a step the state is a polynomial: of degree 4 for dopri5 and tsit5 with adaptive
        steps, of degree 3 elsewhere. Euler's method and those of order 2 lose nothing by it; the
        fixed steps of methods of order 4 and 5 are exact to order 4 between their ends.
        """
        return self._interpolant(t)
