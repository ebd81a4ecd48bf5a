"""Portable loops: scan, fori_loop, while_loop and cond with one meaning on every array library.

The same call runs a Python loop on NumPy, torch and any other array-API namespace, ``jax.lax`` on
JAX, and whatever a registered `LoopAdapter` makes of it. Importing this package imports no array
library.
"""

from __future__ import annotations

from fullgraph.loops._adapter import (
    LoopAdapter,
    get_loop_adapter,
    register_loop_adapter,
    use_loop_adapter,
)
from fullgraph.loops._api import cond, fori_loop, scan, while_loop
from fullgraph.loops._results import WhileResult

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
