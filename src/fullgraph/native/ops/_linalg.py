"""Rules for matrix products and small dense linear algebra."""

from __future__ import annotations

import math

from fullgraph.native.ir import Contract, Kernel, Node, Shape
from fullgraph.native.ops._registry import Call, Refused, broadcast, permute, reshape, rule

LARGEST = 16  # rows of a matrix that is solved or factored in a body


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


def _stacked(x: Node, lead: Shape) -> Node:
    """Return matrices as one stack, repeated to the leading shape."""
    whole = broadcast(x, (*lead, *x.shape[-2:]))
    return reshape(whole, (math.prod(lead), *x.shape[-2:]))


def _kernel(
    call: Call,
    name: str,
    args: tuple[Node, ...],
    *,
    options: tuple[bool, ...] = (),
    shape: Shape | None = None,
) -> Kernel:
    rows = args[0].shape[-1]
    if rows > LARGEST:
        raise Refused(f"a matrix of {rows} rows; inside a body up to {LARGEST} are supported")
    if call.guard is not None:
        raise Refused("inside a branch of cond, where it would run untaken; take it out of there")
    return Kernel(
        dtype=args[-1].dtype,
        shape=args[-1].shape if shape is None else shape,
        name=name,
        args=args,
        options=options,
        origin=call.origin,
    )


def _only_first(call: Call, first: Node) -> tuple[Node, ...]:
    """Return all results of a call of which only the first has a value; others must be unused."""
    rest = tuple(
        Kernel(dtype=d, shape=s, name=f"{call.name} number {i + 1}", args=(), origin=call.origin)
        for i, (d, s) in enumerate(zip(call.dtypes, call.shapes, strict=True))
        if i
    )
    return (first, *rest)


def _swapped(x: Node) -> Node:
    """Return matrices transposed."""
    rank = len(x.shape)
    return permute(x, (*range(rank - 2), rank - 1, rank - 2))


_FACTORS = "factors, which only lu_solve can use,"


@rule("aten._linalg_solve_ex.default", "aten.linalg_solve_ex.default")
def _solve(call: Call) -> tuple[Node, ...]:
    a, b = call.tensor(0), call.tensor(1)
    left = call.flag(2, "left", default=True)
    vector = len(b.shape) == 1 or (len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1])
    if vector:
        b = reshape(b, (*b.shape, 1))
    lead = call.shape[: -1 if vector else -2]
    found = _solved(call, a, b, lead, left=left or vector)
    first, *rest = _only_first(call, reshape(found, call.shape))
    if len(rest) > 1:  # what the derivative needs: the matrix itself is all there is to keep
        factors = Kernel(
            dtype=a.dtype, shape=call.shapes[1], name=_FACTORS, args=(a,), origin=call.origin
        )
        rest[0] = factors
    return (first, *rest)


def _solved(call: Call, a: Node, b: Node, lead: Shape, *, left: bool) -> Node:
    """Return ``inverse(a) @ b``, or ``b @ inverse(a)`` if not `left`."""
    if left:
        return _kernel(call, "solve", (_stacked(a, lead), _stacked(b, lead)))
    turned = (_stacked(_swapped(a), lead), _stacked(_swapped(b), lead))
    return _swapped(_kernel(call, "solve", turned))


@rule("aten.linalg_lu_solve.default")
def _lu_solve(call: Call) -> Node:
    factors, b = call.tensor(0), call.tensor(2)
    if not (isinstance(factors, Kernel) and factors.name == _FACTORS):
        raise Refused("factors that do not come from solve")
    # Factored again rather than kept: for matrices this small that is cheaper than memory.
    a = factors.args[0]
    if call.flag(4, "adjoint"):
        a = _swapped(a)
    left = call.flag(3, "left", default=True)
    return reshape(_solved(call, a, b, call.shape[:-2], left=left), call.shape)


@rule("aten.linalg_inv_ex.default")
def _inverse(call: Call) -> tuple[Node, ...]:
    a = call.tensor(0)
    return _only_first(
        call, reshape(_kernel(call, "inv", (_stacked(a, a.shape[:-2]),)), call.shape)
    )


@rule("aten._linalg_det.default")
def _determinant(call: Call) -> tuple[Node, ...]:
    a = _stacked(call.tensor(0), call.shape)
    found = _kernel(call, "det", (a,), shape=(a.shape[0], 1))
    return _only_first(call, reshape(found, call.shape))


@rule("aten.linalg_cholesky_ex.default")
def _cholesky(call: Call) -> tuple[Node, ...]:
    a = call.tensor(0)
    upper = call.flag(1, "upper")
    last = len(a.shape) - 1
    order = (*range(last - 1), last, last - 1)
    if upper:  # the factor of the transpose, transposed: eager reads the other triangle
        a = permute(a, order)
    lower = reshape(_kernel(call, "cholesky", (_stacked(a, a.shape[:-2]),)), call.shape)
    return _only_first(call, permute(lower, order) if upper else lower)


@rule("aten.linalg_solve_triangular.default")
def _triangular(call: Call) -> Node:
    a, b = call.tensor(0), call.tensor(1)
    left, upper = call.flag(3, "left", default=True), call.flag(2, "upper")
    if not left:
        a, b, upper = _swapped(a), _swapped(b), not upper
    options = (upper, call.flag(4, "unitriangular"))
    lead = call.shape[:-2]
    args = (_stacked(a, lead), _stacked(b, lead))
    found = _kernel(call, "triangular", args, options=options)
    return reshape(found if left else _swapped(found), call.shape)


@rule("aten.triangular_solve.default")
def _old_triangular(call: Call) -> tuple[Node, ...]:
    raise Refused("an old interface; use torch.linalg.solve_triangular")
