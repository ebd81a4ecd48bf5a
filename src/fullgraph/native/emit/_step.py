"""One step of a loop: values, ys, new carry; and whole loops inside a step."""

from __future__ import annotations

from collections.abc import Callable

from fullgraph.native.emit._elements import Elements, Position
from fullgraph.native.emit._fill import fill
from fullgraph.native.emit._index import LANE, Index, linear, minus, reshaped
from fullgraph.native.emit._loops import Buffers, forever, loop, memory_size, over, store
from fullgraph.native.emit._scope import Scope
from fullgraph.native.ir import Input, Loop, Nested, Node, Project, Reduce, Reshape, topological
from fullgraph.native.lanes import make_plan
from fullgraph.native.scalar import INTERRUPTED

__all__ = ["FUEL", "carry_memory", "write_step"]

FUEL = 20_000_000  # additions after which a while loop looks for signals: some milliseconds

Target = Callable[[Position], str]


def carry_memory(e: Elements, buffers: Buffers, loop: Loop, prefix: str = "c") -> list[str]:
    """Give the carry memory inside a block; return the names."""
    names = []
    for leaf in loop.carry:
        name = f"{prefix}{leaf.index}"
        buffers.arrays.append((name, leaf.dtype, max(memory_size(e, leaf), 1)))
        e.storage[leaf] = _local(e, leaf, name)
        names.append(name)
    return names


def _local(e: Elements, node: Node, name: str) -> Target:
    return lambda index: f"{name}[{e.local(node, index)}]"


def write_step(
    e: Elements,
    buffers: Buffers,
    loop: Loop,
    carry: list[str],
    ys: list[Target],
    leave: str = "if (!{0} || status) break;",
) -> list[str]:
    """Return the statements of one step; those of a while loop begin with its condition.

    Parameters
    ----------
    carry : list of str
        Names of the carry's memory.
    ys : list of callable
        C text of where an element of each y goes.
    leave : str
        How a while loop ends, with ``{0}`` for its condition.
    """
    step = Scope()
    results: dict[Node, list[str]] = {}
    test: list[str] = []
    if loop.going is not None:
        _values(e, buffers, topological((loop.going,)), step, results)
        going = e.element(loop.going, ())
        test = [*step.lines(e.plan.block), leave.format(going), *_signals(e.plan.work)]
        step = Scope(memo=step.memo)  # what the condition has computed is there already
    _values(e, buffers, loop.nodes, step, results)
    for y, target in zip(loop.ys, ys, strict=True):
        if not _lane_sum(e, y, target):
            store(e, y, target, unroll=e.plan.unroll)
    _new_carry(e, buffers, loop, carry)
    return [*test, *step.lines(e.plan.block)]


def _values(
    e: Elements,
    buffers: Buffers,
    nodes: tuple[Node, ...],
    step: Scope,
    results: dict[Node, list[str]],
) -> None:
    """Write the nodes that have memory into the scope of a step, and make it the current one."""
    plan = e.plan
    for node in nodes:
        if node in e.storage:
            continue
        if isinstance(node, Project):
            name = results[node.arg][node.index]
            e.storage[node] = _whole(node, name)
        elif isinstance(node, Nested):
            if node not in results:
                e.scope = step
                results[node] = _nested(e, buffers, node)
        elif node in plan.stored:
            e.scope = Scope() if node in plan.invariant else step
            fill(e, buffers, node)
            if node in plan.invariant:
                e.before += e.scope.lines(plan.block)
    e.scope = step


def _signals(work: int) -> list[str]:
    """Return a look at pending signals, now and then: nobody knows how long a while loop takes."""
    return [
        f"if ((fuel -= {work}) < 0) {{",
        f"  fuel = {FUEL};",
        f"  if (fg_interrupted()) return status | {INTERRUPTED};",
        "}",
    ]


