from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest
import torch

from fullgraph.errors import (
    CaptureError,
    FullGraphError,
    GraphBreakError,
    MismatchError,
    NothingCompiledError,
    RecompileError,
    UsageError,
)
from fullgraph.testing import Outcome, Record, check_compiled, compiled


def x():
    return torch.arange(4.0)


def compiling() -> bool:
    return torch.compiler.is_compiling()


def branch(v):
    return v if v.sum() > 0 else -v


def float_in_for(v):
    for _ in range(2):
        v = v / float(v.max())
    return v


# --- What it returns ---


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_record_of_the_compiled_call(mode):
    record = check_compiled(lambda v: v.exp() + 1, (x(),), mode=mode)
    assert isinstance(record, Record)
    (function,) = record.functions
    assert function.calls == {Outcome.GRAPH_RAN: 1}
    assert (function.mode, function.whole, function.graphs) == (mode, 1, 1)
    assert record.torch == torch.__version__
    assert Record.from_json(record.to_json()) == record


def test_keyword_arguments_and_a_module():
    record = check_compiled(lambda *, v, w=1: v * w, kwargs={"v": x(), "w": 3})
    assert record.graphs == 1
    record = check_compiled(torch.nn.Linear(4, 2), (x(),), grad=True)
    assert record.functions[0].whole == 1
    assert record.functions[0].name == "torch.nn.modules.linear:Linear"


def test_methods_and_objects():
    class Scale:
        def __init__(self):
            self.by = torch.tensor(2.0)

        def __call__(self, v):
            return v * self.by

        def method(self, v):
            return self(v)

    assert check_compiled(Scale(), (x(),)).graphs == 1
    assert check_compiled(Scale().method, (x(),)).graphs == 1


@pytest.mark.parametrize("backend", ["trace", "aot_eager"])
def test_backends(backend):
    record = check_compiled(lambda v: v.sin().sum(), (x(),), backend=backend, grad=True)
    assert record.functions[0].backend == backend


@pytest.mark.slow
def test_inductor():
    record = check_compiled(lambda v: (v.sin() * 2).sum(), (x(),), backend="inductor", grad=True)
    assert record.functions[0].backend == "inductor"


# --- Budgets ---


def test_not_whole():
    with pytest.raises(FullGraphError, match=r"test_check\.py:\d+ in branch: Data-dependent"):
        check_compiled(branch, (x(),))
    with pytest.raises(GraphBreakError, match="branch breaks the graph at 1 place, none is"):
        check_compiled(branch, (x(),), mode="compile")
    record = check_compiled(branch, (x(),), mode="compile", graph_breaks=1)
    assert len(record.breaks) == 1


def test_recompiles():
    def f(v, items):
        for item in items:
            v = scaled(v, item)
        return v

    @torch._dynamo.disable(recursive=False)
    def scaled(v, item):
        return times(v, item)

    def times(v, item):
        return v * math.exp(item)

    with pytest.raises(RecompileError, match=r"f was compiled again 1 time, none is allowed"):
        check_compiled(f, (x(), [0.1, 0.2]), mode="compile", graph_breaks=True, recompiles=0)


# --- Nothing compiled ---


def test_no_tensor():
    with pytest.raises(NothingCompiledError, match="ran without a graph: no tensor is among"):
        check_compiled(lambda n: n + 1, (1,))


