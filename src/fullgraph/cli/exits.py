"""Exit codes: the same for every command."""

from __future__ import annotations

import enum

__all__ = ["Exit"]


class Exit(enum.IntEnum):
    """What the exit code of a command means."""

    OK = 0
    """Done, and all is well."""
    FOUND = 1
    """Done, and something is not: not whole, not equal, worse than a baseline, tests failed."""
    USAGE = 2
    """The arguments cannot be followed; nothing was done."""
    MISSING = 3
    """A library or a program that the command needs is missing or too old."""
    INTERRUPTED = 130
    """Stopped by the user; what was recorded until then is kept where the command says so."""
