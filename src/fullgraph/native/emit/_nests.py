"""Nodes with memory of their own: loops that fill it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.native.emit._elements import IDENTITY, JOIN, Elements, Position, fused, literal
from fullgraph.native.emit._index import LANE, Index, linear, plus
from fullgraph.native.emit._kernels import kernel_lines
from fullgraph.native.emit._scope import Scope, indent, lane_loop
from fullgraph.native.ir import (
    Accumulate,
    ArgReduce,
    Cat,
    Contract,
    Kernel,
    Node,
    Reduce,
    Shape,
)
from fullgraph.native.lanes import SHORT, terms
from fullgraph.native.scalar import expression

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.native.dtypes import DType

__all__ = ["Buffers", "fill", "over", "store"]

SUM_CHUNK = 128  # longer sums are added up in chunks, which keeps their rounding error low
VECTOR_LANES = {"float64": 4, "float32": 8}  # of the vectors that matrix products are written in
TILE_VECTORS = 8  # so many of them hold the sums of a matrix-vector product at a time


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
    inner = True
    for name, n in reversed(list(zip(names, shape, strict=True))):
        if isinstance(name, str) and name != LANE:
            lines = loop(name, n, lines, simd=inner and independent and lane is None)
            inner = False
    e.scope.uniform += lines if not inner else ["{", *indent(lines), "}"]


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


def store(e: Elements, node: Node, target: Callable[[Position], str], *, unroll: bool) -> None:
    """Compute all elements of `node` and assign them to ``target(index)``."""

    def body(index: list[Index]) -> None:
        atom = e.element(node, index)
        e.say(f"{target(index)} = {atom};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), body, unroll=unroll)


def fill(e: Elements, buffers: Buffers, node: Node) -> None:
    """Give `node` memory and write the loops that fill it."""
    unroll = e.plan.unroll
    match node:
        case Kernel():
            names = [_whole(e, buffers, a) for a in node.args]
            name = buffers.new(e, node)
            e.scope.uniform += kernel_lines(node, names, name)
            return
        case Accumulate():
            _accumulate(e, buffers, node)
            return
        case ArgReduce():
            _arg_reduce(e, buffers, node)
            return
    if not unroll:
        match node:
            case Cat():
                _cat(e, buffers, node)
                return
            case Reduce() if terms(node) > SHORT:
                _reduce(e, buffers, node)
                return
            case Contract() if terms(node) > SHORT:
                _contract(e, buffers, node)
                return
    name = f"{e.name('m')}"
    buffers.arrays.append((name, node.dtype, max(memory_size(e, node), 1)))
    store(e, node, lambda index: f"{name}[{e.local(node, index)}]", unroll=unroll)
    _keep(e, node, name)


def _keep(e: Elements, node: Node, name: str) -> None:
    e.storage[node] = lambda index: f"{name}[{e.local(node, index)}]"


def _whole(e: Elements, buffers: Buffers, node: Node) -> str:
    """Return the name of a contiguous array with all of `node`."""
    name = buffers.plain(e, node.dtype, node.size)
    store(e, node, lambda index: f"{name}[{e.local(node, index)}]", unroll=e.plan.unroll)
    return name


def _cat(e: Elements, buffers: Buffers, node: Cat) -> None:
    name = e.name("m")
    buffers.arrays.append((name, node.dtype, max(memory_size(e, node), 1)))
    at = 0
    for part in node.args:
        offset = at

        def body(index: list[Index], part: Node = part, offset: int = offset) -> None:
            moved = [*index]
            moved[node.dim] = plus(index[node.dim], offset)
            e.say(
                f"{name}[{e.local(node, moved)}] = {e.element(part, index)};",
                lane=e.varies(node),
            )

        over(e, part.shape, e.plan.lane.get(node), body, unroll=False)
        at += part.shape[node.dim]
    _keep(e, node, name)


@dataclass(frozen=True)
class _Accumulator:
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


def _accumulator(e: Elements, node: Node, c_type: str = "") -> _Accumulator:
    return _Accumulator(e.name("s"), c_type or node.dtype.c, e.plan.block if e.varies(node) else 0)


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


def _reduce(e: Elements, buffers: Buffers, node: Reduce) -> None:
    name = buffers.plain(e, node.dtype, memory_size(e, node), "m")
    start = _identity(node.fn, node.dtype)
    simd = {"sum": "+", "prod": "*"}.get(node.fn, "") if node.dtype.kind != "b" else ""

    def body(index: list[Index]) -> None:
        kept = iter(index)
        base: list[Index] = [
            0 if d in node.dims else next(kept) for d in range(len(node.arg.shape))
        ]
        total = _accumulator(e, node)
        lines = _summed(e, node, base, total, start, simd)
        e.scope.uniform += [*total.begin(start), *lines]
        e.say(f"{name}[{e.local(node, index)}] = {total.cell};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), body, unroll=False, independent=False)
    _keep(e, node, name)


def _summed(
    e: Elements, node: Reduce, base: list[Index], total: _Accumulator, start: str, simd: str
) -> list[str]:
    """Return loops that join all elements of `node` at `base` into `total`."""
    sizes = {d: node.arg.shape[d] for d in node.dims if node.arg.shape[d] != 1}
    if 0 in (node.arg.shape[d] for d in node.dims):
        return []
    for d in sizes:
        base[d] = e.name("r")
    inner = max(sizes, default=-1)
    chunked = bool(simd) and node.dtype.is_float and sizes.get(inner, 0) > SUM_CHUNK
    part = _accumulator(e, node) if chunked else total
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


def _contract(e: Elements, buffers: Buffers, node: Contract) -> None:
    """Fill a matrix product in the order that suits its shape."""
    name = buffers.plain(e, node.dtype, memory_size(e, node), "m")
    _, rows, columns = node.shape
    inner = node.lhs.shape[2]
    if e.varies(node) or columns == 1 or inner == 0:
        if not e.varies(node) and node.lhs in e.plan.invariant and rows >= 8 and inner:
            _contract_packed(e, buffers, node, name)
        else:
            _contract_dots(e, node, name)
    else:
        _contract_rows(e, node, name)
    _keep(e, node, name)


def _contract_dots(e: Elements, node: Contract, name: str) -> None:
    """One running sum for each element (and lane) of the result."""
    inner = node.lhs.shape[2]

    def body(index: list[Index]) -> None:
        b, m, n = index
        total = _accumulator(e, node)
        k: Index = e.name("r") if inner > 1 else 0
        saved, e.scope = e.scope, Scope()
        a, c = e.element(node.lhs, [b, m, k]), e.element(node.rhs, [b, k, n])
        value = fused(a, c, total.cell, node.dtype)
        e.say(f"{total.cell} = {value};", lane=e.varies(node))
        lines = e.scope.lines(e.plan.block)
        e.scope = saved
        plain = not total.block and node.dtype.kind != "b"
        reduction = f" reduction(+:{total.name})" if plain else ""
        if inner != 1:
            lines = loop(str(k), inner, lines, simd=plain, reduction=reduction)
        else:
            lines = ["{", *indent(lines), "}"]
        e.scope.uniform += [*total.begin(literal(0, node.dtype)), *lines]
        e.say(f"{name}[{e.local(node, index)}] = {total.cell};", lane=e.varies(node))

    over(e, node.shape, e.plan.lane.get(node), body, unroll=False, independent=False)


def _contract_rows(e: Elements, node: Contract, name: str) -> None:
    """Add multiples of the right operand's rows to each row of the result."""
    batch, rows, columns = node.shape

    def body(index: list[Index]) -> None:
        b, m, _ = index
        n: Index = e.name("i")
        k: Index = e.name("r") if node.lhs.shape[2] > 1 else 0
        cell = f"{name}[{e.local(node, [b, m, n])}]"
        saved, e.scope = e.scope, Scope()
        factor = e.element(node.lhs, [b, m, k])
        head = e.scope.uniform
        e.scope = Scope()
        c = e.element(node.rhs, [b, k, n])
        e.say(f"{cell} = {fused(factor, c, cell, node.dtype)};", lane=False)
        row = loop(str(n), columns, e.scope.uniform, simd=True)
        e.scope = saved
        zero = loop(str(n), columns, [f"{cell} = {literal(0, node.dtype)};"], simd=True)
        step = [*head, *row]
        if isinstance(k, str):
            step = loop(k, node.lhs.shape[2], step)
        e.scope.uniform += [*zero, *step]

    over(e, (batch, rows, 1), None, body, unroll=False, independent=False)


