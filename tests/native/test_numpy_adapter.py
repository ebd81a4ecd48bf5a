"""NumPy arrays through native loops: the results of the plain loop, or an error."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import optree
import pytest
import torch

import fullgraph
from fullgraph.errors import (
    CarryError,
    InPlaceUpdateError,
    NativeFallbackWarning,
    NativeRuntimeError,
    UnsupportedBodyError,
    UnsupportedLoopError,
    UsageError,
)
from fullgraph.loops import _eager
from fullgraph.loops._eager_numpy import NumpyOps
from fullgraph.native import ir
from fullgraph.torch_loop import numpy_native_loop_adapter
from fullgraph.torch_loop._numpy_arrays import shared_tensor
from fullgraph.torch_loop._numpy_check import outside_array


class State(NamedTuple):
    position: Any
    steps: Any


@pytest.fixture(scope="module")
def adapter():
    return numpy_native_loop_adapter()


def plain(body, init, xs=None, *, length=None, reverse=False):
    return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=NumpyOps())


def check(adapter, body, init, xs=None, **options):
    expected = plain(body, init, xs, **options)
    with fullgraph.use_loop_adapter("numpy", adapter):
        found = fullgraph.scan(body, init, xs, **options)
    left, shape = optree.tree_flatten(expected)
    right, other = optree.tree_flatten(found)
    assert shape == other
    for a, b in zip(left, right, strict=True):
        assert type(b) is np.ndarray
        assert b.flags.writeable
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(b, a, rtol=1e-5 if a.dtype == np.float32 else 1e-12)
    return found


def test_numpy_functions(adapter):
    xs = np.random.default_rng(0).random((50, 3))
    check(adapter, lambda c, x: (c + np.exp(-x) * np.sin(c), x.sum()), np.ones(3), xs)
    assert len(adapter.scan.engine.specialisations()) == 1


def test_array_api_code(adapter):
    def body(c, x):
        xp = array_api_compat.array_namespace(c)
        return xp.where(c > x, c, xp.exp(x)), xp.sum(c)

    xs = np.random.default_rng(1).random((20, 3))
    check(adapter, body, np.ones(3), xs)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32", "int8", "uint8", "bool"])
@pytest.mark.parametrize("reverse", [False, True])
def test_dtypes(adapter, dtype, reverse):
    rng = np.random.default_rng(2)
    xs = rng.integers(0, 2, (7, 4)).astype(dtype)

    def body(c, x):
        return c ^ x if dtype == "bool" else c * x + x, c

    check(adapter, body, xs[0], xs, reverse=reverse)


def test_trees_numbers_and_none(adapter):
    def body(c, x):
        state, none, counts = c["state"], c["none"], c["counts"]
        new = State(state.position + x["a"] * x["b"], state.steps + 1)
        return {"state": new, "none": none, "counts": [counts[0] * 2]}, (new, None, 2.5)

    init = {"state": State(np.zeros(2), 0), "none": None, "counts": [1.5]}
    xs = {"b": np.arange(5.0), "a": np.ones((5, 2))}
    carry, ys = check(adapter, body, init, xs)
    assert list(carry) == ["state", "none", "counts"]
    assert isinstance(ys[0], State)


def test_length_without_xs(adapter):
    carry, ys = check(adapter, lambda c, _: (c / 2, None), np.ones(3), length=10)
    assert ys is None
    assert carry.tolist() == [2.0**-10] * 3


def test_zero_steps(adapter):
    _, ys = check(adapter, lambda c, x: (c + x, np.sqrt(c)), np.ones(3), np.ones((0, 3)))
    assert ys.shape == (0, 3)


def test_an_integer_divided_is_float64_as_in_numpy(adapter):
    before = torch.get_default_dtype()
    check(adapter, lambda c, x: (c + x / 3, x / 7), np.zeros(()), np.arange(9))
    assert torch.get_default_dtype() == before == torch.float32


def test_reductions_mean_what_numpy_means(adapter):
    xs = np.random.default_rng(3).random((5, 4))
    check(adapter, lambda c, x: (c + x.std(), np.argmax(x)), np.zeros(()), xs)


def test_loops_in_bodies_stay_loops(adapter):
    def body(c, x):
        return fullgraph.scan(lambda d, v: (0.5 * d + v, None), c, x)[0], c

    xs = np.random.default_rng(5).random((5, 300))
    check(adapter, body, np.zeros(()), xs)
    known = len(adapter.scan.engine.specialisations())
    nodes = adapter.scan.engine.specialisations()[-1].captured.loop.nodes
    assert [type(node) for node in nodes].count(ir.Nested) == 1
    assert len(nodes) < 30
    check(adapter, body, np.ones(()), xs)
    assert len(adapter.scan.engine.specialisations()) == known


def test_another_closure_is_another_loop(adapter):
    def scaled(k):
        return lambda c, x: (c + k * x, None)

    xs = np.arange(5.0)
    for k in (2.0, 3.0, np.float64(2.0), np.float64(3.0), np.asarray([4.0]), np.asarray([5.0])):
        check(adapter, scaled(k), np.zeros(1), xs)


def test_an_element_changed_in_place_is_seen(adapter):
    k = np.asarray([2.0])

    def body(c, x):
        return c + k * x, None

    xs = np.arange(5.0)
    assert check(adapter, body, np.zeros(1), xs)[0].item() == 20.0
    k[0] = 3.0
    assert check(adapter, body, np.zeros(1), xs)[0].item() == 30.0


def test_known_loops_are_not_compiled_again(adapter):
    def body(c, x):
        return c + 2 * x, None

    check(adapter, body, np.zeros(()), np.ones(5))
    known = len(adapter.scan.engine.specialisations())
    check(adapter, body, np.ones(()), np.ones(500))
    with torch.no_grad():
        check(adapter, body, np.ones(()), np.ones(3))
    assert len(adapter.scan.engine.specialisations()) == known


# --- Memory ---


def test_inputs_are_shared_not_copied():
    for array in (np.ones((4, 3)), np.ones((4, 6))[:, ::2], np.ones((4, 3)).T, np.ones(())):
        for writeable in (True, False):
            array.flags.writeable = writeable
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                tensor = shared_tensor(array)
            assert tensor.data_ptr() == array.ctypes.data
            assert array.flags.writeable is writeable


def test_a_shared_tensor_keeps_the_memory():
    array = np.arange(1000.0)
    array.flags.writeable = False
    tensor = shared_tensor(array)
    del array
    filler = [np.full(1000, -1.0) for _ in range(20)]
    assert tensor.sum().item() == 499500.0
    del filler


@pytest.mark.parametrize(
    "xs",
    [
        np.arange(12.0).reshape(4, 3)[::-1],
        np.arange(12.0).reshape(4, 3)[:, ::-1],
        np.arange(24.0).reshape(4, 6)[:, ::2],
        np.arange(12.0).reshape(4, 3).astype(">f8"),
        np.broadcast_to(np.arange(3.0), (4, 3)),
        np.zeros(4, dtype=[("a", "i1"), ("b", "f8")])["b"],
    ],
    ids=["reversed", "negative", "strided", "big-endian", "read-only", "unaligned"],
)
def test_unusual_memory(adapter, xs):
    before = xs.copy()
    check(adapter, lambda c, x: (c + x, x), np.zeros(xs.shape[1:]), xs)
    assert (xs == before).all()


def test_results_share_memory_with_nothing(adapter):
    init, xs = np.ones(3), np.ones((4, 3))
    carry, ys = check(adapter, lambda c, x: (c, x), init, xs)
    assert not np.shares_memory(carry, init)
    assert not np.shares_memory(ys, xs)


def test_a_body_must_not_write(adapter):
    xs = np.ones(4)
    with pytest.raises(InPlaceUpdateError, match="writes into its carry or into x"):
        adapter.scan(lambda c, x: (np.add(c, x, out=c), None), np.zeros(()), xs)


# --- Disagreements and refusals ---


def test_another_dtype_of_an_output_raises_each_time(adapter):
    def body(c, x):
        return c, np.sqrt(x)

    for _ in range(2):
        with pytest.raises(
            UnsupportedBodyError, match="y is float16 in NumPy and float64 in torch"
        ):
            adapter.scan(body, np.zeros(()), np.arange(5, dtype=np.int8))


def test_another_dtype_of_the_carry_raises(adapter):
    def body(c, x):
        xp = array_api_compat.array_namespace(x["b"])
        return {"v": x["a"] * xp.abs(x["b"])}, None

    xs = {"a": np.ones((5, 3), np.int32), "b": np.ones((5, 3), np.float32)}
    with pytest.raises(
        UnsupportedBodyError, match=r'carry\["v"\] is float64 in NumPy and float32 in torch.*Cast'
    ):
        adapter.scan(body, {"v": np.zeros(3)}, xs)


def test_another_value_raises(adapter):
    def body(c, x):
        xp = array_api_compat.array_namespace(x)  # tensors: std of torch divides by n - 1
        return c + xp.asarray(x).std(), None

    with pytest.raises(UnsupportedBodyError, match=r"carry is 0\..* in NumPy and 0\..* in torch"):
        adapter.scan(body, np.zeros(()), np.random.default_rng(4).random((5, 3)))


def test_a_value_that_differs_in_the_second_step_raises(adapter):
    def body(c, x):
        return c + np.reciprocal(x), None  # of integers: an integer in NumPy

    with pytest.raises(UnsupportedBodyError, match=r"carry is 1\.0 in NumPy and 1\.5 in torch"):
        adapter.scan(body, np.zeros(()), np.asarray([1, 2, 4]))


A = np.eye(3)


def test_global_and_closed_over_arrays_are_refused(adapter):
    inner = A + 1

    with pytest.raises(UnsupportedBodyError, match=r"reads the NumPy array 'A'.*Pass it in the"):
        adapter.scan(lambda c, x: (A @ c + x, None), np.ones(3), np.ones(4))
    with pytest.raises(UnsupportedBodyError, match="reads the NumPy array 'inner'"):
        adapter.scan(lambda c, x: (inner @ c + x, None), np.ones(3), np.ones(4))


def test_arrays_in_the_carry_take_the_place_of_closures(adapter):
    def body(c, x):
        return (c[0], c[0] @ c[1] + x), None

    check(adapter, body, (A / 2, np.ones(3)), np.ones(4))


def test_outside_arrays_are_found_through_functions():
    def helper(x):
        return [A @ x for _ in range(2)]

    assert outside_array(lambda x: helper(x)) == "A"
    assert outside_array(lambda x: x.A) is None


def test_bodies_that_cannot_be_captured(adapter):
    with pytest.raises(UnsupportedBodyError, match=r"read as NumPy code, .*branching"):
        adapter.scan(lambda c, x: (c + x if x > 0 else c, None), np.zeros(()), np.arange(4.0))


def test_a_carry_that_changes_is_worded_for_numpy(adapter):
    with pytest.raises(CarryError, match="goes into the body as float32 and comes out as float64"):
        adapter.scan(lambda c, x: (c + x, None), np.zeros(2, np.float32), np.arange(4.0))


def test_an_integer_divided_by_zero(adapter):
    for _ in range(2):
        with pytest.raises(NativeRuntimeError, match="integer was divided by zero"):
            adapter.scan(lambda c, x: (c // x, None), np.asarray(5), np.asarray([1, 0]))


@pytest.mark.parametrize("dtype", ["complex128", "float16", "uint16"])
def test_dtypes_that_are_refused(adapter, dtype):
    with pytest.raises(UnsupportedLoopError, match=f"xs is {dtype}. Arrays must be float64 or"):
        adapter.scan(lambda c, x: (c, x), np.zeros(2), np.zeros((3, 2), dtype))


def test_containers_that_are_refused(adapter):
    with pytest.raises(UnsupportedLoopError, match=r"carry is a OrderedDict\. Leaves must be"):
        adapter.scan(lambda c, x: (c, x), OrderedDict(a=np.zeros(1)), np.ones(4))


def test_the_body_own_exception(adapter):
    def body(c, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        adapter.scan(body, np.zeros(2), np.zeros((3, 2)))


def test_bounds_and_settings():
    short = numpy_native_loop_adapter(max_steps=3)
    with pytest.raises(UnsupportedLoopError, match="has 4 steps, and may have at most 3"):
        short.scan(lambda c, x: (c, x), np.zeros(2), np.zeros((4, 2)))
    with pytest.raises(UsageError, match="threads must be an int"):
        numpy_native_loop_adapter(threads=0)
    with pytest.raises(UsageError, match='fallback must be "raise" or "eager"'):
        numpy_native_loop_adapter(fallback="never")


def test_fallback_runs_numpy_with_a_warning():
    adapter = numpy_native_loop_adapter(fallback="eager")

    def body(c, x):
        return c, np.sqrt(x)

    xs = np.arange(5, dtype=np.int8)
    with pytest.warns(NativeFallbackWarning, match="float16 in NumPy"):
        ys = adapter.scan(body, np.zeros(()), xs)[1]
    assert ys.dtype == np.float16
    assert adapter.scan(body, np.zeros(()), xs)[1].dtype == np.float16


def test_threads_wait_for_the_comparison():
    adapter = numpy_native_loop_adapter()
    outcomes: list[Any] = []

    def body(c, x):
        return c, np.sqrt(x)

    def run():
        try:
            outcomes.append(adapter.scan(body, np.zeros(()), np.arange(5, dtype=np.int8)))
        except UnsupportedBodyError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(isinstance(outcome, UnsupportedBodyError) for outcome in outcomes)
    assert len(outcomes) == 3
