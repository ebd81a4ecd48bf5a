"""Whether a function transform of torch is running: private, and without it a poorer reason."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["inside_transform"]


def inside_transform() -> bool:
    """Whether this code is called by ``torch.func.grad``, ``vmap`` or another of these."""
    functorch: Any = getattr(torch._C, "_functorch", None)  # noqa: SLF001
    level = getattr(functorch, "maybe_current_level", None)
    return level is not None and level() is not None
