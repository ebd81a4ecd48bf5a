from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import sys
import types
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fullgraph.errors import (
    FullGraphError,
    GraphBreakError,
    MissingBackendError,
    UntaggableError,
    UsageError,
)
from fullgraph.testing import (
    Mode,
    compiled,
    lazy_xp_function,
    patch_lazy_xp_functions,
    record,
)
from fullgraph.testing import _patch as patch_module
from fullgraph.testing._patch import set_default_mode

SOURCE = """
    def f(v):
        return v + 1

    def branch(v):
        return v if v.sum() > 0 else -v

    class P:
        def m(self, v): return v * 2
        @staticmethod
        def s(v): return v * 3
        @classmethod
        def c(cls, v): return v * 4, cls.__name__

    class Q(P):
        pass
"""


def x():
    return torch.arange(4.0)


@pytest.fixture
def module(module_of):
    return module_of(SOURCE)


def state(module):
    """Return what stands where, by identity; what begins with "__" Dynamo puts there."""
    return {
        owner.__name__: {k: id(v) for k, v in vars(owner).items() if not k.startswith("__")}
        for owner in (module, module.P, module.Q)
    }


# --- What is patched, and with what ---


@pytest.mark.parametrize("mode", ["compile", "fullgraph", Mode.COMPILE])
def test_tagged_functions_run_compiled(module, request_for, mode):
    lazy_xp_function(module.f)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
            assert torch.equal(module.f(x()), x() + 1)
    assert recording.record["fg_under_test:f"].graphs_run == 1
    assert recording.record["f"].mode == mode


@pytest.mark.parametrize("mode", [None, "eager"])
def test_eager_and_default_leave_everything_alone(module, request_for, mode):
    lazy_xp_function(module.f)
    before = module.f
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
        assert module.f is before


def test_torch_compile_false_is_eager_only(module, request_for):
    lazy_xp_function(module.f, torch_compile=False)
    before = module.f
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            assert module.f is before
    assert not recording.record.unreached


@pytest.mark.parametrize("cls", ["P", "Q"])
@pytest.mark.parametrize(("name", "factor"), [("m", 2), ("s", 3), ("c", 4)])
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_methods(module, request_for, cls, name, factor, mode):
    owner = getattr(module, cls)
    before = state(module)
    lazy_xp_function((owner, name))
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
            on_instance, on_class = getattr(owner(), name), getattr(owner, name)
            for call in [on_instance] if name == "m" else [on_instance, on_class]:
                result = call(x())
                if name == "c":
                    result, seen = result
                    assert seen == cls
                assert torch.equal(result, x() * factor)
    found = recording.record[f"fg_under_test:{cls}.{name}"]
    assert found.whole == found.total_calls == (1 if name == "m" else 2)
    assert state(module) == before


def test_subclass_that_overrides_is_not_the_tagged_class(module, request_for):
    class R(module.P):
        def m(self, v):
            return super().m(v) + 1

    module.R = R
    lazy_xp_function((module.P, "m"))
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            assert torch.equal(R().m(x()), x() * 2 + 1)
    assert recording.record["P.m"].total_calls == 1


def test_class_that_holds_a_function_is_left_alone(module, request_for):
    class naked:
        f = module.f
        bound = staticmethod(module.f)

    module.naked = naked
    lazy_xp_function(module.f)
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
        assert vars(naked)["f"] is not module.f
        assert isinstance(vars(naked)["f"], types.FunctionType)


@pytest.mark.parametrize(
    "xp_name", ["torch", "array_api_compat.torch", "scipy._lib.array_api_compat.torch"]
)
def test_every_name_of_torch(module, request_for, xp_name):
    xp = pytest.importorskip(xp_name)
    lazy_xp_function(module.f)
    before = module.f
    with patch_lazy_xp_functions(request_for(module), xp=xp, mode="compile"):
        assert module.f is not before


def test_functions_tagged_by_upstream_have_no_budget(module, request_for):
    upstream = pytest.importorskip("array_api_extra.testing")
    upstream.lazy_xp_function(module.branch)
    upstream.lazy_xp_function((module.Q, "m"))
    for mode in ("compile", "fullgraph"):
        with record() as recording:
            with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
                assert torch.equal(module.branch(x()), x())
                assert torch.equal(module.Q().m(x()), x() * 2)
                assert torch.equal(module.P().m(x()), x() * 2)
        assert len(recording.record["branch"].breaks) == 1
        assert recording.record["Q.m"].total_calls == 1


