"""Check that a loop is well formed before C is written for it."""

from __future__ import annotations

from fullgraph.native.dtypes import BOOL, I64
from fullgraph.native.ir import (
    ArgReduce,
    Broadcast,
    Cat,
    Contract,
    Gather,
    Input,
    InvalidIRError,
    Loop,
    Map,
    Nested,
    Node,
    Permute,
    Reduce,
    Reshape,
    Scatter,
    Shape,
    Slice,
)

__all__ = ["verify"]


def verify(loop: Loop) -> None:
    """Check every rule of the IR.

    Raises
    ------
    InvalidIRError
        At the first node that breaks a rule.
    """
    if len(loop.carry) != len(loop.carry_out):
        raise InvalidIRError("as many carry results as carry inputs are needed")
    for before, after in zip(loop.carry, loop.carry_out, strict=True):
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            raise InvalidIRError(
                f"carry {before.index} is {before.dtype}{list(before.shape)} "
                f"and becomes {after.dtype}{list(after.shape)}"
            )
    if loop.going is not None:
        if (loop.going.dtype, loop.going.shape) != (BOOL, ()):
            raise InvalidIRError("the condition of a while loop is one truth value")
        if loop.xs or loop.ys:
            raise InvalidIRError("a while loop has no xs and no ys")
    known = {*loop.carry, *loop.xs, *loop.consts}
    for node in loop.nodes:
        if isinstance(node, Input) and node not in known:
            raise InvalidIRError(f"input {node.describe()} belongs to another loop")
        problem = _problem(node)
        if problem:
            raise InvalidIRError(f"{type(node).__name__} {node.describe()}: {problem}")


def _broadcastable(shape: Shape, to: Shape) -> bool:
    if len(shape) > len(to):
        return False
    tail = to[len(to) - len(shape) :]
    return all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def _problem(node: Node) -> str:
    match node:
        case Map():
            if not all(_broadcastable(a.shape, node.shape) for a in node.args):
                return "an operand does not broadcast"
        case Reshape():
            if node.arg.size != node.size:
                return "sizes differ"
        case Permute():
            if sorted(node.order) != list(range(len(node.arg.shape))):
                return "not a permutation"
            if node.shape != tuple(node.arg.shape[d] for d in node.order):
                return "wrong shape"
        case Slice():
            for n, start, step, full in zip(
                node.shape, node.starts, node.steps, node.arg.shape, strict=True
            ):
                if n and not (0 <= start < full and 0 <= start + (n - 1) * step < full):
                    return "reads outside"
        case Broadcast():
            if not _broadcastable(node.arg.shape, node.shape):
                return "does not broadcast"
        case Cat():
            if sum(a.shape[node.dim] for a in node.args) != node.shape[node.dim]:
                return "parts do not add up"
            if any(a.dtype != node.dtype for a in node.args):
                return "parts differ in dtype"
        case Reduce():
            kept = tuple(n for d, n in enumerate(node.arg.shape) if d not in node.dims)
            if node.shape != kept:
                return "wrong shape"
        case ArgReduce() if node.dtype != I64:
            return "an index is int64"
        case Contract():
            (b, m, k), (b2, k2, n) = node.lhs.shape, node.rhs.shape
            if (b, k) != (b2, k2) or node.shape != (b, m, n):
                return "shapes do not fit"
        case Gather():
            if len(node.sources) != len(node.arg.shape):
                return "one source for each dimension is needed"
            for source in node.sources:
                if isinstance(source, Node) and source.dtype in (BOOL,):
                    return "an index is an integer"
        case Scatter():
            if node.base.shape != node.shape or len(node.sources) != len(node.shape):
                return "one source for each dimension of the base is needed"
            if not node.base.dtype == node.value.dtype == node.dtype:
                return "base and value have one dtype"
        case Nested():
            verify(node.loop)
    if isinstance(node, Reshape | Permute | Slice | Broadcast) and node.dtype != node.arg.dtype:
        return "a view keeps its dtype"
    return ""
