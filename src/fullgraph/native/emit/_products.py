"""Matrix products, in the loop order that suits their shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.emit._elements import Elements, fused, literal
from fullgraph.native.emit._index import Index, linear, plus
from fullgraph.native.emit._loops import Buffers, keep, loop, memory_size, over
from fullgraph.native.emit._reductions import accumulator
from fullgraph.native.emit._scope import Scope, indent
from fullgraph.native.emit._tiles import tiled_product, worth_tiles

if TYPE_CHECKING:
    from fullgraph.native.ir import Contract

__all__ = ["product_nest"]

VECTOR_LANES = {"float64": 4, "float32": 8}  # of the vectors that matrix products are written in
TILE_VECTORS = 8  # so many of them hold the sums of a matrix-vector product at a time


def product_nest(e: Elements, buffers: Buffers, node: Contract) -> None:
    """Fill a matrix product in the order that suits its shape."""
    if worth_tiles(e, node):
        tiled_product(e, buffers, node)
        return
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
    keep(e, node, name)


def _contract_dots(e: Elements, node: Contract, name: str) -> None:
    """One running sum for each element (and lane) of the result."""
    inner = node.lhs.shape[2]

    def body(index: list[Index]) -> None:
        b, m, n = index
        total = accumulator(e, node)
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
