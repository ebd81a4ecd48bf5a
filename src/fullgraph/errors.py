"""Every exception that fullgraph raises on purpose, in one hierarchy.

No exception type of torch, JAX or optree escapes a public call: where one is the reason, it is the
``__cause__`` of one of these.
"""

from __future__ import annotations

__all__ = [
    "CaptureError",
    "FullGraphError",
    "FullgraphException",
    "GradientRefusedError",
    "GraphBreakError",
    "MismatchError",
    "MissingBackendError",
    "NativeBuildError",
    "NativeCacheWarning",
    "NativeMemoryError",
    "NativeRuntimeError",
    "NothingCompiledError",
    "RecompileError",
    "UnsupportedBodyError",
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


# --- Native loops ---


class UnsupportedBodyError(FullgraphException, TypeError):
    """A loop body has something that the compiler of native loops cannot express.

    Attributes
    ----------
    operation : str
        What is not supported.
    line : str
        The user's line, as ``file:line: code``, where it is known.
    """

    def __init__(self, message: str, operation: str = "", line: str = "") -> None:
        super().__init__(message)
        self.operation = operation
        self.line = line


class GradientRefusedError(FullgraphException, RuntimeError):
    """A native loop was given inputs that require gradients, which it cannot give."""


class NativeBuildError(FullgraphException, RuntimeError):
    """The C compiler is missing, or failed on a generated loop."""


class NativeMemoryError(FullgraphException, MemoryError):
    """A loop would need more memory than there is; nothing was allocated."""


class NativeRuntimeError(FullgraphException, ArithmeticError, IndexError):
    """A step divided an integer by zero or indexed outside a tensor."""


class NativeCacheWarning(UserWarning):
    """Compiled loops cannot be kept where they should be."""
