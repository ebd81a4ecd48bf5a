"""Whether a transform of torch is active under which compiled loops would be wrong or refused.

torch has no public question for this, so two private ones are asked here. Without them (an unknown
torch) nothing is reported, and Dynamo's own refusal stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

__all__ = ["active_transform"]

_functorch: Any = getattr(torch._C, "_functorch", None)  # noqa: SLF001


def active_transform() -> str | None:
    """Return a name for the active transform, None without one."""
    peek = getattr(_functorch, "peek_interpreter_stack", None)
    if peek is not None and peek() is not None:
        return "a torch.func transform (vmap, grad, jvp, ...)"
    if getattr(forward_ad, "_current_level", -1) >= 0:
        return "forward-mode differentiation"
    return None
