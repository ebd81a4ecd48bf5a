"""The whole C file of a loop: inputs, blocks of lanes, the loop over time, outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.native.emit._elements import Elements, Position
from fullgraph.native.emit._loops import Buffers, over
from fullgraph.native.emit._prelude import prelude
from fullgraph.native.emit._scope import Scope, indent
from fullgraph.native.emit._step import FUEL, carry_memory, write_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.native.emit._index import Index
    from fullgraph.native.ir import Input, Loop, Node
    from fullgraph.native.lanes import Plan

__all__ = ["TRAILER", "UNBOUNDED", "Program", "emit"]

STACK_BYTES = 64 * 1024  # more memory than this comes from the caller instead of the stack
ALIGNMENT = 64

# What follows the addresses in the argument array of the generated function, in this order.
TRAILER = ("t_begin", "t_end", "first", "stride", "block_begin", "block_end", "scratch")


UNBOUNDED = (1 << 63) - 1  # as `t_end` of a while loop: any number of steps
LEAVE = "done = !{0}; if (done || t == t_end || status) break;"
FUEL_LEFT = f"int64_t fuel = {FUEL};"
WHILE_COUNTERS = ("int64_t t;", "bool done;")
WHILE_ENDS = ("if (steps_taken) *steps_taken = t;", "if (done_at) *done_at = done;")


@dataclass(frozen=True)
class Program:
    """A generated file.

    Attributes
    ----------
    text : str
        C source; the function is ``int64_t fg_run(const int64_t *a)``. Its argument array holds
        addresses of carry, xs, consts, new carry and ys, then `TRAILER`; step ``t`` reads and
        writes row ``first + stride * t``. A while loop has two more addresses before `TRAILER`,
        perhaps 0: the steps taken (int64), and whether its condition ended it (bool).
    symbols : list of str
        Vector math routines to bind with ``fg_bind`` after loading.
    blocks : int
        Number of lane blocks.
    scratch : int
        Bytes of working memory one call needs.
    """

    text: str
    symbols: list[str]
    blocks: int
    scratch: int


def emit(loop: Loop, plan: Plan, *, isa: str = "") -> Program:
    """Return the C file of `loop`.

    Parameters
    ----------
    loop : Loop
        A verified loop.
    plan : Plan
        From `fullgraph.native.lanes.make_plan`.
    isa : {"", "avx2", "avx512f"}
        Vector math routines to use.
    """
    e = Elements(plan)
    buffers = Buffers()
    pointers = _pointers(loop)
    carry_names = carry_memory(e, buffers, loop)
    load, save = _transfers(e, loop, carry_names)
    for x in loop.xs:
        e.storage[x] = _whole(e, x, f"x{x.index}_t")
    for c in loop.consts:
        e.storage[c] = _whole(e, c, f"k{c.index}")
    targets = [_whole(e, y, f"y{j}_t") for j, y in enumerate(loop.ys)]
    step = write_step(e, buffers, loop, carry_names, targets, LEAVE)
    at = ["const int64_t now = first + stride * t;"] if loop.xs or loop.ys else []
    at += [_at_time(x, "x", x.index) for x in loop.xs]
    at += [_at_time(y, "y", j) for j, y in enumerate(loop.ys)]
    times = ["for (int64_t t = t_begin; t < t_end; ++t) {", *indent([*at, *step]), "}"]
    if loop.going is not None:
        times = ["for (t = t_begin, done = false;; ++t) {", *indent(step), "}"]
    block = [*load, *e.before, *times, *save]
    blocks = -(-plan.lanes // plan.block) if plan.lanes else 1
    if plan.lanes:
        last = plan.lanes - plan.block
        first = f"const int64_t p0 = b * {plan.block} < {last} ? b * {plan.block} : {last};"
        block = [
            "for (int64_t b = block_begin; b < block_end; ++b) {",
            *indent([first, *block]),
            "}",
        ]
    memory, scratch = _memory(buffers)
    n = len(pointers)
    trailer = [
        f"const int64_t {name} = a[{n + i}];"
        for i, name in enumerate(TRAILER)
        if name in _used(plan)
    ]
    if scratch:
        trailer.append(f"char *const scratch = (char *)a[{n + len(TRAILER) - 1}];")
    counters = _counters([*e.before, *step]) if loop.going is None else [*WHILE_COUNTERS, FUEL_LEFT]
    ends = [] if loop.going is None else WHILE_ENDS
    lines = [*pointers, *trailer, "int64_t status = 0;", *counters, *memory, *block, *ends]
    lines.append("return status;")
    body = "\n".join(["int64_t fg_run(const int64_t *restrict a) {", *indent(lines), "}", ""])
    head, symbols = prelude(body, isa)
    return Program(f"{head}\n{body}", symbols, blocks, scratch)


def _counters(lines: list[str]) -> list[str]:
    """Return what while loops inside the step count down between looks at signals."""
    return [FUEL_LEFT] if any("fuel -=" in line for line in lines) else []


def _used(plan: Plan) -> tuple[str, ...]:
    return TRAILER[:6] if plan.lanes else TRAILER[:4]


def _pointers(loop: Loop) -> list[str]:
    """Return declarations of all tensors, in the order of the argument array."""
    groups: list[tuple[str, tuple[Node, ...], bool]] = [
        ("c", loop.carry, True),
        ("x", loop.xs, True),
        ("k", loop.consts, True),
        ("r", loop.carry_out, False),
        ("y", loop.ys, False),
    ]
    lines: list[str] = []
    for letter, nodes, constant in groups:
        for i, node in enumerate(nodes):
            t = f"const {node.dtype.c}" if constant else node.dtype.c
            name = f"{letter}{i}_in" if letter == "c" else f"{letter}{i}"
            lines.append(f"{t} *restrict {name} = ({t} *)a[{len(lines)}];")
    if loop.going is not None:
        lines += [
            f"int64_t *const steps_taken = (int64_t *)a[{len(lines)}];",
            f"bool *const done_at = (bool *)a[{len(lines) + 1}];",
        ]
    return lines


def _whole(e: Elements, node: Node, array: str) -> Callable[[Position], str]:
    """Return the C text of elements of a tensor outside of the block."""
    return lambda index: f"{array}[{e.outer(node, index)}]"


def _at_time(node: Node, letter: str, i: int) -> str:
    t = node.dtype.c if letter == "y" else f"const {node.dtype.c}"
    return f"{t} *restrict {letter}{i}_t = {letter}{i} + now * {node.size};"


def _transfers(e: Elements, loop: Loop, names: list[str]) -> tuple[list[str], list[str]]:
    """Return statements that load the carry of a block and that save it."""
    load: list[str] = []
    save: list[str] = []
    for leaf, name in zip(loop.carry, names, strict=True):
        for lines, text in ((load, "{0} = c{2}_in[{1}];"), (save, "r{2}[{1}] = {0};")):
            saved, e.scope = e.scope, Scope()

            def body(
                index: list[Index], leaf: Input = leaf, name: str = name, text: str = text
            ) -> None:
                here, there = f"{name}[{e.local(leaf, index)}]", e.outer(leaf, index)
                e.say(text.format(here, there, leaf.index), lane=e.varies(leaf))

            over(e, leaf.shape, e.plan.lane.get(leaf), body, unroll=False)
            lines += e.scope.lines(e.plan.block)
            e.scope = saved
    return load, save


def _memory(buffers: Buffers) -> tuple[list[str], int]:
    """Return declarations of all arrays, and the bytes they need from the caller."""
    sizes = [-(-count * dtype.size // ALIGNMENT) * ALIGNMENT for _, dtype, count in buffers.arrays]
    if sum(sizes) <= STACK_BYTES:
        align = f"__attribute__((aligned({ALIGNMENT})))"
        return [f"{d.c} {name}[{count}] {align};" for name, d, count in buffers.arrays], 0
    lines: list[str] = []
    at = 0
    for (name, dtype, _), size in zip(buffers.arrays, sizes, strict=True):
        lines.append(f"{dtype.c} *restrict {name} = ({dtype.c} *)(scratch + {at});")
        at += size
    return lines, at
