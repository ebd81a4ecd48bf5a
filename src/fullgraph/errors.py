"""Every exception that fullgraph raises on purpose, in one hierarchy.

No exception type of torch, JAX or optree escapes a public call: where one is the reason, it is the
``__cause__`` of one of these.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "FullGraphError",
    "FullgraphException",
    "GraphBreakError",
    "MismatchError",
    "MissingBackendError",
    "NothingCompiledError",
    "RecompileError",
    "TorchBugError",
    "UntaggableError",
    "UsageError",
]


# Not "FullgraphError": one letter's case away from FullGraphError, which is an outcome.
class FullgraphException(Exception):  # noqa: N818
    """Base of all exceptions of this package."""


class UsageError(FullgraphException, ValueError):
    """An argument is outside what is accepted; the message names it and what is accepted."""


class UntaggableError(FullgraphException, TypeError):
    """The object given to `lazy_xp_function` cannot carry a tag."""


class MissingBackendError(FullgraphException, ImportError):
    """An optional library that the call needs is not installed, or is too old."""


# --- Outcomes of compiled calls: a failing test, so all of them are AssertionErrors ---


class CaptureError(FullgraphException, AssertionError):
    """A compiled call was not captured as its budget demands, or gave another result than eager."""


class GraphBreakError(CaptureError):
    """A call broke the graph at more sites than its budget allows."""


class FullGraphError(CaptureError):
    """A call that must be one whole graph was not."""


class RecompileError(CaptureError):
    """A function was compiled again more often than its budget allows."""


class NothingCompiledError(CaptureError):
    """A call was meant to run compiled, and no graph ran."""


class MismatchError(CaptureError):
    """The compiled result differs from the eager one in tree, dtype, shape, device or value."""


class TorchBugError(CaptureError):
    """A call met a known bug of torch, and the run was asked to fail on those."""