def test_frame_skipped():
    with pytest.raises(NothingCompiledError, match="Dynamo gave the function up") as caught:
        check_compiled(float_in_for, (x(),), mode="compile", graph_breaks=True)
    assert "test_check.py" in str(caught.value)
    assert "drop it from the compiled tests" in str(caught.value)


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("how", ["config", "stance"])
def test_disabled_dynamo_never_passes(mode, how):
    def func(v):
        return v + 1

    with contextlib.ExitStack() as stack:
        if how == "config":
            stack.enter_context(torch._dynamo.config.patch(disable=True))
        elif how == "stance":
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        with pytest.raises(CaptureError, match=r"not look at this call|disable") as caught:
            check_compiled(func, (x(),), mode=mode, graph_breaks=mode == "compile")
        if mode == "compile":
            assert isinstance(caught.value, NothingCompiledError)
        call = compiled(lambda v, ran: ran.append(1) or v + 1, mode=mode)
        ran = []
        assert torch.equal(call(x(), ran), x() + 1)
        assert ran == [1]  # and not once more in a replay
        assert call.record.calls == {Outcome.FRAME_SKIPPED: 1}
        assert call.record.whole == 0


@torch.compiler.disable
def disabled(v):
    return v + 1


def test_disabled_callee_is_a_break_and_an_explicit_compile_of_it_is_not():
    with pytest.raises(FullGraphError, match="disable"):
        check_compiled(lambda v: disabled(v * 2), (x(),))
    with pytest.raises(GraphBreakError, match="disable"):
        check_compiled(lambda v: disabled(v * 2), (x(),), mode="compile")
    assert check_compiled(disabled, (x(),)).functions[0].whole == 1  # as torch.compile has it


def test_disabled_by_the_environment(tmp_path):
    import os
    import subprocess
    import sys

    (tmp_path / "run.py").write_text(
        "import torch\n"
        "from fullgraph.testing import check_compiled\n"
        "def f(v): return v + 1\n"
        "check_compiled(f, (torch.ones(2),), mode='compile', graph_breaks=True)\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "run.py")],
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "NothingCompiledError" in done.stderr
    assert "TORCHDYNAMO_DISABLE" in done.stderr or "did not look at this call" in done.stderr


# --- Mismatches ---


class Wrong:
    """Results that compiled code gives wrong, by what differs."""

    @staticmethod
    def tree(v):
        return (v + 1, 1) if compiling() else [v + 1, 1]

    @staticmethod
    def dtype(v):
        return v.double() if compiling() else v * 1

    @staticmethod
    def shape(v):
        return (v + 1)[None] if compiling() else v + 1

    @staticmethod
    def value(v):
        return v + 1 if compiling() else v + 2

    @staticmethod
    def leaf(v):
        return {"a": [v * 1, v + compiling()]}

    @staticmethod
    def kind(v):
        return (v + 1, 1 if compiling() else 1.0)

    @staticmethod
    def argument(v):
        v.add_(1 if compiling() else 2)
        return v.sum() * 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tree", "has another structure than the eager one"),
        ("dtype", r"result: compiled has dtype torch\.float64, eager torch\.float32"),
        ("shape", r"result: compiled has shape \[1, 4\], eager \[4\]"),
        ("value", "(?s)differ in result: .*not close"),
        ("leaf", r"differ in result\['a'\]\[1\]"),
        ("kind", r"result\[1\]: compiled is a int, eager a float"),
        ("argument", r"differ in argument\[0\]\[0\]"),
    ],
)
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_mismatch(name, message, mode):
    func = getattr(Wrong, name)
    with pytest.raises(MismatchError, match=message):
        check_compiled(func, (x(),), mode=mode)
    assert check_compiled(func, (x(),), mode=mode, compare=False).graphs == 1


def test_mismatch_of_gradients_alone():
    def f(v):
        return (v.detach() + v * 0).sum() if compiling() else v.sum()

    check_compiled(f, (x(),))
    with pytest.raises(MismatchError, match=r"differ in gradient\[0\]"):
        check_compiled(f, (x(),), grad=True)


