"""Reductions, running sums and the places of extremes, as loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.native.emit._elements import IDENTITY, JOIN, Elements, literal
from fullgraph.native.emit._index import LANE, Index
from fullgraph.native.emit._loops import Buffers, keep, loop, memory_size, over
from fullgraph.native.emit._scope import Scope, indent, lane_loop
from fullgraph.native.scalar import expression

if TYPE_CHECKING:
    from fullgraph.native.dtypes import DType
    from fullgraph.native.ir import Accumulate, ArgReduce, Node, Reduce

__all__ = ["Accumulator", "accumulator", "arg_reduce_nest", "reduce_nest", "running_nest"]

SUM_CHUNK = 128  # longer sums are added up in chunks, which keeps their rounding error low


@dataclass(frozen=True)
class Accumulator:
    """A running value: one C variable, or one for each lane of the block."""

    name: str
    c_type: str
    block: int  # 0: the same for all lanes

    @property
    def cell(self) -> str:
        """The C text of the value."""
        return f"{self.name}[{LANE}]" if self.block else self.name

    def begin(self, value: str) -> list[str]:
        """Return the declaration with a first value."""
        if not self.block:
            return [f"{self.c_type} {self.name} = {value};"]
        return [
            f"{self.c_type} {self.name}[{self.block}];",
            *lane_loop([f"{self.cell} = {value};"], self.block),
        ]

    def update(self, value: str) -> list[str]:
        """Return the assignment of a new value."""
        line = f"{self.cell} = {value};"
        return lane_loop([line], self.block) if self.block else [line]


def accumulator(e: Elements, node: Node, c_type: str = "") -> Accumulator:
    return Accumulator(e.name("s"), c_type or node.dtype.c, e.plan.block if e.varies(node) else 0)


def _identity(fn: str, dtype: DType) -> str:
    if fn in IDENTITY:
        return literal(IDENTITY[fn], dtype)
    if dtype.is_float:
        return literal(float("-inf" if fn == "amax" else "inf"), dtype)
    if dtype.kind == "b":
        return literal(fn == "amin", dtype)
    low = 0 if dtype.name == "uint8" else -(1 << (8 * dtype.size - 1))
    high = (1 << (8 * dtype.size - (dtype.name != "uint8"))) - 1
    return literal(low if fn == "amax" else high, dtype)


def reduce_nest(e: Elements, buffers: Buffers, node: Reduce) -> None:
    name = buffers.plain(e, node.dtype, memory_size(e, node), "m")
    start = _identity(node.fn, node.dtype)
    simd = {"sum": "+", "prod": "*"}.get(node.fn, "") if node.dtype.kind != "b" else ""

    def body(index: list[Index]) -> None:
        kept = iter(index)
        base: list[Index] = [
            0 if d in node.dims else next(kept) for d in range(len(node.arg.shape))
        ]
        total = accumulator(e, node)
        lines = _summed(e, node, base, total, start, simd)
        e.scope.uniform += [*total.begin(start), *lines]
        e.say(f"{name}[{e.local(node, index)}] = {total.cell};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), body, unroll=False, independent=False)
    keep(e, node, name)


def _summed(
    e: Elements, node: Reduce, base: list[Index], total: Accumulator, start: str, simd: str
) -> list[str]:
    """Return loops that join all elements of `node` at `base` into `total`."""
    sizes = {d: node.arg.shape[d] for d in node.dims if node.arg.shape[d] != 1}
    if 0 in (node.arg.shape[d] for d in node.dims):
        return []
    for d in sizes:
        base[d] = e.name("r")
    inner = max(sizes, default=-1)
    chunked = bool(simd) and node.dtype.is_float and sizes.get(inner, 0) > SUM_CHUNK
    part = accumulator(e, node) if chunked else total
    saved, e.scope = e.scope, Scope()
    atom = e.element(node.arg, base)
    e.say(f"{part.cell} = {_joined(node, part.cell, atom)};", lane=e.varies(node))
    lines = e.scope.lines(e.plan.block)
    e.scope = saved
    for d in sorted(sizes, reverse=True):
        reduction = f" reduction({simd}:{part.name})" if simd and not part.block else ""
        vector = d == inner and bool(reduction)
        if d == inner and chunked:
            c = e.name("r")
            end = f"({c} + {SUM_CHUNK} < {sizes[d]} ? {c} + {SUM_CHUNK} : {sizes[d]})"
            lines = [
                *part.begin(start),
                *loop(str(base[d]), end, lines, simd=vector, reduction=reduction, start=c),
                *total.update(_joined(node, total.cell, part.cell)),
            ]
            head = f"for (int64_t {c} = 0; {c} < {sizes[d]}; {c} += {SUM_CHUNK}) {{"
            lines = [head, *indent(lines), "}"]
        else:
            lines = loop(str(base[d]), sizes[d], lines, simd=vector, reduction=reduction)
    return lines if sizes else ["{", *indent(lines), "}"]


def _joined(node: Reduce, a: str, b: str) -> str:
    return expression(JOIN[node.fn], node.dtype, [a, b])


def running_nest(e: Elements, buffers: Buffers, node: Accumulate) -> None:
    name = buffers.plain(e, node.dtype, node.size, "m")
    wide = "double" if node.dtype.is_float else node.dtype.c  # eager torch sums in double, too
    outer = tuple(1 if d == node.dim else n for d, n in enumerate(node.shape))

    def body(index: list[Index]) -> None:
        total, i = e.name("s"), e.name("r")
        index[node.dim] = i
        saved, e.scope = e.scope, Scope()
        atom = e.element(node.arg, index)
        sign = "+" if node.fn == "sum" else "*"
        e.say(f"{total} = {total} {sign} {atom};", lane=False)
        e.say(f"{name}[{e.local(node, index)}] = ({node.dtype.c}){total};", lane=False)
        lines = e.scope.uniform
        e.scope = saved
        e.scope.uniform += [
            f"{wide} {total} = {IDENTITY[node.fn]};",
            *loop(i, node.shape[node.dim], lines),
        ]

    over(e, outer, None, body, unroll=False, independent=False)
    keep(e, node, name)


def arg_reduce_nest(e: Elements, buffers: Buffers, node: ArgReduce) -> None:
    name = buffers.plain(e, node.dtype, node.size, "m")
    sign = ">" if node.fn == "argmax" else "<"

    def body(index: list[Index]) -> None:
        best, at, i = e.name("s"), e.name("s"), e.name("r")
        where: list[Index] = [*index[: node.dim], 0, *index[node.dim :]]
        first = e.element(node.arg, where)
        where[node.dim] = i
        saved, e.scope = e.scope, Scope()
        atom = e.element(node.arg, where)
        better = f"{atom} {sign} {best} || ({atom} != {atom} && {best} == {best})"
        e.say(f"if ({better}) {{ {best} = {atom}; {at} = {i}; }}", lane=False)
        lines = e.scope.uniform
        e.scope = saved
        e.scope.uniform += [
            f"{node.arg.dtype.c} {best} = {first};",
            f"int64_t {at} = 0;",
            *loop(i, node.arg.shape[node.dim], lines, start="1"),
        ]
        e.say(f"{name}[{e.local(node, index)}] = {at};", lane=False)

    over(e, node.shape, None, body, unroll=False, independent=False)
    keep(e, node, name)
