"""Matrix products in tiles of rows and vectors, whose sums stay in registers.

What was here before, columns as lanes with an `omp simd` loop over a small array of sums, took
several times as long for 64 x 64 by 64 x 16: compilers keep such arrays in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fullgraph.native.emit._elements import literal
from fullgraph.native.emit._index import LANE, Index, linear
from fullgraph.native.emit._loops import Buffers, loop, over
from fullgraph.native.emit._scope import Scope, indent
from fullgraph.native.ir import Constant, Iota, Node, Reshape

if TYPE_CHECKING:
    from fullgraph.native.emit._elements import Elements
    from fullgraph.native.ir import Contract

__all__ = ["tiled_product", "worth_tiles"]

WIDE: Final = {"float64": 4, "float32": 8}  # lanes of a vector
ROWS: Final = 4  # of a tile
VECTORS: Final = 2  # of a row of a tile
LEAST_WORK: Final = 512  # multiplications; below, plain loops are as quick


def worth_tiles(e: Elements, node: Contract) -> bool:
    """Whether a product is large enough, and no lanes are in it."""
    _, rows, columns = node.shape
    work = rows * columns * node.lhs.shape[2]
    return node.dtype.name in WIDE and columns > 1 and work >= LEAST_WORK and not e.varies(node)


def tiled_product(e: Elements, buffers: Buffers, node: Contract) -> None:
    """Fill a matrix product; its memory has rows of whole vectors."""
    batch, rows, columns = node.shape
    inner, wide = node.lhs.shape[2], WIDE[node.dtype.name]
    padded = -(-columns // wide) * wide
    left = _matrix(e, buffers, node.lhs, inner)
    right = _matrix(e, buffers, node.rhs, padded)
    name = buffers.plain(e, node.dtype, batch * rows * padded, "m")
    b = e.name("i") if batch > 1 else ""
    at = [
        f"{pointer} + {b} * {size}" if b else pointer
        for pointer, size in (
            (left, rows * inner),
            (right, inner * padded),
            (name, rows * padded),
        )
    ]
    lines: list[str] = []
    whole, broad = rows // ROWS * ROWS, padded // (VECTORS * wide) * VECTORS * wide
    for first, end, height in ((0, whole, ROWS), (whole, rows, rows - whole)):
        for start, stop, vectors in ((0, broad, VECTORS), (broad, padded, 1)):
            if first < end and start < stop:
                lines += _tiles(e, node, at, (first, end, height), (start, stop, vectors), padded)
    e.scope.uniform += loop(b, batch, lines) if b else lines
    shape = (batch, rows, padded)
    e.storage[node] = lambda index: f"{name}[{linear(index, shape)}]"
    if padded != columns:
        e.padded.add(node)


def _tiles(
    e: Elements,
    node: Contract,
    at: list[str],
    rows: tuple[int, int, int],
    columns: tuple[int, int, int],
    padded: int,
) -> list[str]:
    """Return loops over tiles of one height and width."""
    (first, end, height), (start, stop, vectors) = rows, columns
    left, right, target = at
    inner, wide, t = node.lhs.shape[2], WIDE[node.dtype.name], node.dtype.c
    vector = f"fg_{t[0]}{wide}"
    i, j, k = e.name("i"), e.name("i"), e.name("r")
    s, x, f = e.name("s"), e.name("v"), e.name("f")
    row = f"{right} + {k} * {padded} + {j}"
    body = [
        f"const {vector} {x}_{n} = *({vector}_memory *)({row} + {n * wide});"
        for n in range(vectors)
    ]
    for m in range(height):
        body.append(f"const {t} {f}_{m} = ({left})[({i} + {m}) * {inner} + {k}];")
        body.append(f"const {vector} {f}_{m}v = {{{', '.join([f'{f}_{m}'] * wide)}}};")
        body += [
            f"{s}_{m}_{n} = fg_fma_{vector[3:]}({f}_{m}v, {x}_{n}, {s}_{m}_{n});"
            for n in range(vectors)
        ]
    cells = [(m, n) for m in range(height) for n in range(vectors)]
    tile = [
        *(f"{vector} {s}_{m}_{n} = {{0}};" for m, n in cells),
        *loop(k, inner, body),
        *(
            f"*({vector}_memory *)({target} + ({i} + {m}) * {padded} + {j} + {n * wide}) = "
            f"{s}_{m}_{n};"
            for m, n in cells
        ),
    ]
    return [
        f"for (int64_t {i} = {first}; {i} < {end}; {i} += {height})",
        f"  for (int64_t {j} = {start}; {j} < {stop}; {j} += {vectors * wide}) {{",
        *indent(indent(tile)),
        "  }",
    ]


def _matrix(e: Elements, buffers: Buffers, node: Node, stride: int) -> str:
    """Return a C pointer to the rows of a stack of matrices, `stride` elements apart."""
    batch, rows, columns = node.shape
    stored = node
    while isinstance(stored, Reshape) and stored not in e.storage:
        stored = stored.arg
    if stride == columns and stored in e.storage and not isinstance(stored, Constant | Iota):
        first = e.storage[stored]([0] * len(stored.shape))
        if LANE not in first and stored not in e.padded:
            return f"(&{first})"
    name = buffers.plain(e, node.dtype, batch * rows * stride)
    fixed = node in e.plan.invariant
    saved, e.scope = e.scope, Scope()
    if stride != columns:
        zero = literal(0, node.dtype)
        count = batch * rows * stride
        i = e.name("i")
        e.scope.uniform += loop(i, count, [f"{name}[{i}] = {zero};"], simd=True)

    def pack(index: list[Index]) -> None:
        where = linear(index, (batch, rows, stride))
        e.say(f"{name}[{where}] = {e.element(node, index)};", lane=False)

    over(e, node.shape, None, pack, unroll=False)
    lines = e.scope.lines(e.plan.block)
    e.scope = saved
    if fixed:
        e.before += lines
    else:
        e.scope.uniform += lines
    return name
