"""Exceptions of Dynamo, AOTAutograd and Inductor in this package's words.

They are told apart by class name, because their classes are private to torch and move.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from fullgraph.errors import (
    CompilerNotFoundError,
    LoopCaptureError,
    LoopCompilationError,
    LoopError,
    SpecialisationLimitError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["NotCapturedError", "is_limit_hit", "translate"]

_CAPTURE = {
    "Unsupported",
    "UserError",
    "UncapturedHigherOrderOpError",
    "TorchRuntimeError",
    "InternalTorchDynamoError",
    "ObservedException",
}


class NotCapturedError(LoopError):
    """Raised by code that only ever runs captured, when it finds itself running plainly."""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and what caused it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "inner_exception", None)
        error = error.__cause__ or inner or error.__context__


def _names(error: BaseException) -> set[str]:
    return {cls.__name__ for link in _chain(error) for cls in type(link).__mro__}


def is_limit_hit(error: BaseException) -> bool:
    """Whether Dynamo gave up because a function has too many specialisations."""
    return "FailOnRecompileLimitHit" in _names(error)


def translate(adapter: str, error: BaseException | None) -> LoopError:
    """Return the exception that a public call raises for a failure of torch.

    Parameters
    ----------
    adapter : str
        Name for the message.
    error : BaseException
        What the engine raised.
    """
    if error is None:
        return LoopCompilationError(f"{adapter}: a rehearsed specialisation was not compiled.")
    if isinstance(error, LoopError) and not isinstance(error, NotCapturedError):
        return error
    names = _names(error)
    if "NotCapturedError" in names:
        return LoopCompilationError(
            f"{adapter}: torch.compile did not compile this call: {_why_disabled()}. The loop is "
            f"never run eagerly instead: switch compilation on, or use "
            f"use_loop_adapter(namespace, None) for an eager loop."
        )
    if "InvalidCxxCompiler" in names:
        return CompilerNotFoundError(
            f"{adapter}: no working C++ compiler was found (CXX={os.environ.get('CXX', 'unset')}). "
            f"Install one, such as g++ or clang++, or set CXX."
        )
    detail = _first_lines(error)
    if names & _CAPTURE:
        return LoopCaptureError(
            f"{adapter}: the body cannot be captured whole. It runs eagerly, so it does something "
            f"that torch.compile cannot trace: a choice on data (write torch.where or "
            f"fullgraph.cond), .item(), print, or an unsupported function. torch says: {detail}"
        )
    return LoopCompilationError(f"{adapter}: the captured loop could not be compiled: {detail}")


def limit_error(adapter: str, limit: int, varied: str) -> SpecialisationLimitError:
    """Return the error for an adapter that has compiled as much as it may."""
    return SpecialisationLimitError(
        f"{adapter}: {limit} specialisations are compiled, which is the most one adapter takes. "
        f"What varied: {varied}. Pass what changes as xs or in the carry, keep shapes and lengths "
        f"fixed, or make another adapter."
    )


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:3])[:500] or type(error).__name__


def _why_disabled() -> str:
    """Name the switch that keeps torch.compile from compiling, as far as it can be seen."""
    for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(name, "0") not in ("", "0"):
            return f"the environment sets {name}"
    config = getattr(torch._dynamo, "config", None)  # noqa: SLF001
    if getattr(config, "disable", False):
        return "torch._dynamo.config.disable is set"
    stance = getattr(getattr(torch._dynamo.eval_frame, "_stance", None), "stance", "default")  # noqa: SLF001
    if stance != "default":
        return f'torch.compiler.set_stance("{stance}") is in force'
    return "it is switched off around this call, by torch.compiler.disable or another tracer"