def test_functions_tagged_by_a_vendored_copy(request_for):
    special = pytest.importorskip("scipy.special")
    if not hasattr(special.logsumexp, "_lazy_xp_function"):
        from scipy._lib.array_api_extra.testing import lazy_xp_function as vendored

        vendored(special.logsumexp)
    module = SimpleNamespace(__name__="t", logsumexp=special.logsumexp)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            module.logsumexp(np.zeros(2))
    assert recording.record["logsumexp"].total_calls == 1


def test_ours_wins_over_upstreams_for_one_method(module, request_for):
    upstream = pytest.importorskip("array_api_extra.testing")
    upstream.lazy_xp_function((module.P, "m"))
    lazy_xp_function((module.P, "m"), allow_graph_breaks=3)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            module.P().m(x())
    assert not recording.record.unreached


def test_users_own_compiled_object_is_not_replaced(module, request_for):
    lazy_xp_function(module.f)
    module.mine = compiled(module.f, backend="aot_eager")
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            module.mine(x())
            assert module.mine.record.backend == "aot_eager"
    assert recording.record["f"].backend == "aot_eager"


# --- Restoring ---


def modes_of_contexts():
    return ["compile", "fullgraph", "compile"]


@pytest.mark.parametrize("tag", ["f", "m", "s", "c", "all"])
def test_nested_contexts_restore_exactly(module, request_for, tag):
    names = ["f", "m", "s", "c"] if tag == "all" else [tag]
    for name in names:
        lazy_xp_function(module.f if name == "f" else (module.Q, name))
    states = [state(module)]
    with contextlib.ExitStack() as stack:
        for mode in modes_of_contexts():
            stack.enter_context(patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode))
            states.append(state(module))
            with record() as recording:
                if "f" in names:
                    module.f(x())
                if "m" in names:
                    module.Q().m(x())
            # the innermost context decides, and each call is recorded once
            assert {r.mode for r in recording.record.functions} <= {mode}
            assert all(r.total_calls == 1 for r in recording.record.functions)
        for expected in states[:0:-1]:
            assert state(module) == expected
            stack._exit_callbacks.pop()[1](None, None, None)
    assert state(module) == states[0]


def test_one_context_entered_twice_and_inside_itself(module, request_for):
    lazy_xp_function(module.f)
    lazy_xp_function((module.Q, "m"))
    before = state(module)
    patch = patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile")
    for _ in range(2):
        with patch:
            with patch:
                assert torch.equal(module.f(x()), x() + 1)
            assert id(module.f) != before["fg_under_test"]["f"]
        assert state(module) == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, AssertionError])
def test_a_failing_test_restores(module, request_for, error):
    lazy_xp_function(module.f)
    lazy_xp_function((module.Q, "s"))
    before = state(module)
    with pytest.raises(error):
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            raise error
    assert state(module) == before


def test_an_entry_that_fails_half_way_restores(module, request_for):
    lazy_xp_function(module.f)

    class Refusing(type):
        def __setattr__(cls, name, value):
            if name == "m":
                raise RuntimeError("no")
            super().__setattr__(name, value)

    class R(metaclass=Refusing):
        def m(self, v):
            return v

    module.R = R
    lazy_xp_function((R, "m"))
    before = state(module)
    with pytest.raises(RuntimeError, match="no"):
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            pytest.fail("it was entered")
    assert state(module) == before


def test_monkeypatch_form(module, request_for, monkeypatch):
    lazy_xp_function(module.f)
    before = module.f
    request = request_for(module)
    with pytest.warns(DeprecationWarning, match="`monkeypatch` parameter is deprecated"):
        context = patch_lazy_xp_functions(request, monkeypatch, xp=torch, mode="compile")
    assert module.f is not before
    with context:
        assert torch.equal(module.f(x()), x() + 1)
    assert module.f is not before
    for finalizer in request.finalizers:
        finalizer()
    assert module.f is before


def test_one_compiled_object_per_function_and_mode(module, request_for):
    lazy_xp_function(module.f)
    graphs = []
    for mode in ("compile", "fullgraph", "compile", "fullgraph"):
        with record() as recording:
            with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
                module.f(x())
        graphs.append(recording.record.graphs)
    assert graphs == [1, 1, 0, 0]


# --- Identity ---


def test_the_wrapper_is_equal_to_the_function_and_looks_like_it(module, request_for):
    lazy_xp_function(module.f)
    f = module.f
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
        assert module.f == f
        assert f == module.f
        assert hash(module.f) == hash(f)
        assert {f: 1}[module.f] == 1
        assert module.f.__name__ == "f"
        assert module.f.__qualname__ == "f"
        assert module.f.__module__ == "fg_under_test"
        assert repr(module.f) == f"<compiled {f!r}>"
        assert pickle.loads(pickle.dumps(module.f)) is module.f


# --- Modes and namespaces ---


