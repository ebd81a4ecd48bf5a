"""Which dimension of a body is independent all through, and how the body is best written out.

A *lane* dimension is one along which every value of the body is computed elementwise, so that each
of its elements runs its own loop over time. Lanes become the vector registers of the CPU: a block
of them runs all its steps before the next block starts, and its state stays in registers or L1.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fullgraph.native.axes import find_lanes, outer_sums
from fullgraph.native.ir import (
    Accumulate,
    ArgReduce,
    Broadcast,
    Cat,
    Constant,
    Contract,
    Gather,
    Input,
    Iota,
    Kernel,
    Loop,
    Map,
    Nested,
    Node,
    Permute,
    Project,
    Reduce,
    Reshape,
    Scatter,
    Slice,
)
from fullgraph.native.scalar import SCALAR

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["SHORT", "Plan", "make_plan", "terms"]

BLOCK_STEP = 16  # blocks are multiples of this: whole vector registers of every dtype
BLOCK_LIMIT = 1024
BLOCK_BYTES = 24 * 1024  # memory of a block: three quarters of L1, the rest is for xs and ys
SHORT = 8  # reductions of up to so many elements are written out
AGAIN = 3  # cheap elements that are read so often are computed again instead of stored
WHILE_STEPS = 8  # guessed for a while loop inside a body; it looks for signals itself
UNROLL_LIMIT = 700  # scalar statements of one step beyond which loops are written instead


@dataclass(frozen=True)
class Plan:
    """Decisions about one loop.

    Attributes
    ----------
    lane : dict
        Node to the dimension that is its lane; nodes without one are the same for all lanes.
    lanes, block : int
        Number of lanes (0: none), and how many run together.
    unroll : bool
        Whether a step is written out as scalar statements, without loops.
    stored : frozenset
        Nodes that get memory of their own; all others are computed where they are used.
    invariant : frozenset
        Nodes that are the same in every step.
    work : int
        Rough cost of one step, in additions.
    lane_sums : frozenset
        Sums over lanes that are ys and nothing else: each block adds its part.
    running : dict
        Leaves of the carry that only add something up, and what they add.
    signed_zeros : bool
        Whether 0 and -0 differ.
    """

    lane: dict[Node, int]
    lanes: int
    block: int
    unroll: bool
    stored: frozenset[Node]
    invariant: frozenset[Node]
    work: int
    lane_sums: frozenset[Node] = frozenset()
    running: Mapping[Node, Node] = field(default_factory=dict)
    signed_zeros: bool = True

    def rows(self, node: Node) -> int:
        """Return the number of elements of `node` in one lane."""
        if node in self.lane:
            return node.size // max(node.shape[self.lane[node]], 1)
        return node.size


def make_plan(
    loop: Loop,
    *,
    lanes: bool = True,
    threads: int = 1,
    block: int | None = None,
    unroll_limit: int | None = None,
) -> Plan:
    """Return how `loop` is written out for `threads`; `block` and `unroll_limit` are for tests."""
    nodes = loop.nodes
    running = _running(loop, nodes)
    # In gradients only: values are summed in the order that keeps their rounding error lowest.
    across = threads == 1 and not loop.signed_zeros
    sums = outer_sums(loop, nodes) if across else frozenset()
    lane, count = find_lanes(loop, nodes, sums) if lanes else ({}, 0)
    work = {n: _work(n) for n in nodes}
    if lane:
        apart = sum(w for n, w in work.items() if n not in lane)
        together = sum(w for n, w in work.items() if n in lane)
        products = sum(w for n, w in work.items() if isinstance(n, Contract) and _is_long(n))
        repeated = apart * -(-count // (block or BLOCK_LIMIT)) > together
        # What is mostly matrix products runs as such: a product for each lane takes far longer.
        if repeated or (threads == 1 and 2 * products > apart + together):
            lane, count = {}, 0
    statements = sum(_statements(n, lane) for n in nodes)
    statements += sum(n.size // _lanes_of(n, lane) for n in (*loop.carry_out, *loop.ys))
    whole = any(isinstance(n, Nested | Kernel | Accumulate | ArgReduce | Scatter) for n in nodes)
    limit = UNROLL_LIMIT if unroll_limit is None else unroll_limit
    unroll = statements <= limit and not (lane and whole)
    stored = _stored(loop, nodes, running, unroll=unroll)
    memory = sum(n.size // count * n.dtype.size for n in {*loop.carry, *stored} if n in lane)
    return Plan(
        lane=lane,
        lanes=count,
        block=min(block or _block(count, memory, threads), count) if lane else 1,
        unroll=unroll,
        stored=stored,
        invariant=_invariant(loop, nodes),
        work=max(sum(work.values()), 1),
        lane_sums=frozenset(n for n in sums if n.arg in lane and lane[n.arg] in n.dims),
        running=running,
        signed_zeros=loop.signed_zeros,
    )


def _running(loop: Loop, nodes: tuple[Node, ...]) -> dict[Node, Node]:
    """Return the leaves of the carry that a step only adds something to, and what it adds."""
    readers = Counter(a for n in nodes for a in n.inputs)
    readers.update(loop.roots)
    found: dict[Node, Node] = {}
    for leaf, out in zip(loop.carry, loop.carry_out, strict=True):
        match out:
            case Map(fn="add", args=(first, added)) if (
                first is leaf
                and readers[leaf] == readers[out] == 1
                and (added.shape, added.dtype) == (leaf.shape, leaf.dtype)
            ):
                found[leaf] = added
    return found


def _block(lanes: int, lane_bytes: int, threads: int) -> int:
    """Return how many lanes run together: what L1 holds, in blocks of about equal size.

    Large blocks write long pieces of each row of ys, which caches like better: 256 lanes of three
    float64 take 15 % longer than 1 000. Not taken: streaming stores (20 % longer), prefetching rows
    (5 % longer), two vectors at a time in one block (5 % shorter, twice the C text).
    """
    most = BLOCK_BYTES // max(lane_bytes, 1) // BLOCK_STEP * BLOCK_STEP
    most = max(BLOCK_STEP, min(BLOCK_LIMIT, most))
    blocks = max(-(-lanes // most), min(threads, lanes // BLOCK_STEP))
    return -(-lanes // blocks // BLOCK_STEP) * BLOCK_STEP if blocks > 1 else lanes


def _lanes_of(node: Node, lane: dict[Node, int]) -> int:
    return max(node.shape[lane[node]], 1) if node in lane else 1


def _work(node: Node) -> int:
    match node:
        case Map():
            return node.size * SCALAR[node.fn].cost
        case Contract():
            return 2 * node.size * node.lhs.shape[2]
        case Reduce() | ArgReduce() | Accumulate():
            return node.arg.size
        case Gather() | Cat():
            return node.size
        case Scatter():
            return node.size + node.value.size
        case Kernel():
            n = node.args[0].shape[-1]
            return 4 * node.args[0].size * n
        case Nested():
            steps = node.length if node.loop.going is None else WHILE_STEPS
            return steps * sum(_work(n) for n in node.loop.nodes)
    return 0


def _statements(node: Node, lane: dict[Node, int]) -> int:
    one_lane = _lanes_of(node, lane)
    match node:
        case Map():
            return node.size // one_lane
        case Contract():
            return 2 * node.size * node.lhs.shape[2] // one_lane
        case Reduce():
            return node.arg.size // _lanes_of(node.arg, lane)
        case Cat() | Gather() | Input():
            return node.size // one_lane // 4
        case Nested():
            return 0  # decides for itself
    return 0


def _invariant(loop: Loop, nodes: tuple[Node, ...]) -> frozenset[Node]:
    fixed: set[Node] = set()
    for node in nodes:
        if isinstance(node, Input):
            if node.role == "const":
                fixed.add(node)
        elif loop.going is not None and _can_fail(node):
            continue  # the loop may take no step, and then nothing fails
        elif not isinstance(node, Nested | Project) and all(a in fixed for a in node.inputs):
            fixed.add(node)
    return frozenset(fixed)


def _can_fail(node: Node) -> bool:
    """Whether computing the node can end the loop with an error."""
    if isinstance(node, Map):
        return bool(SCALAR[node.fn].fails) and node.compute.kind == "i"
    return isinstance(node, Gather | Kernel)


def _stored(
    loop: Loop, nodes: tuple[Node, ...], running: Mapping[Node, Node], *, unroll: bool
) -> frozenset[Node]:
    """Return the nodes that get memory of their own."""
    stored: set[Node] = set()
    for node in nodes:
        if isinstance(node, Kernel | Accumulate | ArgReduce | Scatter):
            stored.add(node)
            stored.update(node.inputs)
        elif isinstance(node, Nested):
            stored.update(node.inputs)
        elif isinstance(node, Gather):
            stored.add(node.arg)
    if not unroll:
        stored.update(n for n in nodes if isinstance(n, Cat) or _is_long(n))
        stored.update(
            n for leaf, n in zip(loop.carry, loop.carry_out, strict=True) if leaf not in running
        )
        reads = _reads(loop, nodes)
        several = Map | Gather | Reduce | Contract
        for node in nodes:
            again = reads[node] <= 1 or (reads[node] <= AGAIN and _is_cheap(node, stored))
            if isinstance(node, several) and not again:
                stored.add(node)
        stored.update(_deep(nodes, stored))
    return frozenset(n for n in stored if not isinstance(n, Input | Constant | Iota | Project))


def _is_cheap(node: Node, stored: set[Node]) -> bool:
    """Whether computing an element of `node` again costs no more than reading it from memory."""
    if not isinstance(node, Map) or SCALAR[node.fn].cost > 1:
        return False
    for a in node.args:
        while isinstance(a, Reshape | Permute | Slice | Broadcast):
            a = a.arg
        if a not in stored and not isinstance(a, Input | Constant):
            return False
    return True


def _is_long(node: Node) -> bool:
    """Whether a reduction or product has loops of its own; short ones are written out."""
    return terms(node) > SHORT


def terms(node: Node) -> int:
    """Return how many elements are joined in one element of a reduction or matrix product."""
    if isinstance(node, Reduce):
        return node.arg.size // max(node.size, 1)
    return node.lhs.shape[2] if isinstance(node, Contract) else 0


def _reads(loop: Loop, nodes: tuple[Node, ...]) -> Counter[Node]:
    """Count how often an element of each node is computed if nothing is stored."""
    reads: Counter[Node] = Counter()
    for out in loop.roots:
        reads[out] += 1
    for node in reversed(nodes):
        view = isinstance(node, Reshape | Permute | Slice | Broadcast)
        for a in node.inputs:
            times = max(reads[node], 1) if view else 1
            if isinstance(node, Contract) or (
                isinstance(node, Map | Broadcast) and a.size < node.size
            ):
                times = AGAIN + 1
            reads[a] += times
    return reads


def _deep(nodes: tuple[Node, ...], stored: set[Node]) -> Iterator[Node]:
    """Yield nodes that cut chains of computation which would be nested too deep to write out."""
    depth: dict[Node, int] = {}
    for node in nodes:
        d = 1 + max((0 if a in stored else depth[a] for a in node.inputs), default=0)
        if d >= 64 and isinstance(node, Map):
            yield node
            d = 0
        depth[node] = d