def test_gradients_of_parameters_and_of_arguments():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, v):
            w = self.w.detach() if compiling() else self.w
            return (v * w).sum() + 0 * self.w

    module = Scale()
    with pytest.raises(MismatchError, match="differ in gradient"):
        check_compiled(module, (x(),), grad=True)
    assert module.w.grad is None


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (
            lambda v: raise_(ValueError("eager only")) if not compiling() else v + 1,
            "eager raises ValueError: eager only, compiled returns",
        ),
        (
            lambda v: raise_(ValueError("a")) if not torch._dynamo.is_compiling() else v * 2,
            "eager raises ValueError",
        ),
    ],
)
def test_only_eager_raises(func, message):
    with pytest.raises(MismatchError, match=message):
        check_compiled(func, (x(),), mode="compile", graph_breaks=True)


def raise_(error):
    raise error


def test_different_exceptions():
    class Flaky:
        calls = 0

        def __call__(self, v):
            type(self).calls += 1
            raise ValueError("first") if type(self).calls == 1 else TypeError("later")

    with pytest.raises(MismatchError, match=r"eager raises ValueError: first, compiled raises Typ"):
        check_compiled(Flaky(), (x(),), mode="compile", graph_breaks=True)


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_both_raise_alike(mode):
    def f(v):
        raise ValueError("always")

    record = check_compiled(f, (x(),), mode=mode)
    assert record.functions[0].calls == {Outcome.RAISED: 1}


def test_tolerances():
    def f(v):
        return v + 1e-3 * compiling()

    with pytest.raises(MismatchError):
        check_compiled(f, (x(),))
    check_compiled(f, (x(),), atol=1e-2)


# --- Usage ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "eager"}, "compares with eager already: mode is 'compile' or 'fullgraph'"),
        ({"mode": "jit"}, "torch has no mode 'jit'"),
        ({"mode": "nope"}, "unknown mode 'nope'"),
        ({"backend": "nope"}, "unknown backend 'nope': accepted are 'trace', 'aot_eager', 'ind"),
        ({"graph_breaks": -1}, "graph_breaks=-1 is not accepted"),
        ({"recompiles": -1}, "recompiles=-1 is not accepted"),
        ({"dynamic": "yes"}, "dynamic='yes' is not accepted: give True, False or None"),
        ({"config": {"no_such": 1}}, r"config has 'no_such', which is no setting of torch"),
    ],
)
def test_usage(changes, message):
    with pytest.raises(UsageError, match=message):
        check_compiled(branch, (x(),), **changes)


@pytest.mark.parametrize("limit", [0, -1, 2.5, True, "8"])
def test_recompile_limit(limit):
    with pytest.raises(UsageError, match=r"recompile_limit=.* is not accepted: give an int >= 1"):
        compiled(branch, recompile_limit=limit)


def test_what_cannot_be_compiled():
    async def coroutine(v):
        return v

    with pytest.raises(UsageError, match=r"compiled\(\) takes a callable, and 3 is not one"):
        compiled(3)
    with pytest.raises(UsageError, match=r"is async: torch\.compile does not capture coroutines"):
        compiled(coroutine)
    with pytest.raises(UsageError, match="is async"):
        check_compiled(coroutine, (x(),))


def test_one_shot_iterators_are_refused():
    def f(items):
        return sum(items)

    with pytest.raises(UsageError, match=r"argument\[0\]\[0\] is a generator, which .* only once"):
        check_compiled(f, ((v for v in [x(), x()]),))
    with pytest.raises(UsageError, match="list_iterator"):
        check_compiled(f, kwargs={"items": iter([x()])})


def test_config_is_in_force():
    def f(v):
        return v * v.sum().item()

    assert len(check_compiled(f, (x(),), mode="compile", graph_breaks=1).breaks) == 1
    config = {"capture_scalar_outputs": True}
    assert not check_compiled(f, (x(),), mode="compile", config=config).breaks
    assert torch._dynamo.config.capture_scalar_outputs is False


def test_attributes_of_arguments_are_compared_and_put_back():
    def f(box, v):
        box.n += 1
        box.v = v + box.n
        return box.v

    class Box:
        n = 0
        v = None

    box = Box()
    check_compiled(f, (box, x()))
    assert box.n == 1
    assert np.array_equal(box.v.numpy(), np.arange(4) + 1)


