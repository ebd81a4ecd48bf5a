"""Rules for reductions and running sums."""

from __future__ import annotations

from fullgraph.native.dtypes import BOOL, I64
from fullgraph.native.ir import Accumulate, ArgReduce, Map, Node, Reduce, Shape
from fullgraph.native.ops._registry import (
    Call,
    Refused,
    broadcast,
    cast,
    constant,
    mapped,
    reshape,
    rule,
    wrap_dim,
)


def reduced(x: Node, fn: str, dims: tuple[int, ...], origin: str) -> Node:
    """Return `x` reduced over `dims`, which are dropped."""
    if not dims:
        return x
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    return Reduce(dtype=x.dtype, shape=shape, arg=x, fn=fn, dims=dims, origin=origin)


def _dims(call: Call, x: Node, position: int) -> tuple[int, ...]:
    given = call.integers(position, "dim")
    if not given:
        return tuple(range(len(x.shape)))
    return tuple(sorted(wrap_dim(d, len(x.shape)) for d in given)) if x.shape else ()


@rule(
    "aten.sum.default",
    "aten.sum.dim_IntList",
    "prims.sum.default",
    "aten.prod.default",
    "aten.prod.dim_int",
)
def _sum(call: Call) -> Node:
    fn = "sum" if ".sum." in call.name else "prod"
    x = cast(call.tensor(0), call.dtype)
    return reshape(reduced(x, fn, _dims(call, x, 1), call.origin), call.shape)


@rule("aten.mean.default", "aten.mean.dim")
def _mean(call: Call) -> Node:
    x = cast(call.tensor(0), call.dtype)
    dims = _dims(call, x, 1)
    count = 1
    for d in dims:
        count *= x.shape[d]
    total = reshape(reduced(x, "sum", dims, call.origin), call.shape)
    return mapped(call, "div", total, constant(count), compute=call.dtype)


@rule("aten.var.correction", "prims.var.default")
def _variance(call: Call) -> Node:
    x = cast(call.tensor(0), call.dtype)
    dims = _dims(call, x, 1)
    correction = call.arg(2, "correction", 1)
    if correction is None:
        correction = 1
    if not isinstance(correction, int | float):
        raise Refused("a variance whose correction is only known while the loop runs")
    count = 1
    for d in dims:
        count *= x.shape[d]
    kept: Shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    t = call.dtype

    def of(fn: str, a: Node, b: Node, shape: Shape) -> Node:
        return Map(dtype=t, shape=shape, fn=fn, args=(a, b), compute=t, origin=call.origin)

    total = reshape(reduced(x, "sum", dims, call.origin), kept)
    deviation = of("sub", x, of("div", total, constant(count), kept), x.shape)
    squares = of("mul", deviation, deviation, x.shape)
    total = reshape(reduced(squares, "sum", dims, call.origin), call.shape)
    return of("div", total, constant(max(count - correction, 0)), call.shape)


@rule("aten.amax.default", "aten.amin.default", "aten.max.default", "aten.min.default")
def _extreme(call: Call) -> Node:
    fn = "amax" if "max" in call.name else "amin"
    x = call.tensor(0)
    dims = (
        tuple(range(len(x.shape)))
        if call.name.endswith(("max.default", "min.default"))
        and not call.name.startswith("aten.am")
        else _dims(call, x, 1)
    )
    return reshape(reduced(x, fn, dims, call.origin), call.shape)


@rule("aten.max.dim", "aten.min.dim")
def _extreme_with_index(call: Call) -> tuple[Node, ...]:
    x = call.tensor(0)
    if not x.shape:
        return x, constant(0)
    dim = wrap_dim(call.integer(1), len(x.shape))
    kind = "max" if ".max." in call.name else "min"
    index = _arg(x, f"arg{kind}", dim, call.origin)
    value = reduced(x, f"a{kind}", (dim,), call.origin)
    return reshape(value, call.shapes[0]), reshape(index, call.shapes[1])


@rule("aten.argmax.default", "aten.argmin.default")
def _arg_extreme(call: Call) -> Node:
    x = call.tensor(0)
    fn = call.name.split(".")[1]
    dims = call.integers(1, "dim")
    if dims is None:
        return reshape(_arg(reshape(x, (x.size,)), fn, 0, call.origin), call.shape)
    if not x.shape:
        return cast(constant(0), I64)
    return reshape(_arg(x, fn, wrap_dim(dims[0], len(x.shape)), call.origin), call.shape)


def _arg(x: Node, fn: str, dim: int, origin: str) -> Node:
    shape = tuple(n for d, n in enumerate(x.shape) if d != dim)
    return ArgReduce(dtype=I64, shape=shape, arg=x, fn=fn, dim=dim, origin=origin)


@rule(
    "aten.any.default",
    "aten.any.dim",
    "aten.any.dims",
    "aten.all.default",
    "aten.all.dim",
    "aten.all.dims",
)
def _truth(call: Call) -> Node:
    fn = call.name.split(".")[1]
    x = cast(call.tensor(0), BOOL)
    dims = tuple(range(len(x.shape))) if call.name.endswith("default") else _dims(call, x, 1)
    return cast(reshape(reduced(x, fn, dims, call.origin), call.shape), call.dtype)


@rule("aten.cumsum.default", "aten.cumprod.default")
def _running(call: Call) -> Node:
    fn = "sum" if "cumsum" in call.name else "prod"
    x = broadcast(cast(call.tensor(0), call.dtype), call.shape)
    if not x.shape:
        return x
    dim = wrap_dim(call.integer(1), len(x.shape))
    return Accumulate(dtype=call.dtype, shape=call.shape, arg=x, fn=fn, dim=dim, origin=call.origin)
