"""Modes in which a tagged function is called, and the budgets that decide when that fails."""

from __future__ import annotations

import enum
import math
import operator
from dataclasses import dataclass, field

from fullgraph.errors import UsageError

__all__ = ["ACCEPTED", "Budget", "Mode", "check_allowance", "parse_mode"]


class Mode(enum.StrEnum):
    """How a tagged function is called.

    Attributes
    ----------
    EAGER
        A plain call (torch, JAX).
    COMPILE
        Through ``torch.compile``, graph breaks allowed up to the function's budget (torch).
    FULLGRAPH
        Through ``torch.compile(fullgraph=True)``; what is not whole is finished in compile mode
        unless the budget is zero (torch).
    JIT
        Through ``jax.jit``, by array-api-extra (JAX).
    """

    EAGER = "eager"
    COMPILE = "compile"
    FULLGRAPH = "fullgraph"
    JIT = "jit"


ACCEPTED = {
    "torch": (Mode.EAGER, Mode.COMPILE, Mode.FULLGRAPH),
    "jax": (Mode.EAGER, Mode.JIT),
}
"""The modes that each backend takes."""


def parse_mode(mode: Mode | str, *, backend: str | None = None) -> Mode:
    """Return the `Mode` called `mode`, checked against what `backend` takes.

    Raises
    ------
    UsageError
        If there is no such mode, or `backend` ("torch", "jax") does not take it.
    """
    accepted = ACCEPTED.get(backend or "", tuple(Mode))
    try:
        parsed = Mode(mode)
    except ValueError:
        parsed = None
    if parsed is None or parsed not in accepted:
        known = "unknown mode" if parsed is None else f"{backend} has no mode"
        raise UsageError(
            f"{known} {str(mode)!r}: accepted are {', '.join(repr(str(m)) for m in accepted)}"
        )
    return parsed


@dataclass(frozen=True, slots=True)
class Budget:
    """How many graph breaks a call, and how many recompiles a function, may have.

    `None` in either place means that nothing was demanded: it is recorded and never fails.
    """

    graph_breaks: float | None = None
    recompiles: float | None = None
    arguments: tuple[str, str] = field(
        default=("allow_graph_breaks", "allow_recompiles"), compare=False
    )
    """What the user calls the two, for messages."""

    @classmethod
    def parse(
        cls,
        graph_breaks: bool | int | None = None,
        recompiles: bool | int | None = None,
        arguments: tuple[str, str] = ("allow_graph_breaks", "allow_recompiles"),
    ) -> Budget:
        """Check what the user gave: False or 0, a number, True for any number, None for none."""
        return cls(
            check_allowance(arguments[0], graph_breaks),
            check_allowance(arguments[1], recompiles),
            arguments,
        )

    @property
    def whole(self) -> bool:
        """Whether every call must be one whole graph."""
        return self.graph_breaks == 0


def check_allowance(name: str, value: bool | int | None) -> float | None:
    """Return how many `value` allows: None for no budget, else 0 to infinity."""
    if value is None:
        return None
    if isinstance(value, bool):
        return math.inf if value else 0
    try:
        count = operator.index(value)  # NumPy's integers too
    except TypeError:
        count = -1
    if count >= 0:
        return count
    raise UsageError(
        f"{name}={value!r} is not accepted: give False or 0 for none, "
        "a number >= 0 for at most so many, or True for any number"
    )
