"""A body whose carries are saved every few steps only: the native adapter's ``checkpoint``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.errors import LoopTypeError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Checkpointed", "checkpoint"]

PyTree = Any


class Checkpointed:
    """A body, called as it is, that asks for less memory in its gradient.

    Parameters
    ----------
    body : callable
        ``body(carry, x) -> (carry, y)``.
    every : int, optional
        Save the carry every so many steps; by default about the square root of their number.
    """

    def __init__(self, body: Callable[[PyTree, PyTree], Any], every: int | None = None) -> None:
        self.body = body
        self.every = every

    def __call__(self, carry: PyTree, x: PyTree) -> Any:
        """Take one step."""
        return self.body(carry, x)


def checkpoint(body: Callable[[PyTree, PyTree], Any], *, every: int | None = None) -> Checkpointed:
    """Return a body whose gradient takes less memory and one more forward pass.

    Parameters
    ----------
    body : callable
        ``body(carry, x) -> (carry, y)``.
    every : int, optional
        How many steps lie between two saved carries, at least 1; by default about the square root
        of the number of steps, which saves most.

    Raises
    ------
    UsageError
        (a ValueError) if `every` is not such a number.
    LoopTypeError
        (a TypeError) if `body` is not callable.
    """
    if not callable(body):
        raise LoopTypeError(f"checkpoint takes a loop body, and got a {type(body).__name__}.")
    if every is not None and (type(every) is not int or every < 1):
        raise UsageError(
            f"every must be an int (no bool, no NumPy integer) that is at least 1, and is "
            f"{every!r}."
        )
    return Checkpointed(body, every)
