"""Rules for operations that make tensors out of nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.native.ir import Constant, Iota, Node
from fullgraph.native.ops._registry import Call, Refused, broadcast, cast, rule

if TYPE_CHECKING:
    from fullgraph.native.dtypes import DType


def _filled(call: Call, value: object) -> Node:
    if isinstance(value, Node):
        return broadcast(cast(value, call.dtype), call.shape)
    if not isinstance(value, bool | int | float):
        raise Refused(f"a fill value of {value!r}")
    return Constant(dtype=call.dtype, shape=call.shape, value=value, origin=call.origin)


@rule("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def _full(call: Call) -> Node:
    return _filled(call, call.arg(2 if "new_full" in call.name else 1, "fill_value"))


@rule("aten.fill.Scalar", "aten.fill.Tensor")
def _fill(call: Call) -> Node:
    return _filled(call, call.arg(1, "value"))


@rule("aten.scalar_tensor.default")
def _scalar(call: Call) -> Node:
    return _filled(call, call.arg(0))


@rule(
    "aten.zeros.default",
    "aten.zeros_like.default",
    "aten.new_zeros.default",
    # The contents of empty tensors are unspecified, so zeros are one right answer.
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.new_empty.default",
    "aten.empty_strided.default",
    "aten.new_empty_strided.default",
)
def _zeros(call: Call) -> Node:
    return _filled(call, 0)


@rule("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(call: Call) -> Node:
    return _filled(call, 1)


@rule("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(call: Call) -> Node:
    numbers = [a for a in call.args if isinstance(a, int | float)]
    if len(numbers) != len(call.args):
        raise Refused("arange with bounds that are only known while the loop runs")
    start, step = (
        (0, 1) if len(numbers) == 1 else (numbers[0], numbers[2] if len(numbers) > 2 else 1)
    )
    return _iota(call, start, step)


@rule("prims.iota.default")
def _prims_iota(call: Call) -> Node:
    start, step = call.kwargs.get("start"), call.kwargs.get("step")
    if not isinstance(start, int | float) or not isinstance(step, int | float):
        raise Refused("iota with bounds that are only known while the loop runs")
    return _iota(call, start, step)


def _iota(call: Call, start: float, step: float) -> Node:
    dtype: DType = call.dtype
    return Iota(dtype=dtype, shape=call.shape, start=start, step=step, origin=call.origin)
