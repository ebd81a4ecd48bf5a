from __future__ import annotations

import functools
import gc
import operator
import weakref

import numpy as np
import pytest

from fullgraph.errors import UntaggableError, UsageError
from fullgraph.testing import Budget, lazy_xp_function
from fullgraph.testing._discover import tagged_targets, upstream_tables
from fullgraph.testing._tags import tag_of, tagged_methods


def fresh():
    def f(v):
        return v

    return f


def test_default_tag_demands_whole_graphs_and_any_number_of_recompiles():
    f = fresh()
    assert lazy_xp_function(f) is None
    tag = tag_of(f)
    assert tag.torch_compile
    assert tag.budget == Budget(0, float("inf"))
    assert tag.for_upstream() == {"allow_dask_compute": False, "jax_jit": True}


def test_all_that_upstream_takes():
    f = fresh()
    lazy_xp_function(
        f, allow_dask_compute=2, jax_jit=False, static_argnums=(0,), static_argnames=("v",)
    )
    assert tag_of(f).for_upstream() == {"allow_dask_compute": 2, "jax_jit": False}
    assert f._lazy_xp_function["allow_dask_compute"] == 2  # where array-api-extra reads it


def test_tagging_again_replaces():
    f = fresh()
    lazy_xp_function(f)
    lazy_xp_function(f, allow_graph_breaks=3, torch_compile=False)
    assert tag_of(f).budget.graph_breaks == 3
    assert not tag_of(f).torch_compile


def test_tag_of_upstream_has_no_budget():
    upstream = pytest.importorskip("array_api_extra.testing")
    f = fresh()
    upstream.lazy_xp_function(f, jax_jit=False)
    assert tag_of(f).budget == Budget(None, None)
    assert tag_of(f).for_upstream() == {"allow_dask_compute": False, "jax_jit": False}


@pytest.mark.parametrize("home", ["array_api_extra.testing", "scipy._lib.array_api_extra.testing"])
@pytest.mark.parametrize("make", [lambda: np.frompyfunc(abs, 1, 1), lambda: operator.itemgetter(1)])
def test_tag_of_upstream_or_a_vendored_copy_on_a_c_callable(home, make, module_of):
    upstream = pytest.importorskip(home)
    func = make()
    upstream.lazy_xp_function(func)
    module = module_of("")
    module.func = func
    (target,) = tagged_targets(module)
    assert target.func is func
    assert target.tag.budget == Budget(None, None)
    in_tables = any(func in table for table in upstream_tables())
    assert in_tables is not hasattr(func, "_lazy_xp_function")  # ufuncs of NumPy 2.4 take it


def test_untagged_things_have_no_tag():
    class Odd:
        _lazy_xp_function = "not a dict"

        def __getattr__(self, name):
            return 3

    for thing in (fresh(), 3, [], {}, Odd(), np.add, len):
        assert tag_of(thing, upstream_tables()) is None


def test_unhashable_callables_and_such_that_compare_oddly():
    class Unhashable:
        __slots__ = ()
        __hash__ = None

        def __eq__(self, other):
            raise RuntimeError("no comparison")

        def __call__(self, v):
            return v

    one, two = Unhashable(), Unhashable()
    lazy_xp_function(one)
    assert tag_of(one, upstream_tables()) is not None
    assert tag_of(two, upstream_tables()) is None


def test_copies_of_a_tagged_function_by_wraps_are_tagged_too():
    f = fresh()
    lazy_xp_function(f, allow_graph_breaks=1)

    @functools.wraps(f)
    def g(v):
        return f(v)

    assert tag_of(g) == tag_of(f)


def test_a_tagged_class_can_be_collected():
    class Gone:
        def m(self):
            pass

    lazy_xp_function((Gone, "m"))
    reference = weakref.ref(Gone)
    assert [tag.name for tag in tagged_methods({Gone})] == ["m"]
    del Gone
    gc.collect()
    assert reference() is None


def test_async_functions_are_refused():
    async def f(v):
        return v

    class Thing:
        async def m(self):
            pass

    with pytest.raises(UntaggableError, match=r"is async, and torch\.compile does not"):
        lazy_xp_function(f)
    with pytest.raises(UntaggableError, match=r"Thing\.m is async, and torch.compile does not"):
        lazy_xp_function((Thing, "m"))
    lazy_xp_function(f, torch_compile=False)


def test_properties_are_refused():
    class Thing:
        @property
        def p(self):
            return 1

        @functools.cached_property
        def c(self):
            return 1

        number = 3

    for name in ("p", "c", "number"):
        with pytest.raises(UntaggableError, match=rf"{name} is .*which cannot be called"):
            lazy_xp_function((Thing, name))
    with pytest.raises(UntaggableError, match="cannot be called: lazy_xp_function takes"):
        lazy_xp_function(vars(Thing)["p"])


def test_negative_budgets():
    with pytest.raises(UsageError, match="allow_graph_breaks=-1 is not accepted"):
        lazy_xp_function(fresh(), allow_graph_breaks=-1)
    with pytest.raises(UsageError, match="allow_dask_compute=-2 is not accepted"):
        lazy_xp_function(fresh(), allow_dask_compute=-2)
