"""Scalar functions of `Map` nodes: their C expression, cost, and who computes them.

Operands arrive as C atoms (a name or a literal), so an expression may repeat them freely. ``{s}``
is the suffix of a C math function (``f`` for float32), ``{t}`` the C type of the computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from fullgraph.native.dtypes import DType

__all__ = [
    "DIVISION_BY_ZERO",
    "INTERRUPTED",
    "OUT_OF_BOUNDS",
    "SCALAR",
    "SINGULAR",
    "VECTOR_MATH",
    "ScalarFn",
    "expression",
]

# Bits of the status a generated function returns.
DIVISION_BY_ZERO: Final = 1
OUT_OF_BOUNDS: Final = 2
SINGULAR: Final = 4
INTERRUPTED: Final = 8


@dataclass(frozen=True)
class ScalarFn:
    """One scalar function.

    Attributes
    ----------
    real, integer, boolean : str
        C expressions for float, integer and bool computation; empty where there is none.
    result : {"same", "bool"}
        Type of the value: that of the computation, or bool.
    cost : int
        Rough nanocosts, in units of one addition.
    fails : str
        Condition under which an integer computation sets the division status bit.
    """

    real: str = ""
    integer: str = ""
    boolean: str = ""
    result: Literal["same", "bool"] = "same"
    cost: int = 1
    fails: str = ""


def _same(text: str, boolean: str = "", *, cost: int = 1) -> ScalarFn:
    return ScalarFn(text, text, boolean, cost=cost)


def _predicate(text: str) -> ScalarFn:
    return ScalarFn(text, text, text, result="bool")


def _math(name: str, operands: str = "{0}", *, cost: int = 20) -> ScalarFn:
    return ScalarFn(f"fg_{name}{{s}}({operands})", cost=cost)


# Math functions with a vector form in Sleef: name -> (operands, accuracy tag of the symbol).
VECTOR_MATH: Final[dict[str, tuple[int, str]]] = {
    **dict.fromkeys(
        (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"),
            *("sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("erf", "lgamma"),
        ),
        (1, "u10"),
    ),
    "erfc": (1, "u15"),
    "pow": (2, "u10"),
    "atan2": (2, "u10"),
    "hypot": (2, "u05"),
    "fmod": (2, ""),
}

_TAKE_LARGER = "({0} > {1} || {0} != {0}) ? {0} : {1}"
_TAKE_SMALLER = "({0} < {1} || {0} != {0}) ? {0} : {1}"

SCALAR: Final[dict[str, ScalarFn]] = {
    **{name: _math(name, "{0}") for name, (n, _) in VECTOR_MATH.items() if n == 1},
    "pow": ScalarFn("fg_pow{s}({0}, {1})", "fg_ipow({0}, {1})", cost=40),
    "atan2": _math("atan2", "{0}, {1}", cost=40),
    "hypot": _math("hypot", "{0}, {1}"),
    "add": _same("{0} + {1}", "{0} | {1}"),
    "sub": _same("{0} - {1}"),
    "mul": _same("{0} * {1}", "{0} & {1}"),
    "div": ScalarFn("{0} / {1}", cost=4),
    "trunc_div": ScalarFn("trunc{s}({0} / {1})", "fg_quotient({0}, {1})", cost=6, fails="{1} == 0"),
    "floor_div": ScalarFn(
        "fg_floor_div{s}({0}, {1})", "fg_floor_quotient({0}, {1})", cost=30, fails="{1} == 0"
    ),
    "remainder": ScalarFn(
        "fg_remainder{s}({0}, {1})", "fg_modulo({0}, {1})", cost=25, fails="{1} == 0"
    ),
    "fmod": ScalarFn("fg_fmod{s}({0}, {1})", "fg_rest({0}, {1})", cost=20, fails="{1} == 0"),
    "neg": _same("-{0}"),
    "abs": ScalarFn("fabs{s}({0})", "{0} < 0 ? -{0} : {0}", "{0}"),
    "sign": ScalarFn("({t})(({0} > 0) - ({0} < 0))", "({t})(({0} > 0) - ({0} < 0))", "{0}", cost=2),
    "sqrt": ScalarFn("sqrt{s}({0})", cost=6),
    "reciprocal": ScalarFn("1 / {0}", cost=4),
    "rsqrt": ScalarFn("1 / sqrt{s}({0})", cost=10),
    "floor": ScalarFn("floor{s}({0})", "{0}"),
    "ceil": ScalarFn("ceil{s}({0})", "{0}"),
    "trunc": ScalarFn("trunc{s}({0})", "{0}"),
    "round": ScalarFn("nearbyint{s}({0})", "{0}"),
    "copysign": ScalarFn("copysign{s}({0}, {1})"),
    "nextafter": ScalarFn("nextafter{s}({0}, {1})", cost=20),
    "maximum": ScalarFn(_TAKE_LARGER, "{0} > {1} ? {0} : {1}", "{0} | {1}", cost=2),
    "minimum": ScalarFn(_TAKE_SMALLER, "{0} < {1} ? {0} : {1}", "{0} & {1}", cost=2),
    "fmax": ScalarFn("({0} > {1} || {1} != {1}) ? {0} : {1}", "{0} > {1} ? {0} : {1}", cost=2),
    "fmin": ScalarFn("({0} < {1} || {1} != {1}) ? {0} : {1}", "{0} < {1} ? {0} : {1}", cost=2),
    "lt": _predicate("{0} < {1}"),
    "le": _predicate("{0} <= {1}"),
    "gt": _predicate("{0} > {1}"),
    "ge": _predicate("{0} >= {1}"),
    "eq": _predicate("{0} == {1}"),
    "ne": _predicate("{0} != {1}"),
    "isnan": ScalarFn("{0} != {0}", "0", "0", result="bool"),
    "isinf": ScalarFn("fabs{s}({0}) == INFINITY", "0", "0", result="bool"),
    "isfinite": ScalarFn("fabs{s}({0}) < INFINITY", "1", "1", result="bool"),
    "signbit": ScalarFn("signbit({0}) != 0", "{0} < 0", "0", result="bool"),
    "logical_and": _predicate("{0} && {1}"),
    "logical_or": _predicate("{0} || {1}"),
    "logical_xor": _predicate("({0} != 0) != ({1} != 0)"),
    "logical_not": _predicate("!{0}"),
    "bitwise_and": ScalarFn("", "{0} & {1}", "{0} & {1}"),
    "bitwise_or": ScalarFn("", "{0} | {1}", "{0} | {1}"),
    "bitwise_xor": ScalarFn("", "{0} ^ {1}", "{0} ^ {1}"),
    "bitwise_not": ScalarFn("", "~{0}", "!{0}"),
    "shift_left": ScalarFn("", "fg_shift_left({0}, {1}, {t})", cost=2),
    "shift_right": ScalarFn("", "fg_shift_right({0}, {1}, {t})", cost=2),
    "cast": _same("{0}", "{0}"),
    "where": _same("{0} ? {1} : {2}", "{0} ? {1} : {2}"),
}


def expression(fn: str, compute: DType, atoms: list[str]) -> str:
    """Return the C expression of `fn` over `atoms`, or ``""`` where it has no such form."""
    rule = SCALAR[fn]
    text = {"f": rule.real, "i": rule.integer, "b": rule.boolean}[compute.kind]
    if not text:
        return ""
    suffix = "f" if compute.name == "float32" else ""
    expr = text.format(*atoms, s=suffix, t=compute.c)
    if rule.result == "same" and compute.kind == "i" and compute.size < 4:
        return f"({compute.c})({expr})"  # C computes in int
    if suffix and fn in ("reciprocal", "rsqrt"):
        return expr.replace("1 /", "1.0f /")
    return expr
