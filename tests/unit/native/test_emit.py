from __future__ import annotations

import math

import pytest

from fullgraph.native.dtypes import BOOL, F32, F64, I8, I64, U8
from fullgraph.native.emit import TRAILER, emit
from fullgraph.native.emit._elements import converted, literal
from fullgraph.native.emit._index import LANE, linear, minus, plus, reshaped, times
from fullgraph.native.ir import Constant, Contract, Input, Loop, Map
from fullgraph.native.lanes import make_plan
from fullgraph.native.scalar import SCALAR, expression


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, F64, "0.1"),
        (-0.5, F64, "(-0.5)"),
        (0.1, F32, "((float)0.1)"),
        (math.inf, F64, "INFINITY"),
        (-math.inf, F32, "(-INFINITY)"),
        (math.nan, F64, "NAN"),
        (7, I64, "7"),
        (-7, I64, "(-7)"),
        (-(2**63), I64, "INT64_MIN"),
        (2**40, I64, "INT64_C(1099511627776)"),
        (300, I8, "44"),
        (-1, U8, "255"),
        (3.9, I64, "3"),
        (2, BOOL, "1"),
        (1, F64, "1.0"),
    ],
)
def test_literals(value, dtype, text):
    assert literal(value, dtype) == text


def test_conversions():
    assert converted("v", F64, F64) == "v"
    assert converted("v", I64, F64) == "((double)v)"
    assert converted("v", F64, BOOL) == "(v != 0)"


def test_index_arithmetic_folds_numbers():
    assert plus(2, 3) == 5
    assert plus("i", 0) == "i"
    assert plus("i", 2) == "(i + 2)"
    assert times("i", 1) == "i"
    assert times("i", 0) == 0
    assert minus(4, 1) == 3
    assert linear(["i", 2, "j"], (3, 4, 5)) == "(i * 20 + j + 10)"
    assert reshaped([7], (12,), (3, 4)) == [1, 3]
    assert reshaped(["i"], (12,), (3, 4)) == ["(i / 4)", "(i % 4)"]
    assert reshaped([LANE, 0], (8, 1), (8,)) == [LANE]


@pytest.mark.parametrize("fn", SCALAR)
def test_every_scalar_function_has_balanced_text(fn):
    atoms = ["a", "b", "c"]
    for dtype in (F64, F32, I64, I8, BOOL):
        text = expression(fn, dtype, atoms)
        assert text.count("(") == text.count(")")
        assert "{" not in text


def sine_loop(columns):
    c = Input(dtype=F64, shape=(2, columns), role="carry", index=0)
    x = Input(dtype=F64, shape=(columns,), role="x", index=0)
    half = Constant(dtype=F64, shape=(), value=0.5)
    args = (Map(dtype=F64, shape=c.shape, fn="mul", args=(c, half), compute=F64), x)
    new = Map(dtype=F64, shape=c.shape, fn="add", args=args, compute=F64)
    y = Map(dtype=F64, shape=c.shape, fn="sin", args=(new,), compute=F64)
    return Loop(carry=(c,), xs=(x,), consts=(), carry_out=(new,), ys=(y,))


def test_a_small_body_is_scalar_statements():
    loop = sine_loop(1)
    program = emit(loop, make_plan(loop))
    assert program.symbols == []
    assert program.blocks == 1
    body = program.text[program.text.index("  for (int64_t t =") :]
    assert body.splitlines()[:9] == [
        "  for (int64_t t = t_begin; t < t_end; ++t) {",
        "    const int64_t now = first + stride * t;",
        "    const double *restrict x0_t = x0 + now * 1;",
        "    double *restrict y0_t = y0 + now * 2;",
        "    const double v2 = c0[0];",
        "    const double v3 = v2 * 0.5;",
        "    const double v4 = x0_t[0];",
        "    const double v5 = v3 + v4;",
        "    const double v6 = fg_sin(v5);",
    ]
    assert "#define fg_sin sin\n" in program.text


def test_lanes_are_simd_loops_inside_the_loop_over_time():
    loop = sine_loop(2000)
    program = emit(loop, make_plan(loop), isa="avx2")
    text = program.text
    assert program.symbols == ["Sleef_sind4_u10avx2"]
    assert program.blocks == 2
    outer = text.index("for (int64_t b = block_begin;")
    time = text.index("for (int64_t t = t_begin;")
    inner = text.index("#pragma omp simd\n      for (int k = 0; k < 1008; ++k)", time)
    assert outer < time < inner


@pytest.mark.parametrize(("columns", "threads", "blocks"), [(1000, 1, 1), (1000, 3, 3), (16, 4, 1)])
def test_there_is_a_block_for_each_thread(columns, threads, blocks):
    loop = sine_loop(columns)
    assert emit(loop, make_plan(loop, threads=threads)).blocks == blocks


def test_avx512_binds_both_widths():
    loop = sine_loop(64)
    symbols = emit(loop, make_plan(loop), isa="avx512f").symbols
    assert symbols == ["Sleef_sind4_u10avx2", "Sleef_sind8_u10avx512f"]


def test_emission_is_a_pure_function():
    assert emit(sine_loop(9), make_plan(sine_loop(9))) == emit(
        sine_loop(9), make_plan(sine_loop(9))
    )


def test_the_trailer_is_what_the_runtime_packs():
    assert TRAILER == ("t_begin", "t_end", "first", "stride", "block_begin", "block_end", "scratch")


def grid_loop(fn="sub"):
    c = Input(dtype=F64, shape=(8, 3), role="carry", index=0)
    d = Input(dtype=F64, shape=(8, 3), role="carry", index=1)
    apart = Map(dtype=F64, shape=(8, 3), fn=fn, args=(c, d), compute=F64)
    new = Map(dtype=F64, shape=(8, 3), fn="mul", args=(apart, apart), compute=F64)
    return Loop(carry=(c, d), xs=(), consts=(), carry_out=(new, apart), ys=(apart,))


def test_rows_that_lie_together_are_one_loop():
    text = emit(grid_loop(), make_plan(grid_loop(), lanes=False, unroll_limit=-1)).text
    assert "< 24; ++" in text
    assert "< 3; ++" not in text


@pytest.mark.parametrize(("fn", "stored"), [("sub", 1), ("hypot", 2)])
def test_what_is_cheap_is_computed_again_instead_of_stored(fn, stored):
    c = Input(dtype=F64, shape=(8,), role="carry", index=0)
    x = Input(dtype=F64, shape=(8,), role="x", index=0)
    apart = Map(dtype=F64, shape=(8,), fn=fn, args=(c, x), compute=F64)
    new = Map(dtype=F64, shape=(8,), fn="mul", args=(apart, apart), compute=F64)
    y = Map(dtype=F64, shape=(8,), fn="add", args=(apart, c), compute=F64)
    loop = Loop(carry=(c,), xs=(x,), consts=(), carry_out=(new,), ys=(y,))
    assert len(make_plan(loop, lanes=False, unroll_limit=-1).stored) == stored


def test_an_operand_of_a_product_is_stored():
    c = Input(dtype=F64, shape=(1, 9, 9), role="carry", index=0)
    twice = Map(dtype=F64, shape=(1, 9, 9), fn="add", args=(c, c), compute=F64)
    new = Contract(dtype=F64, shape=(1, 9, 9), lhs=twice, rhs=c)
    loop = Loop(carry=(c,), xs=(), consts=(), carry_out=(new,), ys=())
    assert twice in make_plan(loop, lanes=False, unroll_limit=-1).stored
