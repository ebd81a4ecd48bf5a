"""One step of a native loop as Dynamo captures it, and what a failing capture means."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, Final

import torch

from fullgraph.errors import (
    FullgraphException,
    LoopCompilationError,
    SpecialisationLimitError,
    UnsupportedBodyError,
)
from fullgraph.native.dispatch import RECOMPILE_LIMIT
from fullgraph.native.refusals import INSTEAD_OF_NUMBER, READ_AS_NUMBER, user_line
from fullgraph.torch_loop._driver import CarryChangedError
from fullgraph.torch_loop._failures import is_limit_hit
from fullgraph.torch_loop._skeleton import Skeleton, collect, rebuild

__all__ = ["NAME", "SITES", "as_tensor", "reason_of", "step_of"]

PyTree = Any
Body = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]

NAME: Final = "torch_native_loop_adapter"
SITES: Final = 256  # bodies an adapter remembers; the least recently used one is forgotten


def step_of(
    body: Body, skeleton: Skeleton, row_skeleton: Skeleton, carry: list[Any], row: list[Any]
) -> tuple[list[torch.Tensor], PyTree]:
    """Call a body on leaves; return the leaves of the new carry, and y.

    What is wrong with a carry was found in the rehearsal; here it only has to stop the capture.
    """
    result = body(rebuild(skeleton, carry), rebuild(row_skeleton, row))
    if type(result) is not tuple or len(result) != 2:
        raise CarryChangedError
    leaves: list[Any] = []
    if not collect(skeleton, result[0], leaves):
        raise CarryChangedError
    accepted: list[torch.Tensor] = []
    for before, after in zip(carry, leaves, strict=True):
        if not isinstance(after, torch.Tensor):  # a Python number
            accepted.append(torch.tensor(after, dtype=before.dtype))
        elif after.dtype != before.dtype or after.shape != before.shape:
            raise CarryChangedError
        else:
            accepted.append(after)
    return accepted, result[1]


def as_tensor(leaf: Any) -> torch.Tensor:
    """Return an output of a body as a tensor."""
    return leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)


def reason_of(error: Exception) -> Exception:
    """Return what a failed capture means to the user."""
    inner = getattr(error, "inner_exception", None)
    if isinstance(error, FullgraphException):
        return error
    if isinstance(inner, FullgraphException):
        return inner
    if inner is not None:
        return LoopCompilationError(
            f"{NAME}: the loop compiler failed on this body, which is a bug of fullgraph: "
            f"{type(inner).__name__}: {inner}. Please report it; use_loop_adapter(namespace, None) "
            f"runs the loop meanwhile."
        )
    if is_limit_hit(error):
        return SpecialisationLimitError(
            f"{NAME}: {RECOMPILE_LIMIT} captures of this body are compiled, which is the most one "
            f"body takes. Shapes, dtypes or Python numbers that it closes over varied: pass what "
            f"changes as xs or in the carry."
        )
    if not type(error).__module__.startswith("torch._dynamo"):
        return error
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    line = _user_line(error)
    advice = (
        "Compute with tensors only: no printing, no Python decisions on tensor values (write "
        "torch.where or fullgraph.cond), no changes of outer state"
    )
    if "unbacked symbols" in said:
        said, advice = READ_AS_NUMBER, INSTEAD_OF_NUMBER
    return UnsupportedBodyError(
        f"the body cannot become a native loop: it cannot be captured whole: {said}"
        f"{' at ' + line if line else ''}. {advice}.",
        "capture",
        line,
    )


def _user_line(error: Exception) -> str:
    """Return the line of the body that Dynamo stopped at."""
    stack = getattr(error, "real_stack", None)
    return user_line("".join(traceback.format_list(stack)) if stack else str(error))
