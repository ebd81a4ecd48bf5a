"""Which dimensions of operands and results of a node go together."""

from __future__ import annotations

from fullgraph.native.ir import (
    Broadcast,
    Cat,
    Constant,
    Contract,
    Gather,
    Input,
    Iota,
    Map,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scatter,
    Slice,
)

__all__ = ["Axis", "axes_of", "reshape_groups"]

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
