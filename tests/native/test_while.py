"""while_loop of the native adapter against the plain loop."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import NamedTuple

import optree
import pytest
import torch

from fullgraph import scan, use_loop_adapter, while_loop
from fullgraph.errors import (
    CarryError,
    GradientRefusedError,
    LoopTypeError,
    NativeFallbackWarning,
    NativeRuntimeError,
    UnsupportedBodyError,
    UnsupportedLoopError,
    UsageError,
)
from fullgraph.native import dispatch, lanes
from fullgraph.native.ir import Nested
from fullgraph.torch_loop import explain_loop, torch_native_loop_adapter


class Whiles:
    """Runs while loops natively and plainly, and compares."""

    def __init__(self, **settings):
        self.adapter = torch_native_loop_adapter(**settings)
        self.run = self.adapter.while_loop

    @property
    def made(self):
        return self.adapter.while_loop.loops.specialisations()

    def check(self, cond, body, init, *, exact=True, **options):
        expected = while_loop(cond, body, init, xp=torch, **options)
        found = self.run(cond, body, init, **options)
        left, shape = optree.tree_flatten(expected, none_is_leaf=True)
        right, other = optree.tree_flatten(found, none_is_leaf=True)
        assert shape == other
        for a, b in zip(left, right, strict=True):
            if a is None:
                assert b is None
                continue
            tolerance = 0 if exact else 1e-12
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
        return found


@pytest.fixture
def native():
    return Whiles()


@pytest.fixture(params=["written out", "loops"])
def form(request, monkeypatch):
    """Both ways to write a step: as scalar statements, and as loops over arrays."""
    if request.param == "loops":
        monkeypatch.setattr(lanes, "UNROLL_LIMIT", -1)
    return request.param


def f64(*values):
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


@pytest.mark.parametrize("shape", [(), (1,), (5,), (1000,)])
@pytest.mark.parametrize("max_steps", [None, 3, 100])
def test_newton(native, form, shape, max_steps):
    a = torch.rand(shape, dtype=torch.float64) + 0.5

    def going(x):
        return torch.any(torch.abs(x * x - a) > 1e-10)

    found = native.check(going, lambda x: x - (x * x - a) / (2 * x), a + 1, max_steps=max_steps)
    state = found if max_steps is None else found.state
    if max_steps != 3:
        torch.testing.assert_close(state, a.sqrt())


def test_carries_of_several_kinds(native, form):
    class Pair(NamedTuple):
        flag: torch.Tensor
        none: None

    init = {
        "n": torch.tensor(0, dtype=torch.int32),
        "small": torch.tensor([1, 2, 3], dtype=torch.uint8),
        "x": (torch.rand(2, 3), None),
        "pair": Pair(torch.tensor(True), None),
    }

    def body(s):
        n = s["n"] + 1
        return {
            "n": n,
            "small": s["small"] * 3,
            "x": (s["x"][0] * 0.5 + n, None),
            "pair": Pair(s["x"][0][0, 0] < 30, None),
        }

    found = native.check(lambda s: s["pair"].flag & (s["n"] < 50), body, init)
    assert type(found["pair"]) is Pair


def test_python_numbers_take_the_dtype_of_the_body(native):
    x = torch.tensor(0.25, dtype=torch.float32)
    found = native.check(lambda s: s[0] < 7, lambda s: (s[0] + 1, s[1] + x), (0, 0.0))
    assert (found[0].dtype, found[1].dtype) == (torch.int64, torch.float32)


def test_a_bound_of_no_steps_asks_the_condition_all_the_same(native):
    for start, done in ((3.0, False), (60.0, True)):
        found = native.check(lambda s: s < 50, lambda s: s * 2, f64(start), max_steps=0)
        assert (float(found.state), int(found.steps), bool(found.done)) == (start, 0, done)
    native.check(lambda s: s < 50, lambda s: s * 2, f64(3.0), max_steps=9)
    found = native.check(lambda s: s < 50, lambda s: s * 2, f64(3.0), max_steps=0)
    assert len(native.made) == 1


def test_results_are_fresh_memory_even_without_a_step(native):
    def cond(s):
        return s[0] < 5

    def body(s):
        return s[0] + 1, s[1], s[1]

    x, y = f64(1.0), f64(2.0, 3.0)
    for start in (9.0, 1.0, 9.0):  # before the first capture, for it, after it
        init = (x * start, y, y)
        found = native.check(cond, body, init)
        places = {leaf.untyped_storage().data_ptr() for leaf in (*init, *found)}
        assert len(places) == 5


def test_a_body_that_never_runs_is_not_looked_at(native):
    found = native.run(lambda s: s[0] < 5, lambda s: s.nonsense, f64(7.0, 8.0))
    assert found.tolist() == [7.0, 8.0]
    assert not native.made


@pytest.mark.parametrize("fast", [True, False])
def test_closures_are_never_stale(native, monkeypatch, fast):
    if not fast:
        monkeypatch.setattr(dispatch, "cache_entries_known", lambda: False)
    limit, step, scale = f64(10.0), f64(1.0), 2.0

    def cond(s):
        return s < limit

    def body(s):
        return s * scale + step

    native.check(cond, body, f64(1.0))
    for limit, step, scale in ((f64(100.0), f64(1.0), 2.0), (f64(100.0), f64(3.0), 2.0)):
        native.check(cond, body, f64(1.0))
        native.check(cond, body, f64(1.0), max_steps=2)
    scale = 3.0
    native.check(cond, body, f64(1.0))
    limit = torch.tensor(50.0)
    native.check(cond, body, f64(1.0))


def test_one_code_with_two_closures_does_not_mix(native):
    def pair(k):
        return (lambda s: s < 40 + k), (lambda s: s + k)

    one, two = pair(f64(1.0)), pair(f64(7.0))
    for cond, body in (one, two, one, (one[0], two[1])):
        native.check(cond, body, f64(0.0))


def test_calls_after_the_first_take_the_short_way(native, monkeypatch):
    def cond(s):
        return s[0] < 5

    def body(s):
        return s[0] + 1, s[1] * 2

    init = (f64(0.0), f64(1.0, 2.0))
    for bound in (None, 3):
        for _ in range(3):
            native.check(cond, body, init, max_steps=bound)
        site = next(iter(native.adapter.while_loop.loops.sites.values()))[1]
        assert site._ran
    monkeypatch.setattr(native.adapter.while_loop.loops, "site", None)  # what the long way needs
    native.check(cond, body, init)


def test_lanes_run_in_blocks_where_the_condition_is_the_same_for_all(native):
    x = torch.linspace(0.5, 1.5, 100, dtype=torch.float64)

    def body(s):
        return s[0] + 1, s[1] * 0.5 + x

    native.check(lambda s: s[0] < 9, body, (torch.tensor(0), x))
    assert native.made[-1].compiled.plan.lanes == 100
    native.check(lambda s: torch.sum(s[1]) < 190, body, (torch.tensor(0), x))
    assert native.made[-1].compiled.plan.lanes == 0


def test_masks_let_each_row_stop_for_itself(native, form):
    a = torch.tensor([4.0, 9.0, 2.0, 1e6], dtype=torch.float64)

    def going(x):
        return torch.abs(x * x - a) > 1e-9 * a

    def body(x):
        return torch.where(going(x), x - (x * x - a) / (2 * x), x)

    found = native.check(lambda x: going(x).any(), body, a.clone(), max_steps=50)
    assert bool(found.done)
    torch.testing.assert_close(found.state, a.sqrt())


def test_a_condition_must_be_one_truth_value(native):
    for cond in (lambda s: s < 5, lambda s: s[0], lambda s: None, lambda s: (s < 5)[:1]):
        with pytest.raises(LoopTypeError, match="what cond returned must be a bool or a 0-d"):
            native.run(cond, lambda s: s + 1, f64(1.0, 2.0))


def test_a_condition_may_be_a_python_bool(native):
    found = native.check(lambda s: True, lambda s: s + 1, f64(1.0), max_steps=4)
    assert float(found.state) == 5.0


def test_a_changed_carry_is_an_error(native):
    with pytest.raises(CarryError, match=r"carry\[1\]"):
        native.run(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1].to(torch.float32)), (f64(0.0),) * 2
        )


def test_choices_on_data_are_refused_with_what_to_write(native):
    def body(s):
        return s + 1 if s > 2 else s + 2

    with pytest.raises(UnsupportedBodyError, match=r"torch\.where or fullgraph\.cond"):
        native.run(lambda s: s < 9, body, f64(0.0))


@pytest.mark.parametrize("max_steps", [None, 4, 50])
@pytest.mark.parametrize("size", [1, 7])
def test_gradients_are_those_of_the_steps_taken(native, form, size, max_steps):
    start = torch.linspace(0.3, 0.6, size, dtype=torch.float64)
    rate = f64(1.2)

    def cond(s):
        return s[1].sum() < 0.9 * size

    def body(s):
        return s[0] + 1, s[1] + 0.2 * torch.sin(rate * s[1]) * s[1].mean()

    def loss(run):
        x, k = start.clone().requires_grad_(), rate
        found = run(cond, body, (torch.tensor(0), x), max_steps=max_steps)
        state = found if max_steps is None else found.state
        value = (state[1] ** 2).sum() + state[0]
        return (value, *torch.autograd.grad(value, [x, k]))

    rate.requires_grad_()
    for _ in range(2):
        for a, b in zip(loss(while_loop), loss(native.run), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    with torch.no_grad():
        native.check(cond, body, (torch.tensor(0), start), exact=False, max_steps=max_steps)


def test_gradients_of_a_loop_that_takes_no_step(native):
    def cond(s):
        return s.sum() < 5

    for start in (1.0, 9.0):
        x = f64(start, 0.5).requires_grad_()
        found = native.run(cond, lambda s: s * 2, x)
        (gradient,) = torch.autograd.grad(found.sum(), x)
        assert gradient.tolist() == ([4.0, 4.0] if start == 1.0 else [1.0, 1.0])


def test_second_derivatives_are_refused(native):
    x = f64(1.0).requires_grad_()
    found = native.run(lambda s: s < 9, lambda s: s * s + 1, x)
    (gradient,) = torch.autograd.grad(found, x, create_graph=True)
    with pytest.raises(GradientRefusedError, match="first derivatives only"):
        torch.autograd.grad(gradient, x)


def test_gradients_through_a_while_loop_in_a_body_are_refused(native):
    w = f64(0.5).requires_grad_()

    def body(c, x):
        return while_loop(lambda s: s < 3, lambda s: s + w, c + x), None

    with (
        use_loop_adapter("torch", native.adapter),
        pytest.raises((GradientRefusedError, UnsupportedBodyError)),
    ):
        scan(body, f64(0.0), f64(1.0, 2.0))


def test_bounds_of_the_adapter_are_kept():
    bounded = Whiles(max_steps=5)
    with pytest.raises(UnsupportedLoopError, match="has no max_steps, and may take at most 5"):
        bounded.run(lambda s: s < 9, lambda s: s * 2, f64(1.0))
    with pytest.raises(UnsupportedLoopError, match="may take 6 steps, and may take at most 5"):
        bounded.run(lambda s: s < 9, lambda s: s * 2, f64(1.0), max_steps=6)
    bounded.check(lambda s: s < 9, lambda s: s * 2, f64(1.0), max_steps=5)


def test_fallback_runs_plainly_and_warns_once():
    loops = Whiles(fallback="eager")

    def body(s):
        return s + 1 if s > 2 else s + 2

    def cond(s):
        return s < 9

    with pytest.warns(NativeFallbackWarning, match="plain Python"):
        assert float(loops.run(cond, body, f64(0.0))) == 9.0
    assert int(loops.run(cond, body, f64(0.0), max_steps=3).steps) == 3


def test_integer_division_by_zero_raises_only_where_a_step_is_taken(native):
    k, n = torch.tensor(0), torch.tensor(7)

    def body(s):
        return s + n // k

    def cond(s):
        return s < 9

    with pytest.raises(RuntimeError, match="ZeroDivisionError"):  # torch's own, in the rehearsal
        native.run(cond, body, torch.tensor(1))
    k = torch.tensor(1)
    native.check(cond, body, torch.tensor(1))
    k = torch.tensor(0)
    assert int(native.run(cond, body, torch.tensor(10))) == 10
    with pytest.raises(NativeRuntimeError, match="divided by zero"):
        native.run(cond, body, torch.tensor(1))


def nested_collatz(n):
    def body(s):
        m, steps = s
        return torch.where(m % 2 == 0, m // 2, 3 * m + 1), steps + 1

    return while_loop(lambda s: s[0] != 1, body, (n, torch.zeros_like(n)))[1]


def test_a_while_loop_inside_a_scan(native):
    def body(total, n):
        steps = nested_collatz(n)
        return total + steps, steps

    xs = torch.arange(1, 30)
    expected = scan(body, torch.tensor(0), xs)
    with use_loop_adapter("torch", native.adapter):
        found = scan(body, torch.tensor(0), xs)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    compiled = native.adapter.scan.engine.specialisations()[-1].compiled
    assert any(isinstance(node, Nested) for node in compiled.loop.nodes)


def test_a_bounded_while_loop_inside_a_scan(native, form):
    a = torch.rand(6, dtype=torch.float64) + 1

    def body(total, row):
        found = while_loop(
            lambda x: torch.any(torch.abs(x * x - row) > 1e-9),
            lambda x: x - (x * x - row) / (2 * x),
            row,
            max_steps=4,
        )
        return total + found.state, (found.steps, found.done, found.state)

    xs = torch.rand(5, 6, dtype=torch.float64) * 100 + 1
    expected = scan(body, a, xs)
    with use_loop_adapter("torch", native.adapter):
        found = scan(body, a, xs)
    for x, y in zip(optree.tree_leaves(expected), optree.tree_leaves(found), strict=True):
        assert torch.equal(x, y)


def test_a_while_loop_inside_a_while_loop(native, form):
    def body(s):
        n, longest = s
        return n - 1, torch.maximum(longest, nested_collatz(n))

    init = (torch.tensor(30), torch.tensor(0))
    expected = while_loop(lambda s: s[0] > 0, body, init)
    with use_loop_adapter("torch", native.adapter):
        found = while_loop(lambda s: s[0] > 0, body, init)
    assert [int(v) for v in found] == [int(v) for v in expected] == [0, 111]


def test_a_scan_inside_a_while_loop(native, form):
    w = torch.rand(4, 3, dtype=torch.float64)

    def body(s):
        carry, ys = scan(lambda c, x: (c * 0.5 + x, c.sum()), s[1], w)
        return s[0] + 1, carry + ys[-1]

    init = (torch.tensor(0), torch.rand(3, dtype=torch.float64))
    expected = while_loop(lambda s: s[1].sum() < 1e3, body, init, max_steps=30)
    with use_loop_adapter("torch", native.adapter):
        found = while_loop(lambda s: s[1].sum() < 1e3, body, init, max_steps=30)
    assert int(found.steps) == int(expected.steps) > 1
    torch.testing.assert_close(found.state, expected.state, rtol=1e-13, atol=0)


def interrupt_soon():
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


def test_ctrl_c_is_heard_in_a_loop_that_never_ends(native):
    def cond(s):
        return s < 5

    def body(s):
        return s * 1.0

    native.run(cond, lambda s: s + 1, f64(1.0))
    native.run(cond, body, f64(1.0), max_steps=3)
    timer, begun = interrupt_soon(), time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        native.run(cond, body, f64(1.0))
    assert time.perf_counter() - begun < 1.3
    timer.join()
    native.check(cond, body, f64(1.0), max_steps=3)  # and the loop still works


def test_ctrl_c_is_heard_in_a_nested_loop_that_never_ends(native):
    def body(total, x):
        found = while_loop(lambda s: s > 0, lambda s: torch.minimum(s, s * 2), x)
        return total + found, None

    zeros = torch.zeros(3, dtype=torch.float64)
    with use_loop_adapter("torch", native.adapter):
        for _ in range(3):
            scan(body, f64(0.0), zeros)
        timer, begun = interrupt_soon(), time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            scan(body, f64(0.0), zeros + 1)
        assert time.perf_counter() - begun < 1.3
        timer.join()


def test_what_a_signal_handler_raises_comes_out(native):
    class MineError(Exception):
        pass

    def handler(number, frame):
        raise MineError("from the handler")

    def cond(s):
        return s < 5

    def body(s):
        return s * 1.0

    native.run(cond, body, f64(1.0), max_steps=3)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(MineError, match="from the handler"):
            native.run(cond, body, f64(1.0))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_threads_may_share_a_loop(native):
    def cond(s):
        return s[0] < 200

    def body(s):
        return s[0] + 1, s[1] * 1.01

    wrong = []
    native.run(cond, body, (f64(0.0), f64(1.0, 2.0)))

    def work(k):
        init = (f64(float(k)), f64(1.0 * k, 2.0))
        expected = while_loop(cond, body, init)
        for _ in range(100):
            found = native.run(cond, body, init)
            if not all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_inputs_of_any_layout(native):
    base = torch.arange(24.0, dtype=torch.float64).reshape(4, 6)
    for init in (base.T, base[::2, 1:], base[0].expand(3, 6), torch._neg_view(base)):
        native.check(lambda s: s.sum() < 1e4, lambda s: s * 2 + 1, init)


def test_explain_loop_of_a_while_loop():
    told = explain_loop(
        lambda s: s[0] < 0, lambda s: (s[0] + 1, s[1] * 2), (f64(3.0), f64(1.0, 2.0))
    )
    assert told.operations == {"add": 1, "lt": 1, "mul": 1}
    assert "while %" in told.captured
    assert "for (t = t_begin, done = false;; ++t)" in told.c_text
    told = explain_loop(lambda s: s < 0, lambda s: s * torch.rand(()), f64(1.0))
    assert "aten.rand" in told.operation
    with pytest.raises(UsageError, match="length is for scans"):
        explain_loop(lambda s: s < 0, lambda s: s, f64(1.0), length=3)
