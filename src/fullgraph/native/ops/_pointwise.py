"""Rules for pointwise operations: arithmetic, comparison, logic, powers, math, casts."""

from __future__ import annotations

from fullgraph.native.dtypes import BOOL, DType
from fullgraph.native.ir import Constant, Map, Node
from fullgraph.native.ops._registry import (
    Call,
    Refused,
    broadcast,
    cast,
    constant,
    mapped,
    promote,
    rule,
)
from fullgraph.native.scalar import SCALAR

_UNARY_MATH = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
    *("asinh", "acosh", "atanh", "erf", "erfc", "lgamma"),
    *("neg", "abs", "sign", "floor", "ceil", "trunc", "round"),
    *("bitwise_not", "logical_not"),
)
_SAME_NAME_BINARY = (
    *("maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "copysign", "nextafter"),
)
_SPACES = ("aten", "prims")  # torch's reference decompositions end in the second
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


def _operand_dtype(call: Call, *positions: int) -> DType:
    return promote(tuple(call.arg(p) for p in positions), call.default_float)


def _unary(call: Call) -> Node:
    fn = call.name.split(".")[1]
    fn = {"sgn": "sign", "special_erfc": "erfc"}.get(fn, fn)
    x = call.tensor(0)
    if fn == "logical_not":
        return mapped(call, fn, cast(x, BOOL), compute=BOOL)
    return mapped(call, fn, x, compute=call.dtype)


rule(
    *(
        f"{space}.{name}.default"
        for name in _UNARY_MATH
        if name != "logical_not"
        for space in _SPACES
    ),
    "aten.logical_not.default",
    "aten.sgn.default",
)(_unary)


@rule("aten.isnan.default", "aten.isinf.default", "aten.signbit.default", "aten.isfinite.default")
def _classify(call: Call) -> Node:
    x = call.tensor(0)
    return mapped(call, call.name.split(".")[1], x, compute=x.dtype)


@rule("aten.round.decimals")
def _round(call: Call) -> Node:
    if call.integer(1, "decimals", 0) != 0:
        raise Refused("round to decimals; scale, round and scale back instead")
    return mapped(call, "round", call.tensor(0), compute=call.dtype)


@rule("aten.relu.default")
def _relu(call: Call) -> Node:
    return mapped(call, "maximum", call.tensor(0), constant(0), compute=call.dtype)


@rule("aten.sigmoid.default")
def _sigmoid(call: Call) -> Node:
    t = call.dtype
    denominator = mapped(
        call,
        "add",
        constant(1),
        mapped(call, "exp", mapped(call, "neg", call.tensor(0), compute=t), compute=t),
        compute=t,
    )
    return mapped(call, "reciprocal", denominator, compute=t)


def _arithmetic(call: Call) -> Node:
    """Apply add, sub or rsub, with their ``alpha``."""
    fn = call.name.split(".")[1]
    a, b = call.tensor(0), call.tensor(1)
    alpha = call.arg(2, "alpha", 1)
    if alpha != 1:
        if not isinstance(alpha, bool | int | float):
            raise Refused("alpha must be a number; multiply before adding instead")
        scaled = a if fn == "rsub" else b
        product = Map(
            dtype=call.dtype,
            shape=scaled.shape,
            fn="mul",
            args=(scaled, constant(alpha)),
            compute=call.dtype,
            origin=call.origin,
        )
        a, b = (product, b) if fn == "rsub" else (a, product)
    if fn == "rsub":
        a, b, fn = b, a, "sub"
    return mapped(call, fn, a, b, compute=call.dtype)


rule(
    *(f"aten.{n}.{o}" for n in ("add", "sub", "rsub") for o in ("Tensor", "Scalar")),
    "prims.add.default",
    "prims.sub.default",
)(_arithmetic)


@rule("aten.mul.Tensor", "aten.mul.Scalar", "prims.mul.default", "aten.true_divide.Tensor")
def _multiply(call: Call) -> Node:
    fn = "mul" if ".mul." in call.name else "div"
    return mapped(call, fn, call.tensor(0), call.tensor(1), compute=call.dtype)


@rule("aten.div.Tensor", "aten.div.Scalar")
def _divide(call: Call) -> Node:
    return mapped(call, "div", call.tensor(0), call.tensor(1), compute=call.dtype)


@rule("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def _divide_rounded(call: Call) -> Node:
    mode = call.arg(2, "rounding_mode")
    fn = {"trunc": "trunc_div", "floor": "floor_div"}.get(str(mode), "div")
    return mapped(call, fn, call.tensor(0), call.tensor(1), compute=call.dtype)


@rule("prims.div.default")
def _prims_divide(call: Call) -> Node:
    fn = "div" if call.dtype.is_float else "trunc_div"
    return mapped(call, fn, call.tensor(0), call.tensor(1), compute=call.dtype)


@rule("aten.floor_divide.default", "aten.floor_divide.Scalar")
def _floor_divide(call: Call) -> Node:
    return mapped(call, "floor_div", call.tensor(0), call.tensor(1), compute=call.dtype)


@rule(
    "aten.remainder.Tensor",
    "aten.remainder.Scalar",
    "aten.remainder.Scalar_Tensor",
    "aten.fmod.Tensor",
    "aten.fmod.Scalar",
    *(f"{space}.{name}.default" for name in _SAME_NAME_BINARY for space in _SPACES),
    "aten.copysign.Tensor",
    "aten.copysign.Scalar",
)
def _binary(call: Call) -> Node:
    fn = call.name.split(".")[1]
    return mapped(call, fn, call.tensor(0), call.tensor(1), compute=call.dtype)


def _compare(call: Call) -> Node:
    compute = _operand_dtype(call, 0, 1)
    return mapped(call, call.name.split(".")[1], call.tensor(0), call.tensor(1), compute=compute)


rule(
    *(f"aten.{n}.{o}" for n in _COMPARE for o in ("Tensor", "Scalar")),
    *(f"prims.{n}.default" for n in _COMPARE),
)(_compare)


@rule("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
def _logical(call: Call) -> Node:
    a, b = cast(call.tensor(0), BOOL), cast(call.tensor(1), BOOL)
    return mapped(call, call.name.split(".")[1], a, b, compute=BOOL)


@rule(
    *(
        f"aten.bitwise_{n}.{o}"
        for n in ("and", "or", "xor")
        for o in ("Tensor", "Scalar", "Scalar_Tensor")
    )
)
def _bitwise(call: Call) -> Node:
    return mapped(call, call.name.split(".")[1], call.tensor(0), call.tensor(1), compute=call.dtype)


@rule(
    *(
        f"aten.bitwise_{n}_shift.{o}"
        for n in ("left", "right")
        for o in ("Tensor", "Tensor_Scalar")
    ),
    *(f"aten.__{n}shift__.{o}" for n in "lr" for o in ("Tensor", "Scalar")),
)
def _shift(call: Call) -> Node:
    fn = "shift_left" if "left" in call.name or "__lshift" in call.name else "shift_right"
    return mapped(call, fn, call.tensor(0), call.tensor(1), compute=call.dtype)


@rule("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor", "aten.pow.Scalar")
def _power(call: Call) -> Node:
    base, exponent, t = call.tensor(0), call.arg(1), call.dtype
    if isinstance(exponent, bool | int | float) and not (t.kind == "i" and exponent < 0):
        short = _short_power(call, base, exponent)
        if short is not None:
            return short
    if t.kind == "b":
        raise Refused("powers of bools; convert to an integer dtype first")
    return mapped(call, "pow", base, call.tensor(1), compute=t)


def _short_power(call: Call, x: Node, exponent: bool | float) -> Node | None:
    """Return the forms that eager torch also takes, so that they agree bit for bit."""
    t = call.dtype
    if t.kind == "b":
        return None
    if exponent == 0:
        return Constant(dtype=t, shape=call.shape, value=1, origin=call.origin)
    if exponent == 1:
        return mapped(call, "cast", x, compute=t)
    if exponent in (2, 3):
        square = mapped(call, "mul", x, x, compute=t)
        return square if exponent == 2 else mapped(call, "mul", square, x, compute=t)
    if not t.is_float:
        return None
    match exponent:
        case 0.5:
            return mapped(call, "sqrt", x, compute=t)
        case -0.5:
            return mapped(call, "rsqrt", x, compute=t)
        case -1:
            return mapped(call, "reciprocal", x, compute=t)
        case -2:
            return mapped(call, "reciprocal", mapped(call, "mul", x, x, compute=t), compute=t)
    return None


@rule("aten.square.default")
def _square(call: Call) -> Node:
    return mapped(call, "mul", call.tensor(0), call.tensor(0), compute=call.dtype)


@rule(
    "aten.where.self",
    "aten.where.ScalarSelf",
    "aten.where.ScalarOther",
    "aten.where.Scalar",
    "prims.where.default",
)
def _where(call: Call) -> Node:
    return mapped(
        call,
        "where",
        cast(call.tensor(0), BOOL),
        call.tensor(1),
        call.tensor(2),
        compute=call.dtype,
    )


@rule("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def _masked_fill(call: Call) -> Node:
    return mapped(call, "where", call.tensor(1), call.tensor(2), call.tensor(0), compute=call.dtype)


@rule(
    "aten.clamp.default",
    "aten.clamp.Tensor",
    "aten.clamp_min.default",
    "aten.clamp_max.default",
    "aten.clamp_min.Tensor",
    "aten.clamp_max.Tensor",
)
def _clamp(call: Call) -> Node:
    x = call.tensor(0)
    low = None if "clamp_max" in call.name else call.arg(1, "min")
    high = call.arg(1, "max") if "clamp_max" in call.name else call.arg(2, "max")
    for bound, fn in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            b = bound if isinstance(bound, Node) else constant(bound)  # type: ignore[arg-type]
            x = mapped(call, fn, x, b, compute=call.dtype)
    return broadcast(cast(x, call.dtype), call.shape)


@rule("aten._to_copy.default", "prims.convert_element_type.default", "aten.to.dtype")
def _convert(call: Call) -> Node:
    return cast(call.tensor(0), call.dtype)


@rule(
    "aten.clone.default",
    "aten.alias.default",
    "aten.detach.default",
    "aten.lift_fresh_copy.default",
    "aten.lift_fresh.default",
    "aten.contiguous.default",
    "prims.view_of.default",
    "prims.clone.default",
    "fullgraph.mark.default",
)
def _identity(call: Call) -> Node:
    return call.tensor(0)


@rule("aten.copy.default")
def _copy(call: Call) -> Node:
    return broadcast(cast(call.tensor(1), call.dtype), call.shape)


def _check_table() -> None:
    missing = {n for n in (*_UNARY_MATH, *_SAME_NAME_BINARY, *_COMPARE) if n not in SCALAR}
    if missing:
        raise ValueError(f"no scalar function for {sorted(missing)}")


_check_table()
