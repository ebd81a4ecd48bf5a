"""The result of a bounded while loop."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["WhileResult"]


class WhileResult(NamedTuple):
    """What `fullgraph.while_loop` returns when it is given `max_steps`.

    Attributes
    ----------
    state : PyTree
        The state after the last step.
    steps : array
        Steps taken, a 0-d array of the library's default integer dtype.
    done : array
        0-d boolean array: whether cond ended the loop, rather than `max_steps`.
    """

    state: Any
    steps: Any
    done: Any
