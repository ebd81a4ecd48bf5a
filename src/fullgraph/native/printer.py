"""Loop IR as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fullgraph.native.ir import Loop, Node

__all__ = ["format_loop"]


def format_loop(loop: Loop) -> str:
    """Return the loop as text, one node a line."""
    names: dict[Node, str] = {}
    lines: list[str] = []
    for node in (*loop.carry, *loop.xs, *loop.consts, *loop.nodes):
        if node in names:
            continue
        names[node] = f"%{len(names)}"
        words = [type(node).__name__.lower(), node.describe(), *(names[a] for a in node.inputs)]
        shape = ", ".join(map(str, node.shape))
        lines.append(f"{names[node]}: {node.dtype}[{shape}] = {' '.join(w for w in words if w)}")
    if loop.going is not None:
        lines.append(f"while {names[loop.going]}")
    lines.append(f"carry {' '.join(names[n] for n in loop.carry_out)}")
    lines.append(f"y {' '.join(names[n] for n in loop.ys)}")
    head = "loop reverse" if loop.reverse else "loop"
    return "\n".join([head, *("  " + line for line in lines)])
