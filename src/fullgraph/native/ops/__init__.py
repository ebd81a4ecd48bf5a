"""The one table of operations: how each ATen operation becomes loop IR.

To add an operation, write a rule in the module of its family; nothing else needs to know. What has
no rule is decomposed by torch where torch can, and refused with its name where it cannot.
"""

from __future__ import annotations

from fullgraph.native.ops import _create, _index, _linalg, _pointwise, _reduce, _shape
from fullgraph.native.ops._registry import (
    Argument,
    Call,
    Refused,
    Rule,
    canonical_name,
    find_rule,
    rules,
)

__all__ = ["Argument", "Call", "Refused", "Rule", "canonical_name", "find_rule", "rules"]

_FAMILIES = (_create, _index, _linalg, _pointwise, _reduce, _shape)  # imported to register
