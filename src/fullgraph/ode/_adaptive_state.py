"""What a loop of adaptive steps carries, and what one run of it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from fullgraph.ode._dense import Records


Array = Any
PyTree = Any
State = list[Array]

__all__ = ["Carry", "Piece", "PlainCarry"]


class Carry(NamedTuple):
    """What the loop carries, of the batch's shape where it is not the state's."""

    time: Array
    step: Array  # to try next; 0 for a row that cannot go on
    log_error: Array  # of the last accepted step
    tries: Array  # iterations so far, in the dtype of time
    state: State
    slope: State


PlainCarry = tuple[Array, Array, Array, Array, State, State]


@dataclass(frozen=True)
class Piece:
    """The result of a smooth piece.

    Attributes
    ----------
    carry : tuple
        What the loop carried at its end.
    records : Records or None
        All steps, if they were kept.
    outputs : list of array
        States at the asked times, NaN where they were not reached.
    accepted, attempts : array
        Numbers of steps, for each row of the batch.
    reached : array of bool
        Whether the end was reached.
    ends : array of shape (n + 1, *batch)
        Ends of steps, the start first; a rejected step repeats the time before it.
    """

    carry: Carry
    records: Records | None
    outputs: State
    accepted: Array
    attempts: Array
    reached: Array
    ends: Array
