"""Whether the caller is inside a ``torch.func`` transform (vmap, grad, jvp).

Tensors there are wrappers without memory of their own. The question is private API; where it
cannot be asked, the answer is no, and the wrappers are noticed when their memory is wanted.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["under_transform"]


def _no_stack() -> None:
    return None


_functorch = getattr(torch._C, "_functorch", None)  # noqa: SLF001
_peek: Callable[[], object] = getattr(_functorch, "peek_interpreter_stack", _no_stack)


def under_transform() -> bool:
    """Return whether a transform is active in this thread."""
    return _peek() is not None