# --- What used to pass unseen ---


class Counter:
    def __init__(self):
        self.count, self.total = 0, torch.zeros(4)

    def by_number(self, v):
        self.count += 1 if compiling() else 2
        return v * 2

    def by_tensor(self, v):
        self.total += 1 if compiling() else 2
        return v * 2


class Buffered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, v):
        self.mean += 1 if compiling() else 2
        return v * 2


def test_what_a_call_leaves_in_objects_is_compared():
    def changes(counter, v):
        return counter.by_tensor(v)

    with pytest.raises(MismatchError, match=r"argument\[0\]\[0\]\.total"):
        check_compiled(changes, (Counter(), x()))
    with pytest.raises(MismatchError, match=r"state\.count: compiled 1, eager 2"):
        check_compiled(Counter().by_number, (x(),))
    with pytest.raises(MismatchError, match=r"state\['mean'\]"):
        check_compiled(Buffered(), (x(),))


def test_items_of_container_subclasses_are_compared():
    class Items(list):
        pass

    class Named(dict):
        pass

    def as_list(v):
        return Items([v * (2 if compiling() else 3)])

    def as_dict(v):
        return Named(a=v * (2 if compiling() else 3))

    with pytest.raises(MismatchError, match=r"result\[0\]"):
        check_compiled(as_list, (x(),), mode="compile", graph_breaks=True)
    with pytest.raises(MismatchError, match=r"result\['a'\]"):
        check_compiled(as_dict, (x(),), mode="compile", graph_breaks=True)


def test_functions_that_return_one_shot_iterators_are_refused():
    def lazily(v):
        return map(float_in_for, [v, v])

    with pytest.raises(UsageError, match=r"lazily returns a map, whose items .* return a list"):
        check_compiled(lazily, (x(),))


def test_generator_functions_are_compared_item_by_item():
    def items(v):
        for i in range(2):
            yield v * (i + compiling())

    def same(v):
        for i in range(2):
            yield v * i

    assert check_compiled(same, (x(),)).functions[0].graphs_run
    with pytest.raises(MismatchError, match=r"result\[0\]"):
        check_compiled(items, (x(),))


@pytest.mark.parametrize("namespace", [torch, np], ids=["torch", "numpy"])
@pytest.mark.filterwarnings("error")
def test_a_module_among_the_arguments(namespace):
    def f(v, xp):
        return v * int(xp.float32 is not None)

    check_compiled(f, (x(), namespace))


def test_gradient_of_complex_results():
    def f(v):
        nothing = v - v.detach()
        return torch.complex(v, v + nothing * (3 if compiling() else 4))

    with pytest.raises(MismatchError, match=r"gradient\[0\]"):
        check_compiled(f, (x(),), grad=True)
    check_compiled(lambda v: torch.complex(v, v).conj(), (x(),), grad=True)


def test_arguments_that_are_no_sequence_are_refused():
    with pytest.raises(UsageError, match=r"args is a Tensor: .* check_compiled\(func, \(x,\)\)"):
        check_compiled(lambda v: v, x()[:1])
    with pytest.raises(UsageError, match="rtol=-1 is not accepted"):
        check_compiled(lambda v: v, (x(),), rtol=-1)
    with pytest.raises(UsageError, match="atol='a' is not accepted"):
        check_compiled(lambda v: v, (x(),), atol="a")


def test_settings_of_torch_survive_a_call_that_compiled_nothing():
    """torch forgets to restore them where fullgraph finds no compiled frame."""
    config = torch._dynamo.config
    before = config.automatic_dynamic_shapes, config.assume_static_by_default
    call = compiled(lambda v: v + 1, mode="fullgraph")
    with config.patch(disable=True):
        call(x())
    assert (config.automatic_dynamic_shapes, config.assume_static_by_default) == before
