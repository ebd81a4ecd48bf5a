"""Names of functions in records and messages."""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["display_name", "is_async"]


def is_async(func: Any) -> bool:
    """Whether a call of `func` gives a coroutine or an asynchronous generator."""
    while isinstance(func, functools.partial):
        func = func.func
    call = None if isinstance(func, type) else inspect.getattr_static(type(func), "__call__", None)
    candidates = (func, call)
    return any(
        inspect.iscoroutinefunction(item) or inspect.isasyncgenfunction(item) for item in candidates
    )


def display_name(func: Any) -> str:
    """Return ``module:qualname``, with what there is of it for callables without a name."""
    if isinstance(func, functools.partial):
        return display_name(func.func)
    owner = getattr(func, "__self__", None)
    if inspect.ismethod(func) and owner is not None:
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{cls.__module__}:{cls.__qualname__}.{func.__name__}"
    module = getattr(func, "__module__", None)
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None)
    if name is None:
        cls = type(func)
        return f"{cls.__module__}:{cls.__qualname__}"
    return f"{module or type(func).__module__}:{name}"
