"""The few things that solvers ask of torch itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat.torch as compat
import torch
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["checkpointed", "compat", "grad_enabled", "is_compiling", "no_grad"]

no_grad = torch.no_grad
grad_enabled = torch.is_grad_enabled


def is_compiling() -> bool:
    """Whether a user's own ``torch.compile`` is tracing."""
    return torch.compiler.is_compiling()


def checkpointed(body: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a loop body whose inside is computed again in the backward pass."""

    def recomputed(carry: Any, x: Any) -> Any:
        leaves, treedef = flatten(carry)

        def run(*values: Any) -> Any:
            return body(unflatten(treedef, values), x)

        return torch_checkpoint(run, *leaves, use_reentrant=False)

    return recomputed
