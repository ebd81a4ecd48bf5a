"""Loop IR to C text: a pure function, readable and testable as text."""

from __future__ import annotations

from fullgraph.native.emit._program import TRAILER, UNBOUNDED, Program, emit

__all__ = ["TRAILER", "UNBOUNDED", "Program", "emit"]