@pytest.mark.parametrize(
    ("xp_name", "mode", "message"),
    [
        ("torch", "jit", "torch has no mode 'jit': accepted are 'eager', 'compile', 'fullgraph'"),
        ("torch", "fast", "unknown mode 'fast'"),
        ("jax.numpy", "compile", "jax has no mode 'compile': accepted are 'eager', 'jit'"),
        ("numpy", "compile", "mode 'compile' is not one of numpy: only torch and JAX have modes"),
        ("numpy", "fast", "unknown mode 'fast'"),
        ("dask.array", "jit", r"mode 'jit' is not one of dask\.array"),
    ],
)
def test_a_mode_that_is_not_one_of_the_namespace(module, request_for, xp_name, mode, message):
    xp = pytest.importorskip(xp_name)
    with pytest.raises(UsageError, match=message):
        patch_lazy_xp_functions(request_for(module), xp=xp, mode=mode)


@pytest.mark.parametrize("mode", [None, "eager"])
def test_numpy_is_left_alone(module, request_for, mode):
    lazy_xp_function(module.f)
    before = module.f
    with patch_lazy_xp_functions(request_for(module), xp=np, mode=mode):
        assert module.f is before


def test_default_mode_of_the_plugin(module, request_for):
    lazy_xp_function(module.f)
    before = module.f
    assert set_default_mode(Mode.COMPILE) is None
    try:
        with patch_lazy_xp_functions(request_for(module), xp=torch):
            assert module.f is not before
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="eager"):
            assert module.f is before
        jnp = pytest.importorskip("jax.numpy")
        with patch_lazy_xp_functions(request_for(module), xp=jnp):  # no mode of JAX's: its default
            assert module.f is not before
    finally:
        assert set_default_mode(None) is Mode.COMPILE


# --- JAX and Dask, through array-api-extra ---


def needs_jit(module):
    """Make a function that tells whether it is traced by JAX."""
    jax = pytest.importorskip("jax")

    def traced(v):
        return isinstance(v, jax.core.Tracer) + v * 0

    module.traced = traced
    return traced


@pytest.mark.parametrize(("mode", "expected"), [("jit", 1), (None, 1), ("eager", 0)])
@pytest.mark.parametrize("jax_jit", [True, False])
def test_jax(module, request_for, mode, expected, jax_jit):
    jnp = pytest.importorskip("jax.numpy")
    traced = needs_jit(module)
    lazy_xp_function(traced, jax_jit=jax_jit)
    with patch_lazy_xp_functions(request_for(module), xp=jnp, mode=mode):
        assert int(module.traced(jnp.asarray(3))) == expected * jax_jit
    assert module.traced is traced


@pytest.mark.parametrize("name", ["m", "s", "c"])
@pytest.mark.parametrize("xp_name", ["jax.numpy", "dask.array"])
def test_methods_with_our_tags_under_jax_and_dask(module, request_for, name, xp_name):
    xp = pytest.importorskip(xp_name)
    before = state(module)
    lazy_xp_function((module.Q, name))
    with patch_lazy_xp_functions(request_for(module), xp=xp):
        assert name in vars(module.Q)
        result = getattr(module.Q(), name)(xp.arange(3))
        result = result[0] if name == "c" else result
        assert np.asarray(result).tolist() == [n * {"m": 2, "s": 3, "c": 4}[name] for n in range(3)]
    assert state(module) == before


def test_c_callables_with_our_tags_under_dask(module, request_for):
    da = pytest.importorskip("dask.array")
    ufunc, getter = np.frompyfunc(abs, 1, 1), operator.methodcaller("compute")
    module.ufunc, module.getter = ufunc, getter
    module.compute = functools.partial(lambda v: float(np.asarray(v).sum()))
    lazy_xp_function(ufunc)
    lazy_xp_function(getter)
    lazy_xp_function(module.compute, allow_dask_compute=1)
    from array_api_extra.testing import _testing as upstream

    for _ in range(2):
        with patch_lazy_xp_functions(request_for(module), xp=da):
            assert module.ufunc is not ufunc
            assert module.compute(da.arange(3)) == 3.0
            with pytest.raises(AssertionError, match=r"dask\.compute"):
                module.getter(da.arange(3))
        assert module.ufunc is ufunc
        assert module.getter is getter
        assert getter not in upstream._ufuncs_tags


@pytest.mark.parametrize("xp_name", ["jax.numpy", "dask.array"])
def test_contexts_under_jax_and_dask_restore(module, request_for, xp_name):
    xp = pytest.importorskip(xp_name)
    module.lazy_xp_modules = [module]  # array-api-extra meets everything twice
    for func in (module.f, (module.Q, "m"), (module.P, "s")):
        lazy_xp_function(func)
    before = state(module)
    with pytest.raises(ValueError, match="stop"):
        with patch_lazy_xp_functions(request_for(module), xp=xp):
            with patch_lazy_xp_functions(request_for(module), xp=xp):
                assert np.asarray(module.f(xp.arange(2))).tolist() == [1, 2]
                raise ValueError("stop")
    assert state(module) == before


