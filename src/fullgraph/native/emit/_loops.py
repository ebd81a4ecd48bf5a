"""Loops over the elements of a node, and the memory they fill."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.native.emit._index import LANE, Index, linear
from fullgraph.native.emit._scope import Scope, indent

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.native.dtypes import DType
    from fullgraph.native.emit._elements import Elements, Position
    from fullgraph.native.ir import Node, Shape

__all__ = ["Buffers", "forever", "keep", "loop", "memory_size", "over", "store"]


@dataclass
class Buffers:
    """Memory of one block: name, dtype and number of elements of each array."""

    arrays: list[tuple[str, DType, int]] = field(default_factory=list)

    def new(self, e: Elements, node: Node, prefix: str = "m") -> str:
        """Return the name of new memory for `node`, and let reads of it go there."""
        name = self.plain(e, node.dtype, memory_size(e, node), prefix)
        e.storage[node] = lambda index: f"{name}[{e.local(node, index)}]"
        return name

    def plain(self, e: Elements, dtype: DType, count: int, prefix: str = "w") -> str:
        """Return the name of new memory."""
        name = e.name(prefix)
        self.arrays.append((name, dtype, max(count, 1)))
        return name


def memory_size(e: Elements, node: Node) -> int:
    """Return how many elements of `node` a block holds."""
    return e.plan.rows(node) * (e.plan.block if e.varies(node) else 1)


def over(
    e: Elements,
    shape: Shape,
    lane: int | None,
    body: Callable[[list[Index]], None],
    *,
    unroll: bool,
    independent: bool = True,
) -> None:
    """Run `body` for every index of `shape`, into the current scope.

    Parameters
    ----------
    lane : int or None
        The dimension that the loop over the lanes of the block stands for.
    unroll : bool
        Write every index out instead of loops.
    independent : bool
        Whether the innermost loop may run in any order.
    """
    if unroll:
        ranges: list[list[Index]] = [
            [LANE] if d == lane else list(range(n)) for d, n in enumerate(shape)
        ]
        for index in itertools.product(*ranges):
            body(list(index))
        return
    names: list[Index] = [
        LANE if d == lane else 0 if n == 1 else e.name("i") for d, n in enumerate(shape)
    ]
    saved, e.scope = e.scope, Scope()
    body(names)
    lines = e.scope.lines(e.plan.block)
    e.scope = saved
    if independent and lane is None:
        names, shape, lines = _as_one(names, shape, lines)
    inner = True
    for name, n in reversed(list(zip(names, shape, strict=True))):
        if isinstance(name, str) and name != LANE:
            lines = loop(name, n, lines, simd=inner and independent and lane is None)
            inner = False
    e.scope.uniform += lines if not inner else ["{", *indent(lines), "}"]


def _as_one(
    names: list[Index], shape: Shape, lines: list[str]
) -> tuple[list[Index], Shape, list[str]]:
    """Make loops one, if their indices occur only as the position in the whole row-major array.

    Short rows would leave vector registers half empty.
    """
    used = [name for name in names if isinstance(name, str)]
    position = linear(names, shape)
    if len(used) < 2 or not isinstance(position, str):
        return names, shape, lines
    without = "\n".join(lines).replace(position, "")
    if re.search(rf"\b(?:{'|'.join(used)})\b", without):
        return names, shape, lines
    return [used[0]], (math.prod(shape),), [line.replace(position, used[0]) for line in lines]


def loop(
    name: str,
    n: int | str,
    body: list[str],
    *,
    simd: bool = False,
    reduction: str = "",
    start: str = "0",
) -> list[str]:
    """Return a counting loop around `body`."""
    pragma = []
    if simd and not any(line.lstrip().startswith(("for (", "#pragma")) for line in body):
        status = " reduction(|:status)" if any("status |=" in line for line in body) else ""
        pragma = [f"#pragma omp simd{reduction}{status}"]
    head = f"for (int64_t {name} = {start}; {name} < {n}; ++{name}) {{"
    return [*pragma, head, *indent(body), "}"]


def forever(body: list[str]) -> list[str]:
    """Return a loop that its body ends."""
    return ["for (;;) {", *indent(body), "}"]


def store(e: Elements, node: Node, target: Callable[[Position], str], *, unroll: bool) -> None:
    """Compute all elements of `node` and assign them to ``target(index)``."""

    def body(index: list[Index]) -> None:
        atom = e.element(node, index)
        e.say(f"{target(index)} = {atom};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), body, unroll=unroll)


def keep(e: Elements, node: Node, name: str) -> None:
    e.storage[node] = lambda index: f"{name}[{e.local(node, index)}]"
