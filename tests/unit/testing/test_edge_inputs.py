"""Unusual inputs and callables: right values, right records."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import operator
import pickle
import threading

import numpy as np
import pytest
import torch

from fullgraph.errors import FullGraphError, GraphBreakError, UsageError
from fullgraph.testing import Outcome, check_compiled, compiled

MODES = ["compile", "fullgraph"]


def x():
    return torch.arange(4.0)


def double(v):
    return v * 2


def inference():
    with torch.inference_mode():
        return torch.ones(3)


class Sub(torch.Tensor):
    pass


INPUTS = {
    "requires_grad": lambda: torch.ones(3, requires_grad=True),
    "non_leaf": lambda: torch.ones(3, requires_grad=True) * 1,
    "expanded": lambda: torch.ones(3).expand(2, 3),
    "transposed": lambda: torch.arange(6.0).reshape(2, 3).mT,
    "strided": lambda: torch.arange(6.0)[::2],
    "negative": lambda: torch.arange(6.0).flip(0)[1:],
    "empty": lambda: torch.ones(0, 3),
    "scalar": lambda: torch.tensor(2.0),
    "bool": lambda: torch.tensor([True, False]),
    "uint8": lambda: torch.tensor([1, 2], dtype=torch.uint8),
    "int64": lambda: torch.arange(3),
    "float16": lambda: torch.ones(3, dtype=torch.float16),
    "bfloat16": lambda: torch.ones(3, dtype=torch.bfloat16),
    "complex64": lambda: torch.ones(3, dtype=torch.complex64) * 1j,
    "complex128_conj": lambda: (torch.ones(3, dtype=torch.complex128) * 1j).conj(),
    "meta": lambda: torch.ones(3, device="meta"),
    "subclass": lambda: torch.ones(3).as_subclass(Sub),
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "inference": inference,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", INPUTS)
def test_kinds_of_tensors(kind, mode):
    record = check_compiled(double, (INPUTS[kind](),), mode=mode)
    assert record.functions[0].calls == {Outcome.GRAPH_RAN: 1}
    assert record.functions[0].whole == 1


def test_inference_mode_around_the_call():
    with torch.inference_mode():
        assert check_compiled(double, (x(),)).functions[0].whole == 1


@pytest.mark.parametrize("mode", MODES)
def test_sparse_tensors_are_right_and_said_to_be_broken(mode):
    """Dynamo of these releases has no sparse tensors: never a wrong value, never a silent pass."""
    call = compiled(double, mode=mode)
    v = torch.eye(2).to_sparse()
    assert torch.equal(call(v).to_dense(), torch.eye(2) * 2)
    assert call.record.whole == call.record.calls.get(Outcome.GRAPH_RAN, 0)


@pytest.mark.parametrize("mode", MODES)
def test_shapes_of_signatures(mode):
    def only_keywords(*, v, w):
        return v + w

    def many(*args, **kwargs):
        return sum(args) + sum(kwargs.values())

    def defaults(v, w=None, /, u=2):
        return v * u if w is None else v * w

    assert check_compiled(only_keywords, kwargs={"v": x(), "w": x()}, mode=mode).graphs == 1
    assert check_compiled(many, (x(), x()), {"a": x(), "self": x()}, mode=mode).graphs == 1
    assert check_compiled(defaults, (x(),), mode=mode).graphs == 1
    call = compiled(many, mode=mode)
    assert torch.equal(call(x(), func=x(), args=x(), kwargs=x(), self=x()), x() * 5)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nope'"):
        compiled(defaults, mode=mode)(x(), nope=1)
    with pytest.raises(TypeError, match="missing 2 required keyword-only arguments"):
        compiled(only_keywords, mode=mode)()


def test_huge_argument_lists():
    many = [torch.ones(2) for _ in range(300)]
    call = compiled(lambda items: torch.stack(items).sum(), mode="fullgraph")
    assert call(many).item() == 600
    assert call.record.whole == 1
    assert all(len(item.signature) <= 200 for item in call.record.specialisations)


# --- Values that change between calls ---


@pytest.mark.parametrize("mode", MODES)
def test_closure_with_changed_value(mode):
    factor = 2

    def f(v):
        return v * factor

    call = compiled(f, mode=mode, allow_graph_breaks=0)
    assert torch.equal(call(x()), x() * 2)
    factor = 3
    assert torch.equal(call(x()), x() * 3)
    assert call.record.compiles == 2


@dataclasses.dataclass
class Config:
    broken: bool


def configured(v, config):
    if config.broken:
        for _ in range(2):
            v = v / float(v.max())
    return v + 1


def test_a_skip_does_not_outlive_the_object_that_led_to_it():
    """Objects made for one call: the next one often has the address of the last."""
    call = compiled(configured)
    config = Config(broken=True)
    call(x(), config)
    config.broken = False
    call(x(), config)
    for broken in (True, False, True, False):
        call(x(), Config(broken))
    assert call.record.calls == {Outcome.GRAPH_RAN: 3, Outcome.FRAME_SKIPPED: 3}


def test_a_skip_does_not_outlive_a_closure_or_a_global(module_of):
    module = module_of("""
        FLAG = True
        def f(v):
            if FLAG:
                for _ in range(2):
                    v = v / float(v.max())
            return v + 1
        def make():
            flag = True
            def f(v):
                if flag:
                    for _ in range(2):
                        v = v / float(v.max())
                return v + 1
            def off():
                nonlocal flag
                flag = False
            return f, off
    """)
    expected = {Outcome.FRAME_SKIPPED: 1, Outcome.GRAPH_RAN: 1}
    call = compiled(module.f)
    call(x())
    module.FLAG = False
    call(x())
    assert call.record.calls == expected
    f, off = module.make()
    call = compiled(f)
    call(x())
    off()
    call(x())
    assert call.record.calls == expected


def test_memory_of_skips_is_bounded():
    from fullgraph.testing._dynamo import frames

    def f(v, key):
        for _ in range(1):
            v = v / float(v.max())
        return v

    call = compiled(f)
    engine = call._call.breaking
    for n in range(20):
        call(x(), object() if n % 2 else n)
    assert 0 < len(engine._skips) <= min(20, frames._MOST_SKIPS)


# --- Callables ---


class Thing:
    def __init__(self, by):
        self.by = by

    def method(self, v):
        return v * self.by

    @staticmethod
    def static(v):
        return v * 2

    @classmethod
    def of_class(cls, v):
        return v * len(cls.__name__)

    @property
    def bound(self):
        return self.method

    def __call__(self, v):
        return v * self.by


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, v):
        return v * self.w


@functools.lru_cache
def cached(n):
    return n * 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: Thing(2).method, id="method"),
        pytest.param(lambda: Thing.static, id="static"),
        pytest.param(lambda: type("Ab", (Thing,), {}).of_class, id="class"),
        pytest.param(lambda: Thing(2).bound, id="property"),
        pytest.param(lambda: Thing(2), id="object"),
        pytest.param(lambda: functools.partial(torch.mul, torch.tensor(2.0)), id="partial"),
        pytest.param(lambda: functools.partial(Thing(2).method), id="partial-method"),
        pytest.param(lambda: functools.partial(double), id="partial-function"),
        pytest.param(lambda: torch.nn.functional.relu, id="torch-function"),
        pytest.param(lambda: torch.add, id="builtin"),
        pytest.param(lambda: operator.neg, id="operator"),
        pytest.param(lambda: torch.vmap(double), id="vmap"),
        pytest.param(lambda: torch.func.grad(lambda v: (v * v).sum()), id="grad"),
        pytest.param(Module, id="module"),
        pytest.param(lambda: Module().forward, id="module-method"),
        pytest.param(lambda: torch.no_grad()(double), id="decorated"),
        pytest.param(lambda: functools.wraps(double)(lambda v: v * 3), id="wraps"),
        pytest.param(lambda: compiled(double), id="compiled"),
        pytest.param(lambda: lambda v: v * 2, id="lambda"),
    ],
)
def test_kinds_of_callables(make, mode):
    func = make()
    args = (x(), x()) if func is torch.add else (x(),)
    record = check_compiled(func, args, mode=mode)
    assert record.functions[0].calls == {Outcome.GRAPH_RAN: 1}
    assert record.functions[0].whole == 1


@pytest.mark.parametrize("mode", MODES)
def test_lru_cached_function_on_numbers(mode):
    call = compiled(cached, mode=mode)
    assert call(3) == 6
    assert call.record.calls == {Outcome.NO_TENSOR: 1}


@pytest.mark.filterwarnings("ignore:__array_wrap__")
def test_break_in_a_c_callable_is_placed_at_the_callable():
    call = compiled(np.add, mode="compile")
    with np.errstate(all="ignore"):
        call(np.ones(2), 1)
    assert call.record.calls == {Outcome.NO_TENSOR: 1}
    with pytest.raises(GraphBreakError, match=r"numpy:add breaks the graph") as caught:
        compiled(np.add, allow_graph_breaks=0)(torch.ones(2), 1)
    assert "<numpy:add>:0 in add" in str(caught.value)
    assert "called from" not in str(caught.value)


# --- Iterators ---


@pytest.mark.parametrize("mode", MODES)
def test_generator_is_consumed_in_the_call_and_comes_back_as_an_iterator(mode):
    ran = []

    def items(v, n):
        for k in range(n):
            yield v * k
        ran.append(1) if not torch.compiler.is_compiling() else None

    call = compiled(items, mode=mode)
    result = call(x(), 3)
    assert call.record.graphs_run == 1
    assert inspect.isgenerator(result) or iter(result) is result
    assert [int(v[1]) for v in result] == [0, 1, 2]
    assert list(call(x(), 0)) == []


def test_break_in_the_body_of_a_generator_is_caught():
    def items(v):
        yield v
        yield v if v.sum() > 0 else -v

    for mode in MODES:
        call = compiled(items, mode=mode)
        assert len(list(call(x()))) == 2
        assert [site.line for site in call.record.breaks] == [items.__code__.co_firstlineno + 2]
        assert call.record.whole == 0


def test_endless_generator_is_refused():
    def endless(v):
        while True:
            yield v

    with pytest.raises(UsageError, match=r"endless gave more than \d+ items.*torch_compile=False"):
        compiled(endless)(x())


@pytest.mark.parametrize("mode", MODES)
def test_functions_that_return_iterators(mode):
    def as_map(v):
        return map(double, [v, v])

    def as_generator(v):
        return (v * n for n in range(2))

    for func in (as_map, as_generator):
        call = compiled(func, mode=mode)
        result = list(call(x()))
        assert torch.equal(result[1], x() * 2 if func is as_map else x())
        assert sum(call.record.calls.values()) == 1


# --- Copies, pickles, attributes ---


def test_copies_and_pickles():
    call = compiled(double, mode="fullgraph", allow_graph_breaks=0)
    assert copy.copy(call) is call
    assert copy.deepcopy({"f": call})["f"] is call
    again = pickle.loads(pickle.dumps(call))
    assert again is not call
    assert again == call == double
    assert torch.equal(again(x()), x() * 2)
    assert again.record.whole == 1
    assert call.record.total_calls == 0
    assert again.record.mode == "fullgraph"
    bound = pickle.loads(pickle.dumps(compiled(Thing(2).method)))
    assert torch.equal(bound(x()), x() * 2)


def test_looks_like_the_function():
    call = compiled(double)
    assert call.__name__ == "double"
    assert call.__module__ == __name__
    assert call.__doc__ is None
    assert inspect.signature(call) == inspect.signature(double)
    assert inspect.unwrap(call) is double
    with pytest.raises(AttributeError, match="no_such"):
        call.no_such
    empty = object.__new__(type(call))
    with pytest.raises(AttributeError):
        empty.anything


def test_binds_as_the_function_would():
    class Holder:
        method = compiled(lambda self, v: (self, v * 2))
        obj = compiled(Thing(3))

    holder = Holder()
    me, result = holder.method(x())
    assert me is holder
    assert torch.equal(result, x() * 2)
    assert torch.equal(holder.obj(x()), x() * 3)
    assert Holder.method is vars(Holder)["method"]


def test_compiled_inside_the_users_own_compile_is_inlined():
    call = compiled(double)
    outer = torch.compile(lambda v: call(v) + 1, backend="eager", fullgraph=True)
    assert torch.equal(outer(x()), x() * 2 + 1)
    assert call.record.total_calls == 0


def test_recursion():
    def power(v, n):
        return v if n == 0 else v * call(v, n - 1)

    for mode in MODES:
        call = compiled(power, mode=mode, allow_graph_breaks=0)
        assert torch.equal(call(x(), 3), x() ** 4)
        assert call.record.total_calls == call.record.whole == 1


def test_dynamic_shapes():
    call = compiled(double, dynamic=True)
    for n in range(2, 8):
        call(torch.ones(n))
    assert call.record.compiles == 1
    call = compiled(double)
    for n in range(2, 8):
        call(torch.ones(n))
    assert call.record.compiles == 6


def test_calls_while_another_thread_compiles_are_compiled_and_counted():
    started, done = threading.Event(), threading.Event()

    def slow_backend(graph, _inputs):
        started.set()
        assert done.wait(20)
        return graph.forward

    other = threading.Thread(
        target=lambda: torch.compile(lambda v: v + 1, backend=slow_backend)(x())
    )
    call = compiled(double)
    call(x())
    other.start()
    assert started.wait(20)
    try:
        assert torch.compiler.is_compiling()  # of the process, not of this thread
        call(x())
    finally:
        done.set()
        other.join()
    assert call.record.calls == {Outcome.GRAPH_RAN: 2}


def test_threads_that_compile_the_same_at_once_have_no_recompiles():
    def f(v):
        return v / float(v.max())

    call = compiled(f, allow_recompiles=0)
    barrier, failures = threading.Barrier(4), []

    def run():
        barrier.wait(20)
        try:
            call(x())
        except Exception as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert call.record.calls == {Outcome.GRAPH_RAN: 4}
    alone = compiled(f)
    alone(x())
    names = sorted(item.frame for item in alone.record.specialisations)
    assert sorted(item.frame for item in call.record.specialisations) == names


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize(
    ("func", "kind", "outcome"),
    [
        (lambda v: map(torch.sin, [v, v]), "map", Outcome.FRAME_SKIPPED),
        (lambda v: map(torch.sin, [v + 1]), "map", Outcome.GRAPH_RAN),
        (lambda v: filter(None, [v.shape]), "filter", Outcome.FRAME_SKIPPED),
    ],
)
def test_what_is_run_after_the_call_is_not_captured(func, kind, outcome, mode):
    call = compiled(func, mode=mode)
    assert type(call(x())).__name__ == kind
    assert call.record.calls == {outcome: 1}
    assert call.record.whole == 0
    reasons = [site.reason for site in call.record.breaks]
    assert f"returns a {kind}, which is run after the compiled call" in reasons
    error = GraphBreakError if mode == "compile" else FullGraphError
    with pytest.raises(error, match="run after the compiled call"):
        compiled(func, mode=mode, allow_graph_breaks=0)(x())


def test_lists_and_zips_of_what_was_computed_are_captured():
    call = compiled(lambda v: zip([v + 1], [v * 2], strict=True))
    assert len(list(call(x()))) == 1
    assert call.record.whole == 1


@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.vmap])
def test_a_transform_around_a_compiled_function_is_named(transform):
    call = compiled(lambda v: (v * 2).sum())
    transform(call)(x().reshape(4, 1) if transform is torch.func.vmap else x())
    (site,) = call.record.breaks
    assert site.reason == "called by a transform of torch.func"
    assert "compiled(torch.func.grad(f))" in site.hints[0]
    inner = compiled(torch.func.grad(lambda v: (v * 2).sum()))
    inner(x())
    assert inner.record.whole == 1


def test_without_the_private_question_the_reason_is_torchs(monkeypatch):
    monkeypatch.delattr(torch._C._functorch, "maybe_current_level")
    call = compiled(lambda v: (v * 2).sum())
    torch.func.vmap(call)(x().reshape(4, 1))
    assert call.record.calls == {Outcome.FRAME_SKIPPED: 1}


@pytest.mark.parametrize("dynamic", [0, 1, "yes"])
def test_dynamic_is_true_false_or_none(dynamic):
    with pytest.raises(UsageError, match="give True, False or None"):
        compiled(lambda v: v, dynamic=dynamic)


class Scale:
    def __init__(self, v):
        self.v = v

    def by(self, n):
        return self.v * n


def method_on_the_stack(v):
    return Scale(v).by(float(v.max()))  # break, with a method that Dynamo cannot make anew


def test_a_skipped_frame_names_the_break_and_not_what_failed_after_it():
    call = compiled(method_on_the_stack)
    assert torch.equal(call(x()), x() * 3)
    (site,) = call.record.breaks
    assert site.reason != "Reconstruction failure"
    assert site.line == method_on_the_stack.__code__.co_firstlineno + 1