def test_dask_budget(module, request_for):
    da = pytest.importorskip("dask.array")
    module.f = lambda v: float(v.sum())
    lazy_xp_function(module.f)
    with patch_lazy_xp_functions(request_for(module), xp=da):
        with pytest.raises(AssertionError, match=r"dask\.compute"):
            module.f(da.arange(3))


def test_missing_array_api_extra(module, request_for, monkeypatch):
    jnp = pytest.importorskip("jax.numpy")
    monkeypatch.setitem(sys.modules, "array_api_extra", None)
    with pytest.raises(MissingBackendError, match=r"jax\.numpy is tested through array-api-extra"):
        with patch_lazy_xp_functions(request_for(module), xp=jnp):
            pytest.fail("it was entered")


def test_callable_that_upstream_cannot_find(module, request_for):
    jnp = pytest.importorskip("jax.numpy")

    class Unhashable:
        __slots__ = ()
        __hash__ = None

        def __call__(self, v):
            return v

    module.odd = Unhashable()
    lazy_xp_function(module.odd)
    with pytest.raises(UntaggableError, match="has neither attributes nor a hash"):
        with patch_lazy_xp_functions(request_for(module), xp=jnp):
            pytest.fail("it was entered")


# --- Unreached ---


def test_unreached_names_test_and_function(module, request_for):
    lazy_xp_function(module.f)
    lazy_xp_function((module.Q, "m"))
    with record() as recording:
        request = request_for(module, "tests/t.py::test[a]")
        with patch_lazy_xp_functions(request, xp=torch, mode="compile"):
            pass
    assert recording.record.unreached == (
        "tests/t.py::test[a]: fg_under_test:Q.m",
        "tests/t.py::test[a]: fg_under_test:f",
    )


# --- Tagged functions that call one another ---

NEST = """
    def inner(v): return v + 1
    def outer(v): return inner(v) * 2
    def breaking(v): return inner(v) if v.sum() > 0 else inner(-v)
    def factorial(v, n): return v if n == 0 else n * factorial(v, n - 1)
"""


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_a_tagged_function_inside_another_is_part_of_its_graph(module_of, request_for, mode):
    module = module_of(NEST)
    for func in (module.inner, module.outer, module.factorial):
        lazy_xp_function(func)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
            assert torch.equal(module.outer(x()), (x() + 1) * 2)
            assert torch.equal(module.factorial(x(), 4), 24 * x())
    assert recording.record["outer"].whole == 1
    assert recording.record["outer"].graphs_run == 1
    assert recording.record["factorial"].whole == 1
    assert recording.record["factorial"].total_calls == 1
    assert "inner" not in {r.name.rpartition(":")[2] for r in recording.record.functions}


def test_a_tagged_function_called_between_graphs_is_part_of_the_call(module_of, request_for):
    module = module_of(NEST)
    lazy_xp_function(module.inner)
    lazy_xp_function(module.breaking, allow_graph_breaks=True)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
            assert torch.equal(module.breaking(x()), x() + 1)
    assert recording.record["breaking"].total_calls == 1
    assert recording.record["breaking"].graphs_run == 2
    assert [r.name for r in recording.record.functions] == ["fg_under_test:breaking"]


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_budget_of_the_outer_function_counts_the_inner_ones_breaks(module_of, request_for, mode):
    module = module_of("""
        def inner(v): return v if v.sum() > 0 else -v
        def outer(v): return inner(v) * 2
    """)
    lazy_xp_function(module.inner, allow_graph_breaks=True)
    lazy_xp_function(module.outer)
    error = {"compile": GraphBreakError, "fullgraph": FullGraphError}[mode]
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
        with pytest.raises(error, match=r"fg_under_test:outer .*\n.*in inner: Data-dependent"):
            module.outer(x())


def test_the_registry_keeps_functions_apart():
    assert all(key[1] in Mode for key in patch_module._calls)


def test_method_inherited_by_two_tagged_classes_has_two_records(module_of, request_for):
    module = module_of(SOURCE + "\n    class R(P):\n        pass\n")
    lazy_xp_function((module.Q, "m"))
    lazy_xp_function((module.R, "m"))
    with (
        record() as recording,
        patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"),
    ):
        module.R().m(x())
    (ran,) = recording.record.functions
    assert ran.name.endswith(":R.m")
    (unreached,) = recording.record.unreached
    assert unreached.endswith(":Q.m")