def _lane_sum(e: Elements, y: Node, target: Target) -> bool:
    """Add the block's part of a y that is a sum over lanes; say whether it is one.

    The last block may begin among the lanes of the one before it, which are counted once.
    """
    node = y
    while isinstance(node, Reshape):
        node = node.arg
    if node not in e.plan.lane_sums or not isinstance(node, Reduce):
        return False
    total, blocks = node, -(-e.plan.lanes // e.plan.block)

    def body(index: list[Index]) -> None:
        inner = reshaped(index, y.shape, total.shape)
        dim = e.plan.lane[total.arg]
        atom = e.element(total.arg, [*inner[:dim], LANE, *inner[dim:]])
        name, t = e.name("s"), total.dtype.c
        e.scope.uniform.append(f"{t} {name} = 0;")
        e.scope.sums.append(name)
        fresh = f"p0 + k >= b * {e.plan.block} ? {atom} : 0" if blocks > 1 else atom
        e.say(f"{name} += {fresh};", lane=True)
        cell = target(index)
        before = f"(b == block_begin ? 0 : {cell}) + " if blocks > 1 else ""
        e.scope.after.append(f"{cell} = {before}{name};")

    over(e, y.shape, None, body, unroll=e.plan.unroll)
    return True


def _whole(node: Node, name: str) -> Target:
    return lambda index: f"{name}[{linear(index, node.shape)}]"


def _nested(e: Elements, buffers: Buffers, node: Nested) -> list[str]:
    """Write a loop inside the step; return the names of its results' memory."""
    inner = e.child(make_plan(node.loop, lanes=False))
    names = carry_memory(inner, buffers, node.loop, f"{e.name('c')}_")
    t = e.name("t")
    time = minus(node.length - 1, t) if node.loop.reverse else t
    for x, source in zip(node.loop.xs, node.xs, strict=True):
        inner.storage[x] = _row(e, source, time)
    for c, source in zip(node.loop.consts, node.consts, strict=True):
        inner.storage[c] = _through(e, source)
    targets: list[Target] = []
    stacked: list[str] = []
    for y in node.loop.ys:
        name = buffers.plain(e, y.dtype, node.length * y.size)
        stacked.append(name)
        shape = (node.length, *y.shape)
        targets.append(
            lambda index, name=name, shape=shape: f"{name}[{linear([time, *index], shape)}]"  # type: ignore[misc]
        )
    for leaf, source, name in zip(node.loop.carry, node.init, names, strict=True):

        def body(
            index: list[Index], leaf: Input = leaf, source: Node = source, name: str = name
        ) -> None:
            e.say(f"{name}[{linear(index, leaf.shape)}] = {e.reading(source, index)};", lane=False)

        over(e, leaf.shape, None, body, unroll=False)
    step = write_step(inner, buffers, node.loop, names, targets)
    turns = loop(t, node.length, step) if node.loop.going is None else forever(step)
    e.scope.uniform += [*inner.before, *turns]
    return [*names, *stacked]


def _row(e: Elements, source: Node, time: Index) -> Target:
    return lambda index: e.reading(source, [time, *index])


def _through(e: Elements, source: Node) -> Target:
    return lambda index: e.reading(source, index)


def _new_carry(e: Elements, buffers: Buffers, loop: Loop, names: list[str]) -> None:
    """Write the assignments of the carry, which come after everything that reads the old one."""
    uniform: list[str] = []
    lanes: list[str] = []
    leaves = list(zip(loop.carry, loop.carry_out, names, strict=True))
    # Running sums first: what they add may be computed on the spot, from the old carry.
    for leaf, out, name in sorted(leaves, key=lambda leaf: leaf[0] not in e.plan.running):
        if out is leaf:
            continue
        if e.plan.unroll:
            (lanes if e.varies(leaf) else uniform).extend(_assigned(e, leaf, out, name))
        else:
            uniform += _copied(e, buffers, leaf, out, name)
    e.scope.lanes += lanes
    e.scope.after += uniform


def _assigned(e: Elements, leaf: Input, out: Node, name: str) -> list[str]:
    """Return assignments that are written out; the values are computed in the current scope."""
    lines: list[str] = []

    def body(index: list[Index]) -> None:
        lines.append(f"{name}[{e.local(leaf, index)}] = {e.element(out, index)};")

    over(e, leaf.shape, e.plan.lane.get(leaf), body, unroll=True)
    return lines


def _copied(e: Elements, buffers: Buffers, leaf: Input, out: Node, name: str) -> list[str]:
    """Return loops that copy the new value of a leaf from where it is, or is put now."""
    added = e.plan.running.get(leaf)
    if added is not None:
        return _added(e, leaf, added, name)
    new = e.storage.get(out) if out in e.plan.stored else None
    if new is None:
        new = _local(e, leaf, buffers.plain(e, leaf.dtype, memory_size(e, leaf), "n"))
        store(e, out, new, unroll=False)
    source = new
    saved, e.scope = e.scope, Scope()

    def body(index: list[Index]) -> None:
        e.say(f"{name}[{e.local(leaf, index)}] = {source(index)};", lane=e.varies(leaf))

    over(e, leaf.shape, e.plan.lane.get(leaf), body, unroll=False)
    lines = e.scope.lines(e.plan.block)
    e.scope = saved
    return lines


def _added(e: Elements, leaf: Input, added: Node, name: str) -> list[str]:
    """Return loops that add to a leaf which nothing else reads, where it is."""
    saved, e.scope = e.scope, Scope()

    def body(index: list[Index]) -> None:
        cell = f"{name}[{e.local(leaf, index)}]"
        e.say(f"{cell} = {cell} + {e.element(added, index)};", lane=e.varies(leaf))

    over(e, leaf.shape, e.plan.lane.get(leaf), body, unroll=False)
    lines = e.scope.lines(e.plan.block)
    e.scope = saved
    return lines
