"""Loop adapters for torch: registered by the caller, never by themselves.

Importing this module does not import torch; constructing an adapter does.
"""

from __future__ import annotations

from fullgraph.torch_loop._construct import torch_compile_loop_adapter
from fullgraph.torch_loop._construct_native import explain_loop, torch_native_loop_adapter
from fullgraph.torch_loop._construct_numpy import numpy_native_loop_adapter

__all__ = [
    "explain_loop",
    "numpy_native_loop_adapter",
    "torch_compile_loop_adapter",
    "torch_native_loop_adapter",
]
