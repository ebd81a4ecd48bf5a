"""Rules for matrix products and small dense linear algebra."""

from __future__ import annotations

from fullgraph.native.ir import Contract, Node
from fullgraph.native.ops._registry import Call, reshape, rule


def _product(call: Call, a: Node, b: Node) -> Node:
    """Return ``(b, m, k) @ (b, k, n)`` under the shape of the call's result."""
    shape = (a.shape[0], a.shape[1], b.shape[2])
    return reshape(
        Contract(dtype=call.dtype, shape=shape, lhs=a, rhs=b, origin=call.origin), call.shape
    )


@rule(
    "aten.mm.default",
    "aten.mv.default",
    "aten.dot.default",
    "aten.bmm.default",
    "aten.vdot.default",
)
def _matmul(call: Call) -> Node:
    a, b = call.tensor(0), call.tensor(1)
    if ".bmm." in call.name:
        return _product(call, a, b)
    rows = a.shape[0] if len(a.shape) == 2 else 1
    columns = b.shape[1] if len(b.shape) == 2 else 1
    inner = a.shape[-1]
    return _product(call, reshape(a, (1, rows, inner)), reshape(b, (1, inner, columns)))
