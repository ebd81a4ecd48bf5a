"""Small dense linear algebra, written out in C on whole arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.ops._registry import Refused

if TYPE_CHECKING:
    from fullgraph.native.ir import Kernel

__all__ = ["kernel_lines"]


def kernel_lines(node: Kernel, args: list[str], result: str) -> list[str]:
    """Return statements that compute `result` from the arrays `args`."""
    raise Refused(f"{node.name} has no C form ({args}, {result})")
