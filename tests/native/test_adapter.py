"""The native adapter as a user meets it: closures, lengths, refusals, fallback, torch.compile."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest
import torch

import fullgraph
from fullgraph.errors import (
    InPlaceUpdateError,
    NativeFallbackWarning,
    NativeMemoryError,
    NativeRuntimeError,
    SpecialisationLimitError,
    UnsupportedBodyError,
    UnsupportedLoopError,
    UsageError,
)
from fullgraph.native import dispatch
from fullgraph.torch_loop import explain_loop, torch_native_loop_adapter


def double(values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


# --- What is compiled when ---


def test_the_number_of_steps_is_not_compiled_in(native):
    body = lambda c, x: (c * 0.5 + x, c)
    for steps in (1, 2, 7, 0, 100):
        native.check(
            body, double([1.0, 2.0]), torch.rand(steps, 2, dtype=torch.float64), exact=True
        )
    assert native.compiled == 1


def test_direction_is_not_compiled_in(native):
    body = lambda c, x: (c * 0.5 + x, c)
    xs = torch.rand(9, 2, dtype=torch.float64)
    native.check(body, double([1.0, 2.0]), xs, exact=True)
    native.check(body, double([1.0, 2.0]), xs, exact=True, reverse=True)
    assert native.compiled == 1


@pytest.mark.parametrize("fast", [True, False], ids=["cache entries read", "public call"])
def test_closures_are_never_stale(native, monkeypatch, fast):
    monkeypatch.setattr(dispatch, "cache_entries_known", lambda: fast)
    k, weight = 2.0, double([1.0, 2.0])

    def body(c, x):
        return c * k + weight * x, None

    init, xs = double([1.0, 1.0]), torch.rand(4, 1, dtype=torch.float64)
    for _ in range(3):
        native.check(body, init, xs, exact=True)
    k = 3.0
    native.check(body, init, xs, exact=True)
    weight = double([5.0, 7.0])
    native.check(body, init, xs, exact=True)
    weight.mul_(2)
    native.check(body, init, xs, exact=True)
    k = 2.0
    native.check(body, init, xs, exact=True)
    assert native.compiled == 2
    weight = torch.tensor([1.0, 2.0])
    native.check(body, init, xs, exact=True)
    assert native.compiled == 3


def test_globals_and_functions_that_change_are_noticed(native):
    names = {"torch": torch}
    exec("def f(c):\n return c + 1\ndef body(c, x):\n return f(c), None", names)
    init, xs = double([1.0]), torch.zeros(3, 1)
    assert native.run(names["body"], init, xs)[0].item() == 4.0
    names["f"] = lambda c: c * 2
    assert native.run(names["body"], init, xs)[0].item() == 8.0


def test_two_bodies_with_one_code_do_not_mix(native):
    bodies = [lambda c, x, k=k: (c * k + x, None) for k in (2.0, 3.0)]
    init, xs = double([1.0]), torch.ones(3, 1, dtype=torch.float64)
    for _ in range(2):
        for body in bodies:
            native.check(body, init, xs, exact=True)


def test_functions_that_share_a_variable_do_not_mix(native):
    def pair(k):
        return (lambda c: c + k), (lambda c: c * k)

    def loop(f, g):
        return lambda c, x: (f(c) + x, g(c))

    one, two = pair(double(1.0)), pair(double(7.0))
    for f, g in (one, two, (one[0], two[1]), (two[0], one[1])):
        native.check(loop(f, g), double(10.0), double([1.0, 2.0]), exact=True)


def test_shapes_and_dtypes_are_noticed(native):
    body = lambda c, x: (c * 2 + x, c)
    for shape in ((3,), (4, 2), ()):
        for dtype in (torch.float64, torch.float32, torch.int64):
            init = torch.ones(shape, dtype=dtype)
            native.check(body, init, torch.arange(4).to(dtype).reshape(4, *([1] * len(shape))))


def test_repeated_calls_do_not_share_results(native):
    body = lambda c, x: (c + x, c)
    xs = torch.rand(5, 3)
    first = native.run(body, torch.zeros(3), xs)
    kept = [t.clone() for t in first]
    native.run(body, torch.ones(3), xs)
    assert all(torch.equal(a, b) for a, b in zip(first, kept, strict=True))


def test_threads_of_python_may_share_an_adapter(native):
    body = lambda c, x: (torch.sin(c) + x, c)
    xs = torch.rand(50, 8, dtype=torch.float64)
    inits = [torch.full((8,), float(i), dtype=torch.float64) for i in range(4)]
    expected = [native.plain(body, i, xs)[0] for i in inits]
    wrong = []

    def work(i):
        for _ in range(100):
            found = native.run(body, inits[i], xs)[0]
            if not torch.allclose(found, expected[i], rtol=1e-12):
                wrong.append(i)

    native.run(body, inits[0], xs)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- Inputs ---


def test_inputs_of_any_layout(native):
    body = lambda c, x: (c * 0.5 + x, c)
    base = torch.rand(6, 4, dtype=torch.float64)
    native.check(body, base[0, ::2], base[:, ::2], exact=True)
    native.check(body, base[:1, 0].expand(2), base[:, :1].expand(6, 2), exact=True)
    native.check(body, base.T[:2, 0], base.T[:2].T, exact=True)


def test_negated_and_conjugated_views_are_taken_at_their_value(native):
    body = lambda c, x: (c + x, c)
    z = torch.complex(torch.rand(5, 3), torch.rand(5, 3)).conj().imag
    assert z.is_neg()
    native.check(body, torch.zeros(3), z)
    native.check(body, z[0], torch.rand(5, 3))
    dense = torch._neg_view(torch.rand(5, 3))
    assert dense.is_neg()
    assert dense.is_contiguous()
    native.check(body, torch.zeros(3), dense)
    native.check(body, dense[0], torch.rand(5, 3))
    with pytest.raises(UnsupportedBodyError, match="resolve_neg"):
        native.run(lambda c, x: (c + x * dense[1], c), torch.zeros(3), torch.rand(5, 3))


def test_parameters_without_grad_mode(native):
    weight = torch.nn.Parameter(torch.rand(3, 3))
    with torch.no_grad():
        native.check(lambda c, x: (torch.tanh(weight @ c + x), c), torch.zeros(3), torch.rand(4, 3))
        native.check(lambda c, x: (weight @ c + x, c), weight[0], torch.rand(4, 3))


def test_inference_mode(native):
    body = lambda c, x: (c + x, c)
    with torch.inference_mode():
        native.run(body, torch.zeros(3), torch.rand(4, 3))
    native.check(body, torch.zeros(3), torch.rand(4, 3))


def test_modules_and_methods_as_bodies(native):
    class Cell(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, c, x):
            c = torch.tanh(self.linear(c) + x)
            return c, c

    cell = Cell()
    with torch.no_grad():
        native.check(cell, torch.zeros(3), torch.rand(4, 3))
        native.check(cell.forward, torch.zeros(3), torch.rand(4, 3))
        cell.linear.weight.zero_()
        native.check(cell, torch.zeros(3), torch.rand(4, 3))


# --- Refusals ---


@pytest.mark.parametrize(
    ("body", "operation", "advice"),
    [
        (lambda c, x: (c + torch.rand(3), None), "aten.rand.default", "draw all numbers before"),
        (lambda c, x: (c + torch.randn_like(c), None), "aten.randn_like", "pass them as xs"),
        (lambda c, x: (torch.topk(c, 3)[0], None), "aten.topk.default of float32\\[3\\]", "masks"),
        (
            lambda c, x: (c + c[c > 0].sum(), None),
            "aten.nonzero.default depends on data",
            "masks of fixed shape",
        ),
        (
            lambda c, x: (c, torch.sort(torch.arange(200.0) * x[0])[0]),
            "aten.sort.(default|stable) of float32\\[200\\]",
            "masks",
        ),
        (lambda c, x: (torch.fft.fft(c).real, None), "complex64", "convert before the loop"),
        (lambda c, x: (c.half().float(), c), "float16", "native loops compute in float64"),
    ],
)
def test_unsupported_operations_are_named_with_their_line(native, body, operation, advice):
    with pytest.raises(UnsupportedBodyError, match=advice) as caught:
        native.run(body, torch.ones(3), torch.ones(2, 3))
    assert "test_adapter.py" in caught.value.line
    assert re.search(operation, str(caught.value))


def test_choices_on_data_are_refused_with_what_to_write(native):
    def body(c, x):
        if c.sum() > 0:
            c = c - x
        return c, None

    with pytest.raises(UnsupportedBodyError, match=r"torch\.where or fullgraph\.cond"):
        native.run(body, torch.ones(3), torch.ones(2, 3))


def test_outer_state_is_refused(native):
    seen = []

    def body(c, x):
        seen.append(1)
        return c + x, None

    with pytest.raises(UnsupportedBodyError, match="changes Python state outside"):
        native.run(body, torch.ones(3), torch.ones(2, 3))


def test_attributes_of_outer_objects_are_refused(native):
    class Counter:
        count = 0

    counter = Counter()

    def body(c, x):
        counter.count += 1
        return c + x, None

    with pytest.raises(UnsupportedBodyError, match="changes Python state outside"):
        native.run(body, torch.ones(3), torch.ones(2, 3))


def test_state_inside_the_body_is_its_own(native):
    def body(c, x):
        parts = []
        for i in range(3):
            parts.append(c[i] * i)
        named = {"sum": sum(parts)}
        named["sum"] = named["sum"] + x
        return torch.stack(parts), named

    native.check(body, torch.ones(3), torch.rand(4))


def test_writes_into_closed_over_tensors_are_refused(native):
    total = torch.zeros(3)

    def body(c, x):
        total.add_(x)
        return c + x, None

    with pytest.raises(UnsupportedBodyError, match="Make that tensor part of the carry"):
        native.run(body, torch.ones(3), torch.ones(2, 3))


def test_writes_into_the_carry_are_refused(native):
    def body(c, x):
        c[0] = 1
        return c, None

    init = torch.zeros(3)
    with pytest.raises(InPlaceUpdateError):
        native.run(body, init, torch.ones(2, 3))
    assert init.tolist() == [0, 0, 0]


def test_named_results_of_torch_stay_what_they_are(native):
    """What sort and max return is a tuple of a type of its own, in the carry as well."""
    body = lambda c, x: (torch.sort(c[0] + x), (torch.max(c[0], dim=0), c))
    init = torch.sort(torch.rand(4, dtype=torch.float64))
    carry, (largest, before) = native.check(body, init, torch.rand(3, 4, dtype=torch.float64))
    assert type(carry) is type(before) is torch.return_types.sort
    assert type(largest) is torch.return_types.max
    assert largest.values.shape == (3,)


class _Tagged(torch.Tensor):
    pass


@pytest.mark.parametrize("kind", [lambda t: t, torch.nn.Parameter])
@pytest.mark.parametrize("y", [lambda c: c, lambda c: None])
def test_a_subclass_that_is_closed_over_is_refused(native, kind, y):
    """Its results would be of the subclass in the plain loop."""
    tagged = kind(torch.ones(4).as_subclass(_Tagged))
    with pytest.raises(UnsupportedLoopError, match=r"the new carry is a _Tagged.*no subclass"):
        native.run(lambda c, x: (c * tagged + x, y(c)), torch.ones(4), torch.ones(3, 4))
    with pytest.raises(UnsupportedLoopError, match=r"y is a _Tagged.*no subclass"):
        native.run(lambda c, x: (c + x, tagged * x), torch.ones(4), torch.ones(3, 4))


def test_exceptions_of_the_body_come_out(native):
    def body(c, x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        native.run(body, torch.ones(3), torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_transforms_run_the_plain_loop_and_say_so(native):
    run = lambda v: native.run(lambda c, x: (c * x + c.sin(), c), v, torch.ones(2, 3))[0]
    start = torch.rand(4, 3)
    run(start[0])
    with pytest.warns(NativeFallbackWarning, match=r"a torch\.func transform"):
        mapped = torch.func.vmap(run)(start)
    torch.testing.assert_close(mapped, torch.stack([run(row) for row in start]))
    with pytest.warns(NativeFallbackWarning, match=r"a torch\.func transform"):
        gradient = torch.func.grad(lambda v: run(v).sum())(start[0])
    leaf = start[0].clone().requires_grad_()
    torch.testing.assert_close(gradient, torch.autograd.grad(run(leaf).sum(), leaf)[0])
    with pytest.warns(NativeFallbackWarning, match=r"a torch\.func transform"):
        _, tangent = torch.func.jvp(run, (start[0],), (torch.ones(3),))
    torch.testing.assert_close(tangent, gradient)  # the jacobian is diagonal


def test_bounds_are_kept():
    adapter = torch_native_loop_adapter(max_steps=3)
    body = lambda c, x: (c + x, None)
    adapter.scan(body, torch.ones(2), torch.ones(3, 2))
    with pytest.raises(UnsupportedLoopError, match="4 steps, and may have at most 3"):
        adapter.scan(body, torch.ones(2), torch.ones(4, 2))
    adapter = torch_native_loop_adapter(max_elements=4)
    adapter.scan(body, torch.ones(2), torch.ones(2, 2))
    with pytest.raises(UnsupportedLoopError, match="at most 4"):
        adapter.scan(body, torch.ones(5), torch.ones(1))
    doubled = lambda c, x: (c, c)
    with pytest.raises(UnsupportedLoopError, match="stacked"):
        adapter.scan(doubled, torch.ones(2), None, length=3)
    adapter.scan(doubled, torch.ones(2), None, length=2)
    with pytest.raises(UnsupportedLoopError, match="stacked"):  # compiled already
        adapter.scan(doubled, torch.ones(2), None, length=3)


@pytest.mark.parametrize(
    "settings",
    [{"threads": 0}, {"threads": True}, {"max_steps": -1}, {"fallback": "x"}, {"vector_math": 1}],
)
def test_arguments_of_the_adapter_are_checked(settings):
    with pytest.raises(UsageError, match=next(iter(settings))):
        torch_native_loop_adapter(**settings)


# --- Errors while running ---


def test_integer_division_by_zero_raises_as_torch_does(native):
    body = lambda c, x: (c // x, c)
    native.run(body, torch.tensor(5), torch.tensor([1, 2]))
    with pytest.raises((NativeRuntimeError, RuntimeError), match=r"[Zz]ero"):
        native.run(body, torch.tensor(5), torch.tensor([1, 0]))


def test_indices_outside_raise(native):
    body = lambda c, x: (c * 0.5, c[x])
    native.run(body, torch.rand(3), torch.tensor([[0], [2]]))
    with pytest.raises(NativeRuntimeError, match="outside its tensor"):
        native.run(body, torch.rand(3), torch.tensor([[0], [3]]))


def test_too_much_memory_is_refused_before_it_is_allocated(native):
    body = lambda c, x: (c, c)
    native.run(body, torch.zeros(1000), None, length=1)
    with pytest.raises(NativeMemoryError, match="TiB"):
        native.run(body, torch.zeros(1000), None, length=10**10)


def test_long_loops_answer_ctrl_c(native):
    body = lambda c, x: (torch.sin(c) * 1.0001, None)
    init = torch.rand(1000, dtype=torch.float64)
    native.run(body, init, None, length=10)
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        native.run(body, init, None, length=10_000_000)
    assert time.perf_counter() - begun < 3.0


def test_slices_and_threads_change_nothing(native_with, monkeypatch):
    from fullgraph.native import runtime

    monkeypatch.setattr(runtime, "FIRST_SLICE_WORK", 3000)
    monkeypatch.setattr(runtime, "THREAD_WORK", 1000)
    native = native_with(threads=3)
    body = lambda c, x: ((c[0] * 0.9 + x, c[1] + 1), c[0] * c[1])
    init = (torch.rand(3, 700, dtype=torch.float64), torch.tensor(0))
    for steps in (1, 2, 50):
        native.check(body, init, torch.rand(steps, 1, dtype=torch.float64), exact=True)
        native.check(
            body, init, torch.rand(steps, 1, dtype=torch.float64), exact=True, reverse=True
        )


def test_large_states_use_working_memory_of_the_call(native):
    body = lambda c, x: (torch.roll(c, 1) * 0.5 + x, c.sum())
    native.check(
        body, torch.rand(30_000, dtype=torch.float64), torch.rand(3, 1, dtype=torch.float64)
    )
    assert native.adapter.scan.engine.specialisations()[-1].compiled.program.scratch > 0


# --- Fallback ---


def test_fallback_warns_once_for_a_body():
    adapter = torch_native_loop_adapter(fallback="eager")
    body = lambda c, x: (c + torch.topk(x, 2, largest=False)[0], None)
    xs = torch.tensor([[2.0, 1.0], [4.0, 3.0]])
    with pytest.warns(NativeFallbackWarning, match="aten.topk.default"):
        found = adapter.scan(body, torch.zeros(2), xs)[0]
    assert found.tolist() == [4.0, 6.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert adapter.scan(body, torch.zeros(2), xs)[0].tolist() == [4.0, 6.0]


def test_fallback_lets_gradients_flow():
    adapter = torch_native_loop_adapter(fallback="eager")
    weight = double([2.0], requires_grad=True)
    body = lambda c, x: (torch.topk(c * weight, 1).values, None)
    with pytest.warns(NativeFallbackWarning, match="aten.topk.default"):
        carry = adapter.scan(body, double([1.0]), None, length=3)[0]
    carry.backward()
    assert weight.grad.item() == 12.0


# --- Inside a user's own torch.compile ---


def compiled_with(backend, function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inside_torch_compile_values_are_right(native, backend):
    weight = torch.rand(3, 3, dtype=torch.float64)

    def run(init, xs):
        carry, ys = native.run(
            lambda c, x: (torch.tanh(weight @ c) + x, {"y": c * 2}), init * 2, xs
        )
        return carry.sum() + ys["y"].sum()

    init, xs = torch.rand(3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    expected = run(init, xs)
    torch.testing.assert_close(compiled_with(backend, run)(init, xs), expected)


def test_inside_torch_compile_the_loop_is_one_native_call(native):
    import torch._inductor.utils

    weight = torch.rand(3, 3, dtype=torch.float64)

    def run(init, xs):
        carry, ys = native.run(lambda c, x: (torch.tanh(weight @ c) + x, c * 2), init * 2, xs)
        return carry.sum() + ys.sum()

    init, xs = torch.rand(3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    expected = run(init, xs)
    compiled = compiled_with("inductor", run)
    found, codes = torch._inductor.utils.run_and_get_code(compiled, init, xs)
    torch.testing.assert_close(found, expected)
    text = "\n".join(codes)
    assert text.count("torch.ops.fullgraph.native_loop.default(") == 1
    assert "while" not in text


@pytest.mark.filterwarnings("ignore:Error detected in")
def test_inside_torch_compile_gradients_are_refused(native):
    weight = torch.rand(3, requires_grad=True)

    def run(init, xs):
        return native.run(lambda c, x: (c * weight + x, None), init, xs)[0].sum()

    with pytest.raises(Exception, match="through a native loop inside"):
        compiled_with("aot_eager", run)(torch.rand(3), torch.rand(4, 3)).backward()


# --- explain_loop ---


def test_explain_loop_tells_what_was_made():
    told = explain_loop(
        lambda c, x: (torch.sin(c) * x, c.sum(0)), torch.rand(3, 40), torch.rand(5, 40)
    )
    assert (told.lanes, told.written_out, told.refused) == (40, True, "")
    assert told.operations == {"mul": 1, "reduce": 1, "sin": 1}
    assert "fg_run" in told.c_text
    assert "-O3" in told.flags
    assert told.captured.startswith("loop\n  %0: float32[3, 40] = input carry 0")
    text = str(told)
    assert "compiled: 40 lanes in blocks of 40, each step as scalar statements" in text
    assert told.c_text in text


def test_explain_loop_tells_why_not():
    told = explain_loop(lambda c, x: (c + torch.rand(3), None), torch.rand(3), length=2)
    assert told.operation == "aten.rand.default of no operands"
    assert "test_adapter.py" in told.line
    lines = str(told).splitlines()
    assert lines[0] == "refused: aten.rand.default of no operands"
    assert lines[1].startswith("  at ")
    assert lines[2].startswith("  Randomness inside a body is refused")


def test_explanations_fit_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    told = explain_loop(lambda c, x: (c * 2, None), torch.rand(3), length=2)
    summary = str(told).split("\n\n")[0].splitlines()
    assert summary[1] == "  operations 1 x mul"
    assert all(len(line) <= 70 for line in summary if str(told.library) not in line)


def test_registered_adapters_are_found():
    adapter = torch_native_loop_adapter()
    with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
        carry, ys = fullgraph.scan(lambda c, x: (c + x, c), 0.0, torch.arange(4.0))
    assert (carry.item(), ys.tolist()) == (6.0, [0.0, 0.0, 1.0, 3.0])
    assert len(adapter.scan.engine.specialisations()) == 1


def test_too_many_captures_of_one_body_raise(native, monkeypatch):
    monkeypatch.setattr(dispatch, "RECOMPILE_LIMIT", 2)
    k = 0.0

    def body(c, x):
        return c * k + x, None

    for k in (1.0, 2.0):
        native.check(body, torch.ones(2), torch.ones(3, 2))
    k = 3.0
    with pytest.raises(SpecialisationLimitError, match="pass what changes as xs"):
        native.run(body, torch.ones(2), torch.ones(3, 2))


def test_the_page_about_native_loops_is_right():
    page = Path(__file__).parents[2] / "docs" / "explanation-native.md"
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), {})


def test_explain_loop_tells_about_the_gradient():
    weight = double([1.0, 2.0], requires_grad=True)
    body = lambda c, x: (torch.sin(c * weight) + x, c)
    xs = torch.rand(100, 2, dtype=torch.float64)
    told = explain_loop(body, double([1.0, 2.0]), xs)
    assert "carry" in told.backward
    assert "int64_t fg_run" in told.backward_c_text
    assert told.saved_bytes == 101 * 2 * 8
    assert told.segment == 0
    assert "1616 bytes saved, every step" in str(told)
    kept = torch_native_loop_adapter().checkpoint(body, every=10)
    told = explain_loop(kept, double([1.0, 2.0]), xs)
    assert told.saved_bytes == (10 + 11) * 2 * 8
    assert "the carry every 10 steps" in str(told)
    with torch.no_grad():
        assert explain_loop(body, double([1.0, 2.0]), xs).backward == ""


def test_explaining_a_loop_without_steps_says_so():
    with pytest.raises(UsageError, match="has no steps"):
        explain_loop(lambda c, x: (c + x, None), torch.ones(3), torch.ones(0, 3))
