"""Rules for indexing with tensors."""

from __future__ import annotations

from fullgraph.native.ir import Gather, Node
from fullgraph.native.ops._registry import Call, Refused, broadcast, rule, reshape, wrap_dim