def _contract_packed(e: Elements, buffers: Buffers, node: Contract, name: str) -> None:
    """Matrix times vector with a matrix that no step changes: packed once, by tiles of rows."""
    batch, rows, _ = node.shape
    inner = node.lhs.shape[2]
    packed = buffers.plain(e, node.dtype, batch * rows * inner, "w")
    saved, e.scope = e.scope, Scope()

    def pack(index: list[Index]) -> None:
        b, m, k = index
        where = linear([b, k, m], (batch, inner, rows))
        e.say(f"{packed}[{where}] = {e.element(node.lhs, index)};", lane=False)

    over(e, node.lhs.shape, None, pack, unroll=False)
    e.before += e.scope.uniform
    e.scope = saved
    b: Index = e.name("i") if batch > 1 else 0
    lines: list[str] = []
    wide = VECTOR_LANES.get(node.dtype.name, 0)
    whole = rows // wide * wide if wide else 0
    for first in range(0, whole, TILE_VECTORS * wide or 1):
        count = min(TILE_VECTORS, (whole - first) // wide)
        lines += _vector_tile(e, node, name, packed, b, first, count)
    if whole < rows:
        lines += _tile(e, node, name, packed, b, whole, rows - whole)
    e.scope.uniform += loop(b, batch, lines) if isinstance(b, str) else lines


def _vector_tile(
    e: Elements, node: Contract, name: str, packed: str, b: Index, first: int, count: int
) -> list[str]:
    """Rows whose sums are kept in `count` vector registers; compilers do not see to that alone."""
    batch, rows, _ = node.shape
    inner, wide = node.lhs.shape[2], VECTOR_LANES[node.dtype.name]
    vector = f"fg_{node.dtype.c[0]}{wide}"
    k, total, factor = e.name("r"), e.name("s"), e.name("f")
    saved, e.scope = e.scope, Scope()
    atom = e.element(node.rhs, [b, k, 0])
    head = e.scope.uniform
    e.scope = saved
    sums = [f"{total}_{j}" for j in range(count)]
    body = [*head, f"const {vector} {factor} = {{{', '.join([atom] * wide)}}};"]
    done = []
    for j, cell in enumerate(sums):
        where = linear([b, k, plus(first + j * wide)], (batch, inner, rows))
        target = linear([b, plus(first + j * wide), 0], node.shape)
        body.append(
            f"{cell} = fg_fma_{vector[3:]}(*({vector}_memory *)({packed} + {where}), {factor}, {cell});"  # noqa: E501
        )
        done.append(f"*({vector}_memory *)({name} + {target}) = {cell};")
    return [
        "{",
        *indent([f"{vector} {cell} = {{0}};" for cell in sums]),
        *indent([*loop(k, inner, body), *done]),
        "}",
    ]


def _tile(
    e: Elements, node: Contract, name: str, packed: str, b: Index, first: int, height: int
) -> list[str]:
    batch, rows, _ = node.shape
    inner = node.lhs.shape[2]
    k, i, total, t = e.name("r"), e.name("i"), e.name("s"), node.dtype.c
    saved, e.scope = e.scope, Scope()
    factor = e.element(node.rhs, [b, k, 0])
    head = e.scope.uniform
    e.scope = saved
    where = linear([b, k, plus(i, first)], (batch, inner, rows))
    cell = f"{total}[{i}]"
    value = fused(f"{packed}[{where}]", factor, cell, node.dtype)
    target = f"{name}[{linear([b, plus(i, first), 0], node.shape)}]"
    zero = literal(0, node.dtype)
    return [
        "{",
        *indent(
            [
                f"{t} {total}[{height}];",
                *loop(i, height, [f"{cell} = {zero};"], simd=True),
                *loop(k, inner, [*head, *loop(i, height, [f"{cell} = {value};"], simd=True)]),
                *loop(i, height, [f"{target} = {cell};"], simd=True),
            ]
        ),
        "}",
    ]


def _accumulate(e: Elements, buffers: Buffers, node: Accumulate) -> None:
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
    _keep(e, node, name)


def _arg_reduce(e: Elements, buffers: Buffers, node: ArgReduce) -> None:
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
    _keep(e, node, name)
