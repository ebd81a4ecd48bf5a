"""Where statements go while a step is written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.native.emit._index import LANE, Index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.native.ir import Node

__all__ = ["Scope", "indent"]


def indent(lines: list[str]) -> list[str]:
    """Return `lines` one level deeper."""
    return [f"  {line}" if line and not line.startswith("#") else line for line in lines]


@dataclass
class Scope:
    """Statements of one nesting level, and the elements already computed there.

    `sums` are variables that the loop over lanes adds to.

    Statements that are the same for all lanes come first, those of one lane follow in a loop over
    the lanes of the block. Nothing of the first kind can need anything of the second; what comes
    after the loop can.
    """

    uniform: list[str] = field(default_factory=list)
    lanes: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    memo: dict[tuple[Node, tuple[Index, ...]], str] = field(default_factory=dict)

    def lines(self, block: int) -> list[str]:
        """Return all statements in order."""
        lines = list(self.uniform)
        if self.lanes:
            lines += lane_loop(self.lanes, block, self.sums)
        return lines + self.after


def lane_loop(body: list[str], block: int, sums: Sequence[str] = ()) -> list[str]:
    """Return `body` for every lane of a block; it adds to `sums`."""
    status = " reduction(|:status)" if any("status |=" in line for line in body) else ""
    if sums:
        status += f" reduction(+:{', '.join(sums)})"
    return [
        f"#pragma omp simd{status}",
        f"for (int {LANE} = 0; {LANE} < {block}; ++{LANE}) {{",
        *indent(body),
        "}",
    ]
