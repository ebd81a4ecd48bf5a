from __future__ import annotations

import pytest
import torch

from fullgraph.errors import NativeRuntimeError
from fullgraph.native import allocate, dispatch, loaded, runtime
from fullgraph.native.direct import tree_expression
from fullgraph.native.dtypes import F64, I64
from fullgraph.native.ir import Constant, Input, Loop, Map
from fullgraph.native.lanes import make_plan


def halving(shape=(2, 8)):
    c = Input(dtype=F64, shape=shape, role="carry", index=0)
    half = Constant(dtype=F64, shape=(), value=0.5)
    new = Map(dtype=F64, shape=shape, fn="mul", args=(c, half), compute=F64)
    return Loop(carry=(c,), xs=(), consts=(), carry_out=(new,), ys=(c,))


@pytest.mark.parametrize("block", [None, 4, 5])
def test_a_compiled_loop_runs(block):
    loop = halving()
    compiled = runtime.compile_loop(loop, make_plan(loop, block=block))
    init = torch.rand(2, 8, dtype=torch.float64)
    carry, ys = compiled([init], 3)
    assert torch.equal(carry, init / 8)
    assert torch.equal(ys, torch.stack([init, init / 2, init / 4]))
    assert torch.equal(compiled([init], 3, reverse=True)[1], ys.flip(0))


def test_no_steps_copy_the_carry():
    loop = halving()
    init = torch.rand(2, 8, dtype=torch.float64)
    carry, ys = runtime.compile_loop(loop, make_plan(loop))([init], 0)
    assert torch.equal(carry, init)
    assert carry.data_ptr() != init.data_ptr()
    assert ys.shape == (0, 2, 8)


def test_the_c_library_can_do_all_math():
    c = Input(dtype=F64, shape=(64,), role="carry", index=0)
    new = Map(dtype=F64, shape=(64,), fn="tanh", args=(c,), compute=F64)
    loop = Loop(carry=(c,), xs=(), consts=(), carry_out=(new,), ys=())
    init = torch.linspace(-3, 3, 64, dtype=torch.float64)
    compiled = runtime.compile_loop(loop, make_plan(loop), vector_math="libm")
    assert "fg_bind" not in compiled.program.text
    torch.testing.assert_close(compiled([init], 1)[0], torch.tanh(init), rtol=1e-15, atol=0)


def test_a_torch_without_vector_routines_falls_back(monkeypatch):
    monkeypatch.setattr(loaded, "_addresses", lambda symbols: None)
    test_the_c_library_can_do_all_math()


def test_status_becomes_an_exception():
    c = Input(dtype=I64, shape=(), role="carry", index=0)
    zero = Constant(dtype=I64, shape=(), value=0)
    new = Map(dtype=I64, shape=(), fn="floor_div", args=(c, zero), compute=I64)
    loop = Loop(carry=(c,), xs=(), consts=(), carry_out=(new,), ys=())
    compiled = runtime.compile_loop(loop, make_plan(loop))
    with pytest.raises(NativeRuntimeError, match="an integer was divided by zero"):
        compiled([torch.tensor(1)], 1)
    assert compiled([torch.tensor(1)], 0)[0].item() == 1


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 4)])
def test_both_allocators_agree(shape):
    strides = allocate.contiguous_strides(shape)
    for allocator in (allocate.public_allocator, allocate.find_allocator()):
        made = allocator(shape, strides, torch.float32)
        assert (made.shape, made.dtype, made.is_contiguous()) == (shape, torch.float32, True)


def test_without_the_private_allocator_the_public_one_serves(monkeypatch):
    monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cpu")
    assert allocate.find_allocator() is allocate.public_allocator


def test_an_unknown_torch_takes_the_public_call(monkeypatch):
    assert dispatch.cache_entries_known()
    monkeypatch.setattr(torch, "__version__", "3.0.0")
    assert not dispatch.cache_entries_known()


def test_results_are_displayed_as_they_were():
    names = ["r0", "r1", "r2"]
    assert tree_expression((1, [2, None], (3,)), list(names)) == "(r0, [r1, None, ], (r2, ), )"
    assert tree_expression(({"a": 1}, 2), list(names)) is None
