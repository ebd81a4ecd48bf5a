"""Which dimensions of operands and results go together, and so are lanes of a whole body."""

from __future__ import annotations

from collections import Counter

from fullgraph.native.ir import (
    Broadcast,
    Cat,
    Constant,
    Contract,
    Gather,
    Input,
    Iota,
    Loop,
    Map,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scatter,
    Slice,
)

__all__ = ["Axis", "axes_of", "find_lanes", "outer_sums", "reshape_groups"]

MIN_LANES = 4

Axis = tuple[Node, int]


def reshape_groups(a: tuple[int, ...], b: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """Split the dimensions of two shapes of one size into shortest groups of equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        p = q = 1
        while True:
            if p == q and (left or right):
                break
            if i < len(a) and (p <= q or j >= len(b)):
                left.append(i)
                p *= a[i]
                i += 1
            elif j < len(b):
                right.append(j)
                q *= b[j]
                j += 1
            else:
                break
        # Trailing ones belong to the group before them.
        while p == q and i < len(a) and a[i] == 1:
            left.append(i)
            i += 1
        while p == q and j < len(b) and b[j] == 1:
            right.append(j)
            j += 1
        groups.append((left, right))
    return groups


def _tie_trailing(ties: list[tuple[Axis, Axis]], node: Node, a: Node) -> None:
    """Tie the axes of an operand to those of a result with which they are broadcast."""
    shift = len(node.shape) - len(a.shape)
    for d, n in enumerate(a.shape):
        if n == node.shape[d + shift]:
            ties.append(((a, d), (node, d + shift)))


def axes_of(node: Node) -> tuple[list[tuple[Axis, Axis]], list[Axis]]:
    """Return which axes of operands and result go together, and which cannot be lanes."""
    ties: list[tuple[Axis, Axis]] = []
    stops: list[Axis] = []

    match node:
        case Map():
            for a in node.args:
                _tie_trailing(ties, node, a)
        case Broadcast():
            _tie_trailing(ties, node, node.arg)
        case Reshape():
            for left, right in reshape_groups(node.arg.shape, node.shape):
                long_l = [d for d in left if node.arg.shape[d] != 1]
                long_r = [d for d in right if node.shape[d] != 1]
                if len(long_l) == len(long_r) == 1:
                    ties.append(((node.arg, long_l[0]), (node, long_r[0])))
                else:
                    stops += [(node.arg, d) for d in long_l] + [(node, d) for d in long_r]
        case Permute():
            ties += [((node.arg, d), (node, k)) for k, d in enumerate(node.order)]
        case Slice():
            for d, n in enumerate(node.shape):
                if (n, node.starts[d], node.steps[d]) == (node.arg.shape[d], 0, 1):
                    ties.append(((node.arg, d), (node, d)))
                else:
                    stops += [(node.arg, d), (node, d)]
        case Cat():
            for d in range(len(node.shape)):
                for a in node.args:
                    if d == node.dim:
                        stops.append((a, d))
                    else:
                        ties.append(((a, d), (node, d)))
            stops.append((node, node.dim))
        case Reduce():
            kept = [d for d in range(len(node.arg.shape)) if d not in node.dims]
            ties += [((node.arg, d), (node, k)) for k, d in enumerate(kept)]
            stops += [(node.arg, d) for d in node.dims]
        case Contract():
            ties += [((node.lhs, 0), (node, 0)), ((node.rhs, 0), (node, 0))]
            ties += [((node.lhs, 1), (node, 1)), ((node.rhs, 2), (node, 2))]
            stops += [(node.lhs, 2), (node.rhs, 1)]
        case Gather() | Scatter():
            _tie_places(ties, stops, node)
        case Input() | Constant() | Iota():
            pass
        case _:
            stops += [(n, d) for n in (node, *node.inputs) for d in range(len(n.shape))]
    return ties, stops


def _tie_places(ties: list[tuple[Axis, Axis]], stops: list[Axis], node: Gather | Scatter) -> None:
    """Tie what is read or written at places that tensors hold.

    `whole` is what the places are in, `part` what is found or put there.
    """
    whole, part = (node.arg, node) if isinstance(node, Gather) else (node, node.value)
    for d, source in enumerate(node.sources):
        if isinstance(source, Node):
            stops.append((whole, d))
            _tie_trailing(ties, part, source)
        elif whole.shape[d] == part.shape[source]:
            ties.append(((whole, d), (part, source)))
        else:
            stops.append((whole, d))
            if isinstance(node, Scatter):
                stops.append((part, source))
    if isinstance(node, Scatter):
        ties += [((node.base, d), (node, d)) for d in range(len(node.shape))]
        placed = {s for s in node.sources if isinstance(s, int)}
        stops += [(part, d) for d in range(len(part.shape)) if d not in placed]


class _Classes:
    """Sets of axes that must be lanes together (union-find)."""

    def __init__(self) -> None:
        self.parent: dict[Axis, Axis] = {}

    def find(self, axis: Axis) -> Axis:
        root = axis
        while (up := self.parent.setdefault(root, root)) != root:
            root = up
        while axis != root:
            self.parent[axis], axis = root, self.parent[axis]
        return root

    def join(self, a: Axis, b: Axis) -> None:
        self.parent[self.find(a)] = self.find(b)


def outer_sums(loop: Loop, nodes: tuple[Node, ...]) -> frozenset[Reduce]:
    """Return the sums over one dimension that end in ys, perhaps as views, and nowhere else."""
    readers: Counter[Node] = Counter(loop.roots)
    for n in nodes:
        readers.update(n.inputs)
    found: set[Reduce] = set()
    for y in loop.ys:
        node = y
        while isinstance(node, Reshape) and readers[node] == 1:
            node = node.arg
        if isinstance(node, Reduce) and node.fn == "sum" and len(node.dims) == readers[node] == 1:
            found.add(node)
    return frozenset(found)


def find_lanes(
    loop: Loop, nodes: tuple[Node, ...], sums: frozenset[Reduce] = frozenset()
) -> tuple[dict[Node, int], int]:
    """Return the lane dimension of each node that has one, and how many lanes there are.

    `sums` are sums that may go over lanes.
    """
    classes = _Classes()
    blocked: list[Axis] = []
    for node in nodes:
        ties, stops = axes_of(node)
        for a, b in ties:
            classes.join(a, b)
        if node not in sums:
            blocked.extend(stops)
    for before, after in zip(loop.carry, loop.carry_out, strict=True):
        for d in range(len(before.shape)):
            classes.join((before, d), (after, d))
    closed = {classes.find(axis) for axis in blocked}
    members: dict[Axis, list[Axis]] = {}
    for node in dict.fromkeys((*loop.carry, *nodes)):
        for d, n in enumerate(node.shape):
            root = classes.find((node, d))
            if n >= MIN_LANES and root not in closed:
                members.setdefault(root, []).append((node, d))
    outputs = {*loop.carry, *loop.ys}
    best: dict[Node, int] = {}
    count = 0
    for axes in members.values():
        lane = dict(axes)
        size = axes[0][0].shape[axes[0][1]]
        once = len(lane) == len(axes)  # no node has two lane dimensions
        mixed = any(
            a in lane and not (n in sums and lane[a] in n.dims)
            for n in nodes
            if n not in lane
            for a in n.inputs
        )
        if size > count and once and not mixed and outputs & lane.keys():
            best, count = lane, size
    return best, count
