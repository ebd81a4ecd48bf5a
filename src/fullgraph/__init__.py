"""Array code that compiles whole, provably.

Two halves: `fullgraph.testing` runs tagged functions under torch.compile and proves for every call
what was captured; `fullgraph.loops` gives ``scan``, ``fori_loop``, ``while_loop`` and ``cond`` with
one meaning on NumPy, torch and JAX. Importing this package imports no array library.
"""

# ruff: noqa: F403, F405 - a test compares __all__ with what fullgraph.loops declares
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fullgraph.loops import *

__all__ = [
    "LoopAdapter",
    "WhileResult",
    "cond",
    "fori_loop",
    "get_loop_adapter",
    "register_loop_adapter",
    "scan",
    "use_loop_adapter",
    "while_loop",
]


def __getattr__(name: str) -> Any:
    """Import a public name from the module that defines it, when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module("fullgraph.loops"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
