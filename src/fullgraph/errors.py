"""Every exception that fullgraph raises on purpose, in one hierarchy.

No exception type of torch, JAX or optree escapes a public call: where one is the reason, it is the
``__cause__`` of one of these.
"""

from __future__ import annotations

__all__ = [
    "BranchError",
    "CaptureError",
    "CarryError",
    "CompilerNotFoundError",
    "FullGraphError",
    "FullgraphException",
    "GradientRefusedError",
    "GraphBreakError",
    "InPlaceUpdateError",
    "LoopCaptureError",
    "LoopCompilationError",
    "LoopError",
    "LoopTypeError",
    "MismatchError",
    "MissingBackendError",
    "NativeBuildError",
    "NativeCacheWarning",
    "NativeFallbackWarning",
    "NativeMemoryError",
    "NativeRuntimeError",
    "NothingCompiledError",
    "RecompileError",
    "SpecialisationLimitError",
    "StackedOutputError",
    "TorchBugError",
    "UnsupportedBodyError",
    "UnsupportedLoopError",
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


# --- Portable loops ---


class LoopError(FullgraphException):
    """Base of what the loop functions and their adapters raise beside `UsageError`."""


class LoopTypeError(LoopError, TypeError):
    """A leaf or a result of a body is of a kind that a loop cannot take."""


class CarryError(LoopTypeError):
    """A body returned a carry of another structure, shape, dtype or device than it was given.

    The message names the leaf (``carry["velocity"][1]``), both sides and the fix, in the same words
    on every backend.
    """


class StackedOutputError(LoopTypeError):
    """The per-step outputs of a `scan` cannot be stacked: they differ from one step to the next."""


class BranchError(LoopTypeError):
    """The two branches of a `cond` under tracing give different structures, shapes or dtypes."""


class InPlaceUpdateError(LoopError, RuntimeError):
    """A body wrote into an array that it was handed."""


class LoopCaptureError(LoopError, RuntimeError):
    """A body cannot be captured whole: it breaks the graph, or it needs a value while traced."""


class LoopCompilationError(LoopError, RuntimeError):
    """A loop was captured, or should have been, and could not be compiled or run compiled."""


class CompilerNotFoundError(LoopCompilationError):
    """No working C or C++ compiler was found."""


class SpecialisationLimitError(LoopCompilationError):
    """An adapter has compiled as many specialisations as it may; the message names what varied."""


class UnsupportedLoopError(LoopError, ValueError):
    """An adapter refuses a call before compiling; the message names leaf, rule and bound."""


# --- Native loops ---


class UnsupportedBodyError(LoopError, TypeError):
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


class GradientRefusedError(LoopError, RuntimeError):
    """A native loop was given inputs that require gradients, which it cannot give."""


class NativeBuildError(LoopCompilationError):
    """The C compiler failed on a generated loop, or its result cannot be loaded."""


class NativeMemoryError(LoopError, MemoryError):
    """A loop would need more memory than there is; nothing was allocated."""


class NativeRuntimeError(LoopError, ArithmeticError, IndexError):
    """A step divided an integer by zero or indexed outside a tensor."""


class NativeCacheWarning(UserWarning):
    """Compiled loops cannot be kept where they should be."""


class NativeFallbackWarning(UserWarning):
    """A body that cannot be compiled runs as plain Python, because the adapter was told so."""
