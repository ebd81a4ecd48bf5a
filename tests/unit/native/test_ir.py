from __future__ import annotations

import pytest

from fullgraph.native.axes import reshape_groups
from fullgraph.native.dtypes import BOOL, F32, F64, I64
from fullgraph.native.ir import (
    Cat,
    Constant,
    Contract,
    Input,
    InvalidIRError,
    Loop,
    Map,
    Reduce,
    Reshape,
    Slice,
    topological,
)
from fullgraph.native.lanes import make_plan
from fullgraph.native.printer import format_loop
from fullgraph.native.verify import verify


def carry(shape=(3, 8), dtype=F64, index=0):
    return Input(dtype=dtype, shape=shape, role="carry", index=index)


def scaled(node, dtype=F64):
    two = Constant(dtype=dtype, shape=(), value=2)
    return Map(dtype=dtype, shape=node.shape, fn="mul", args=(node, two), compute=dtype)


def loop(*results, inputs, ys=()):
    return Loop(carry=inputs, xs=(), consts=(), carry_out=results, ys=tuple(ys))


def test_a_loop_prints_one_value_a_line():
    c = carry()
    text = format_loop(loop(scaled(c), inputs=(c,), ys=[c]))
    assert text.splitlines() == [
        "loop",
        "  %0: float64[3, 8] = input carry 0",
        "  %1: float64[] = constant 2",
        "  %2: float64[3, 8] = map mul %0 %1",
        "  carry %2",
        "  y %0",
    ]


def test_operands_come_before_users_without_recursion():
    node = c = carry()
    for _ in range(5000):
        node = scaled(node)
    order = topological([node])
    assert order[0] is c
    assert order[-1] is node
    assert len(order) == 10_001


C = carry()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Reshape(dtype=F64, shape=(5,), arg=C), "sizes differ"),
        (Reshape(dtype=F32, shape=(24,), arg=C), "a view keeps its dtype"),
        (Slice(dtype=F64, shape=(3, 8), arg=C, starts=(1, 0), steps=(1, 1)), "reads outside"),
        (Cat(dtype=F64, shape=(5, 8), args=(C, C), dim=0), "parts do not add up"),
        (Reduce(dtype=F64, shape=(3,), arg=C, fn="sum", dims=(0,)), "wrong shape"),
        (
            Contract(
                dtype=F64,
                shape=(1, 3, 3),
                lhs=Reshape(dtype=F64, shape=(1, 3, 8), arg=C),
                rhs=Reshape(dtype=F64, shape=(1, 6, 4), arg=C),
            ),
            "shapes do not fit",
        ),
        (Map(dtype=F64, shape=(8,), fn="neg", args=(C,), compute=F64), "does not broadcast"),
    ],
)
def test_broken_nodes_are_found(node, message):
    with pytest.raises(InvalidIRError, match=message):
        verify(loop(C, inputs=(C,), ys=[node]))


def test_a_carry_that_changes_is_found():
    with pytest.raises(InvalidIRError, match=r"carry 0 is float64.* becomes bool"):
        verify(loop(Constant(dtype=BOOL, shape=(3, 8), value=1), inputs=(C,)))
    with pytest.raises(InvalidIRError, match="as many carry results"):
        verify(loop(inputs=(C,)))
    with pytest.raises(InvalidIRError, match="belongs to another loop"):
        verify(loop(carry(), inputs=(C,)))


@pytest.mark.parametrize(
    ("a", "b", "groups"),
    [
        ((6,), (2, 3), [([0], [0, 1])]),
        ((2, 3), (6,), [([0, 1], [0])]),
        ((4, 5), (4, 5), [([0], [0]), ([1], [1])]),
        ((4, 1, 5), (4, 5), [([0, 1], [0]), ([2], [1])]),
        ((2, 6), (4, 3), [([0, 1], [0, 1])]),
    ],
)
def test_reshapes_fall_into_groups(a, b, groups):
    assert reshape_groups(a, b) == groups


def test_an_elementwise_dimension_is_a_lane():
    c = carry((3, 8))
    row = Reshape(
        dtype=F64,
        shape=(8,),
        arg=Slice(dtype=F64, shape=(1, 8), arg=c, starts=(1, 0), steps=(1, 1)),
    )
    new = Map(dtype=F64, shape=(3, 8), fn="add", args=(scaled(c), row), compute=F64)
    plan = make_plan(loop(new, inputs=(c,)))
    assert (plan.lanes, plan.lane[c], plan.lane[row]) == (8, 1, 0)


def test_a_reduced_dimension_is_none():
    c = carry((3, 8))
    total = Reduce(dtype=F64, shape=(3,), arg=c, fn="sum", dims=(1,))
    plan = make_plan(loop(scaled(c), inputs=(c,), ys=[total]))
    assert plan.lanes == 0


def test_lanes_that_repeat_expensive_common_work_are_not_taken():
    c, d = carry((1000,)), carry((200,), index=1)
    common = d
    for _ in range(20):
        common = Map(dtype=F64, shape=(200,), fn="sin", args=(common,), compute=F64)
    loop_ = Loop(carry=(c, d), xs=(), consts=(), carry_out=(scaled(c), common), ys=())
    assert make_plan(loop_).lane.get(c) is None


def test_an_integer_index_is_int64():
    from fullgraph.native.ir import ArgReduce

    node = ArgReduce(dtype=F64, shape=(3,), arg=C, fn="argmax", dim=1)
    with pytest.raises(InvalidIRError, match="an index is int64"):
        verify(loop(C, inputs=(C,), ys=[node]))
    verify(loop(C, inputs=(C,), ys=[ArgReduce(dtype=I64, shape=(3,), arg=C, fn="argmax", dim=1)]))
