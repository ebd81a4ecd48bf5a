"""Loop adapters for torch: bounded through Inductor, and native through a C compiler."""

from __future__ import annotations

from fullgraph.torch_loop._native import torch_native_loop_adapter

__all__ = ["torch_native_loop_adapter"]
