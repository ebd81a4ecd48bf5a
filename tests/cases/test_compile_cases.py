"""The sixteen cases that the records must get right, each with its right value.

Case 16 (a default device that is set) repeats a representative set: the tests that take the fixture
`either_device`.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
import warnings

import numpy as np
import pytest
import torch
from array_api_compat import array_namespace

from fullgraph.errors import (
    FullGraphError,
    GraphBreakError,
    NothingCompiledError,
    RecompileError,
    UntaggableError,
)
from fullgraph.testing import (
    Outcome,
    check_compiled,
    compiled,
    lazy_xp_function,
    patch_lazy_xp_functions,
    record,
)

MODES = ["eager", "compile", "fullgraph"]
COMPILING = ["compile", "fullgraph"]
ERROR = {"compile": GraphBreakError, "fullgraph": FullGraphError}


def x() -> torch.Tensor:
    return torch.arange(4.0)


def line_of(func, text: str) -> int:
    """Return the line of the file in which `text` stands, inside `func`."""
    lines, first = inspect.getsourcelines(func)
    return first + next(i for i, line in enumerate(lines) if text in line)


def calls(**counts) -> dict[Outcome, int]:
    return {Outcome[name.upper()]: n for name, n in counts.items()}


# --- 1. Breaks that counters miss, and the rest of the counting table ---


def in_for(v):
    for _ in range(3):
        v = v / float(v.max())
    return v


def in_try(v):
    try:
        return v / float(v.max())
    except ZeroDivisionError:
        return v


def in_while(v):
    n = 0
    while n < 2:
        v = v / float(v.max())
        n += 1
    return v


def in_with(v):
    with torch.no_grad():
        v = v / float(v.max())
    return v


def in_comprehension(v):
    return [v / float(v.max()) for _ in range(2)]


def in_generator(v):
    for _ in range(2):
        yield v / float(v.max())


def in_if(v):
    if torch.any(v < 0):
        return -v
    return v.sqrt()


def callee(v):
    return v / float(v.max())


def in_callee(v):
    return callee(v) + 1


third = torch.arange(4.0) / 3
TABLE = [
    pytest.param(in_for, "float(v.max())", True, third, id="for"),
    pytest.param(in_try, "float(v.max())", True, third, id="try"),
    pytest.param(in_while, "float(v.max())", True, third, id="while"),
    pytest.param(in_with, "float(v.max())", False, third, id="with"),
    pytest.param(in_comprehension, "float(v.max())", True, [third, third], id="comprehension"),
    pytest.param(in_generator, "float(v.max())", True, [third, third], id="generator"),
    pytest.param(in_if, "torch.any", False, torch.arange(4.0).sqrt(), id="if"),
    pytest.param(in_callee, None, False, third + 1, id="callee"),
]


@pytest.mark.parametrize(("func", "text", "skips", "value"), TABLE)
def test_break_is_counted_with_its_line_on_every_call(func, text, skips, value, either_device):
    call = compiled(func)
    for _ in range(3):
        result = call(x())
        torch.testing.assert_close(list(result) if func is in_generator else result, value)
    found = call.record
    line = line_of(func, text) if text else line_of(callee, "float")
    assert [(site.file, site.line, site.skips_frame) for site in found.breaks] == [
        (__file__, line, skips)
    ]
    assert found.breaks[0].calls == 3  # a reused specialisation is charged as the first is
    assert found.calls == calls(**{"frame_skipped" if skips else "graph_ran": 3})
    assert found.whole == 0


@pytest.mark.parametrize(("func", "text", "skips", "value"), TABLE)
def test_break_fails_at_budget_zero(func, text, skips, value):
    call = compiled(func, allow_graph_breaks=0)
    line = line_of(func, text) if text else line_of(callee, "float")
    for _ in range(2):  # a second call, served from what the first left, fails too
        with pytest.raises(GraphBreakError, match=rf"test_compile_cases\.py:{line} in ") as caught:
            call(x())
        assert func.__name__ in str(caught.value)
        assert "instead: " in str(caught.value)


@pytest.mark.parametrize(
    ("func", "text", "skips", "value"), [row for row in TABLE if row.id not in ("if", "generator")]
)
def test_fullgraph_captures_scalars_which_compile_mode_breaks_at(func, text, skips, value):
    call = compiled(func, mode="fullgraph", allow_graph_breaks=0)
    torch.testing.assert_close(call(x()), value)
    assert call.record.whole == 1


def branch(v):
    return v if torch.any(v < 0) else -v


def branch_in_for(v):
    for _ in range(2):
        v = branch(v)
    return v


def branch_in_try(v):
    try:
        return branch(v)
    except ZeroDivisionError:
        return v


def branch_in_with(v):
    with torch.no_grad():
        return branch(v)


def branch_in_comprehension(v):
    return [branch(v) for _ in range(2)]


def branch_in_generator(v):
    for _ in range(2):
        yield branch(v)


@pytest.mark.parametrize(
    "func",
    [branch_in_for, branch_in_try, branch_in_with, branch_in_comprehension, branch_in_generator],
)
def test_branch_on_a_value_is_not_whole(func, either_device):
    call = compiled(func, mode="fullgraph", allow_graph_breaks=0)
    line = line_of(branch, "torch.any")
    for _ in range(2):
        with pytest.raises(FullGraphError, match=rf"test_compile_cases\.py:{line} in branch"):
            call(x())
    assert call.record.calls == calls(failed=2)
    assert call.record.breaks[0].calls == 2


@pytest.mark.parametrize("budget", [None, True, 3])
def test_what_is_not_whole_is_finished_in_compile_mode_without_a_budget_of_zero(budget):
    call = compiled(branch_in_with, mode="fullgraph", allow_graph_breaks=budget)
    assert torch.equal(call(x()), -x())
    assert call.record.calls == calls(graph_ran=1)
    assert call.record.whole == 0
    assert [site.line for site in call.record.breaks] == [line_of(branch, "torch.any")]


def test_skipped_frame_exceeds_every_finite_budget():
    with pytest.raises(GraphBreakError, match="exceeds every finite budget"):
        compiled(in_for, allow_graph_breaks=100)(x())
    torch.testing.assert_close(compiled(in_for, allow_graph_breaks=True)(x()), third)


def test_budget_of_one_takes_one_site_and_not_two():
    def two(v):
        v = v / float(v.max())
        return v * float(v.sum())

    torch.testing.assert_close(compiled(in_callee, allow_graph_breaks=1)(x()), third + 1)
    with pytest.raises(GraphBreakError, match=r"breaks the graph at 2 places, 1 allowed"):
        compiled(two, allow_graph_breaks=1)(x())
    assert len(compiled(two, allow_graph_breaks=2)(x())) == 4


# --- 2. Past the limit ---


def with_mode(v, mode):
    return v + len(mode)


def test_twelve_strings_are_twelve_specialisations(either_device):
    call = compiled(with_mode)
    for n in range(12):
        assert torch.equal(call(x(), "m" * n), x() + n)
    assert call.record.calls == calls(graph_ran=12)
    assert (call.record.compiles, call.record.recompiles) == (12, 11)
    assert call.record.whole == 12


def test_calls_past_the_limit_are_counted_and_not_silently_eager():
    call = compiled(with_mode, recompile_limit=8)
    for _ in range(2):
        for n in range(12):
            assert torch.equal(call(x(), "m" * n), x() + n)
    assert call.record.calls == calls(graph_ran=16, over_limit=8)
    assert call.record.compiles == 8
    assert call.record.partly_over_limit == 8
    assert call.record.whole == 16
    assert call.record.coverage == pytest.approx(16 / 24)


def test_calls_past_the_limit_in_fullgraph_mode():
    call = compiled(with_mode, mode="fullgraph", recompile_limit=3)
    for n in range(5):
        assert torch.equal(call(x(), "m" * n), x() + n)
    assert call.record.calls == calls(graph_ran=3, over_limit=2)


# --- 3. Parametrised ids in fullgraph mode ---


@pytest.mark.parametrize("mode", COMPILING)
def test_sixteen_ids_are_sixteen_compiles(mode):
    call = compiled(lambda v: v.sum(), mode=mode, allow_graph_breaks=0)
    for rank in range(4):
        for dtype in (torch.float32, torch.float64, torch.int32, torch.int64):
            v = torch.ones((2,) * rank, dtype=dtype)
            assert call(v).item() == 2**rank
    assert call.record.compiles == 16
    assert call.record.recompiles == 15
    assert call.record.whole == 16


# --- 4. Routes that bypass the tag ---

LIBRARY = """
    def f(v):
        return v if bool(v.sum() > 0) else -v

    def g(v):
        return f(v) + 0
"""
TESTS = """
    import functools
    import bypassed_library as mod
    from bypassed_library import f

    alias = f
    part = functools.partial(f)
    table = {"f": f}
    parameter = f

    def by_global(v): return f(v)
    def by_alias(v): return alias(v)
    def by_partial(v): return part(v)
    def by_dict(v): return table["f"](v)
    def by_parameter(v, func=parameter): return func(v)
    def by_module(v): return mod.f(v)
    def by_other_function(v): return mod.g(v)
    def by_import(v):
        from bypassed_library import f as local
        return local(v)
"""
ROUTES = ["global", "alias", "partial", "dict", "parameter", "module", "other_function", "import"]
CHECKED = {False: {"global", "alias"}, True: set(ROUTES) - {"partial", "dict", "parameter"}}


@pytest.fixture
def bypass(module_of):
    library = module_of(LIBRARY, "bypassed_library")
    lazy_xp_function(library.f)
    return module_of(TESTS, "bypassing_tests"), library


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("in_modules", [False, True], ids=["alone", "lazy_xp_modules"])
def test_a_route_is_checked_or_reported(bypass, request_for, route, in_modules):
    tests, library = bypass
    if in_modules:
        tests.lazy_xp_modules = [library]
    run = getattr(tests, f"by_{route}")
    with record() as recording:
        with patch_lazy_xp_functions(request_for(tests, "t.py::test"), xp=torch, mode="compile"):
            try:
                run(x())
                checked = False
            except GraphBreakError:
                checked = True
    reported = recording.record.unreached == ("t.py::test: bypassed_library:f",)
    assert checked is (route in CHECKED[in_modules])
    assert reported is not checked


# --- 5. Inherited methods ---

CLASSES = """
    class P:
        def m(self, v): return v + bool(v.sum() > 0)
        @staticmethod
        def s(v): return v + bool(v.sum() > 0)
        @classmethod
        def c(cls, v): return cls.__name__, v + bool(v.sum() > 0)

    class Q(P):
        pass
"""


@pytest.mark.parametrize("name", ["m", "s", "c"])
def test_inherited_method_is_checked_on_its_class_alone(module_of, request_for, name):
    module = module_of(CLASSES)
    P, Q = module.P, module.Q
    lazy_xp_function((Q, name))
    raw = vars(P)[name]
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode="compile"):
        with pytest.raises(GraphBreakError, match=rf"fg_under_test:Q\.{name} breaks the graph"):
            getattr(Q(), name)(x())
        result = getattr(P(), name)(x())
        assert name != "c" or result[0] == "P"
        assert isinstance(Q(), P)
    assert name not in vars(Q)
    assert vars(P)[name] is raw
    assert name != "c" or Q().c(x())[0] == "Q"


# --- 6. Iterators ---


@pytest.mark.parametrize("mode", COMPILING)
def test_generator_that_breaks_is_caught_at_the_call(module_of, request_for, mode):
    module = module_of("""
        def items(v):
            for _ in range(2):
                yield v if v.sum() > 0 else -v
    """)
    lazy_xp_function(module.items)
    with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
        with pytest.raises(ERROR[mode], match="fg_under_test:items"):
            module.items(x())


@pytest.mark.parametrize("mode", MODES)
def test_generator_that_is_whole_gives_its_items(mode):
    def items(v):
        for n in range(3):
            yield v * n

    call = compiled(items, mode=mode, allow_graph_breaks=0)
    result = call(x())
    assert iter(result) is result
    torch.testing.assert_close(list(result), [x() * 0, x(), x() * 2])
    assert call.record.graphs_run == (mode != "eager")


# --- 7. Untaggable things ---


class Adder:
    def __init__(self, by):
        self.by = by

    def __call__(self, v):
        return v + self.by


@functools.lru_cache
def cached(n):
    return n + 1


def taggables():
    special = pytest.importorskip("scipy.special")
    return {
        "ufunc": (special.erf, (np.zeros(2),), np.zeros(2)),
        "c_function": (math.sin, (0.0,), 0.0),
        "operator": (operator.add, (torch.ones(2), 1), torch.full((2,), 2.0)),
        "partial": (functools.partial(torch.mul, torch.ones(2)), (3,), torch.full((2,), 3.0)),
        "lru_cached": (cached, (1,), 2),
        "callable_object": (Adder(2), (torch.ones(2),), torch.full((2,), 3.0)),
    }


KINDS = ["ufunc", "c_function", "operator", "partial", "lru_cached", "callable_object"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_callable_can_be_tagged_and_called(module_of, request_for, kind, mode):
    module = module_of("")
    func, args, expected = taggables()[kind]
    module.func = func
    lazy_xp_function(func)
    with record() as recording:
        with patch_lazy_xp_functions(request_for(module), xp=torch, mode=mode):
            result = module.func(*args)
    assert module.func is func
    assert type(result) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(result, expected)
        assert recording.record.graphs_run == (mode != "eager")
    else:
        assert np.all(result == expected)
        assert mode == "eager" or recording.record.functions[0].calls == calls(no_tensor=1)
    assert not recording.record.unreached


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (3, r"3 cannot be called: lazy_xp_function takes a callable"),
        (Adder, r"Adder'> is a class: tag a method of it"),
        (staticmethod(callee), r"cannot be called: lazy_xp_function takes a callable"),
        ((Adder, "nope"), r"class Adder has no attribute 'nope'"),
        ((Adder, 3), r"is not \(class, 'method'\)"),
        ((Adder,), r"is not \(class, 'method'\)"),
        ((Adder(1), "__call__"), r"is not \(class, 'method'\)"),
        ((Outcome, "name"), r"which cannot be called: tag a method"),
    ],
)
def test_what_cannot_be_tagged_is_refused_when_it_is_tagged(thing, message):
    with pytest.raises(UntaggableError, match=message):
        lazy_xp_function(thing)


# --- 8. Warnings as errors ---


@pytest.mark.parametrize("mode", MODES)
def test_notices_of_dynamo_itself_do_not_fail(mode, either_device):
    def f(v):
        return array_namespace(v).sum(v)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call = compiled(f, mode=mode, allow_graph_breaks=0)
        assert call(x()).item() == 6
    assert call.record.graphs_run == (mode != "eager")


def warns(v):
    warnings.warn("mind the gap", RuntimeWarning, stacklevel=2)
    return v + 1


@pytest.mark.parametrize("mode", MODES)
def test_warning_of_the_user_is_seen_and_is_the_reason(mode):
    call = compiled(warns, mode=mode)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="mind the gap"):
            assert torch.equal(call(x()), x() + 1)
    if mode != "eager":
        (site,) = call.record.breaks
        assert site.line == line_of(warns, "warnings.warn")
        assert "warn" in site.reason + site.explanation


@pytest.mark.parametrize("mode", COMPILING)
def test_warning_of_the_user_names_itself_in_the_error(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(ERROR[mode], match="a warning is emitted"):
            compiled(warns, mode=mode, allow_graph_breaks=0)(x())


# --- 9. Exception types ---


def need_2d(v):
    if v.ndim != 2:
        raise ValueError("need 2-d")
    return v


@pytest.mark.parametrize("budget", [None, 0, True])
@pytest.mark.parametrize("mode", MODES)
def test_value_error_passes_in_every_mode(mode, budget, either_device):
    call = compiled(need_2d, mode=mode, allow_graph_breaks=budget)
    for _ in range(2):
        with pytest.raises(ValueError, match="2-d") as caught:
            call(x())
        assert type(caught.value) is ValueError
    assert call.record.calls == calls(raised=2)
    assert call(torch.ones(2, 2)).shape == (2, 2)


# --- 10. Shape-only code ---


@pytest.mark.parametrize("mode", COMPILING)
@pytest.mark.parametrize(
    ("func", "value"),
    [
        pytest.param(lambda v: v, x(), id="input"),
        pytest.param(lambda v: tuple(v.shape), (4,), id="shape"),
        pytest.param(lambda v: v.ndim + 1, 2, id="number"),
    ],
)
def test_shape_only_code_is_no_failure(func, value, mode):
    call = compiled(func, mode=mode, allow_graph_breaks=0)
    for _ in range(2):
        result = call(x())
        assert type(result) is type(value)
        assert torch.equal(result, value) if isinstance(value, torch.Tensor) else result == value
    assert call.record.calls == calls(traced_empty=2)
    assert call.record.whole == 2
    assert check_compiled(func, (x(),), mode=mode).functions[0].calls == calls(traced_empty=1)


# --- 11. Ten Python floats ---


def scaled(v, s):
    return v * math.exp(s)


@pytest.mark.parametrize("mode", COMPILING)
def test_ten_floats_are_counted_and_the_guard_names_the_argument(mode):
    call = compiled(scaled, mode=mode)
    for n in range(10):
        torch.testing.assert_close(call(x(), n / 10), x() * math.exp(n / 10))
    assert (call.record.compiles, call.record.recompiles) == (10, 9)
    assert len(call.record.recompile_guards) == 9
    assert call.record.recompile_guards[0] == "s == 0.0"
    assert all(guard.startswith("s == 0.") for guard in call.record.recompile_guards)


def test_recompile_budget_names_the_guard():
    call = compiled(scaled, allow_recompiles=1)
    call(x(), 0.5)
    call(x(), 0.25)
    with pytest.raises(RecompileError, match=r"scaled was compiled again 2 times, 1 allowed"):
        call(x(), 0.125)


# --- 12. Wrong power ---


@pytest.mark.parametrize(
    "backend", ["trace", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("mode", MODES)
def test_power_of_minus_one(mode, backend):
    call = compiled(lambda t: (-1) ** t, mode=mode, backend=backend)
    assert call(torch.arange(4)).tolist() == [1, -1, 1, -1]


# --- 13. Order ---


def either_branch(v, broken):
    if broken:
        for _ in range(2):
            v = v / float(v.max())
    return v + 1


@pytest.mark.parametrize("order", [(True, False), (False, True)], ids=["broken-first", "last"])
def test_order_of_branches_changes_nothing(order):
    call = compiled(either_branch)
    values = {True: third + 1, False: x() + 1}
    for broken in order:
        for _ in range(2):
            torch.testing.assert_close(call(x(), broken), values[broken])
    assert call.record.calls == calls(graph_ran=2, frame_skipped=2)
    assert call.record.whole == 2
    assert [(site.line, site.calls) for site in call.record.breaks] == [
        (line_of(either_branch, "float"), 2)
    ]
    assert call.record.graphs == 1


# --- 14. float64 creep ---


@pytest.mark.parametrize("mode", MODES)
def test_numpy_scalar_does_not_widen(mode, either_device):
    def f(v, s):
        return v * s

    result = compiled(f, mode=mode)(x(), np.float64(2.0))
    assert result.dtype == torch.float32
    assert torch.equal(result, x() * 2)


# --- 15. Hidden compute (Dask) ---

DASK = """
    import numpy as np

    def compute(v): return v.sum().compute()
    def as_float(v): return float(v.sum())
    def as_array(v): return np.asarray(v)
    def as_bool(v): return bool(v.sum() > 0)
    def persist(v): return v.persist()
    def twice(v): return float(v.sum()) + float(v.max())
"""


@pytest.mark.parametrize("name", ["compute", "as_float", "as_array", "as_bool", "persist"])
def test_hidden_compute_is_charged(module_of, request_for, name):
    xp = pytest.importorskip("dask.array")
    module = module_of(DASK)
    func = getattr(module, name)
    lazy_xp_function(func)
    with patch_lazy_xp_functions(request_for(module), xp=xp):
        with pytest.raises(AssertionError, match=r"dask\.compute") as caught:
            getattr(module, name)(xp.arange(4))
    where = [(entry.path.name, entry.lineno + 1) for entry in caught.traceback]
    assert ("fg_under_test.py", func.__code__.co_firstlineno) in where  # the line is in view
    assert getattr(module, name) is func


def test_hidden_computes_are_counted(module_of, request_for):
    xp = pytest.importorskip("dask.array")
    module = module_of(DASK)
    lazy_xp_function(module.twice, allow_dask_compute=1)
    with patch_lazy_xp_functions(request_for(module), xp=xp):
        with pytest.raises(AssertionError, match=r"dask\.compute.* 2 times, but only up to 1"):
            module.twice(xp.arange(4))
    lazy_xp_function(module.twice, allow_dask_compute=2)
    with patch_lazy_xp_functions(request_for(module), xp=xp):
        assert module.twice(xp.arange(4)) == 9.0


# --- 16. Default device: what only it can break ---


def test_default_device_is_put_back_and_in_force(default_device_cpu):
    call = compiled(lambda: torch.zeros(2), mode="fullgraph")
    assert torch.equal(call(), torch.zeros(2))
    assert torch.get_default_device() == torch.device("cpu")
    assert torch._GLOBAL_DEVICE_CONTEXT.device_context is not None
    with pytest.raises(NothingCompiledError):
        check_compiled(in_for, (x(),), mode="compile", graph_breaks=True)
    assert torch._GLOBAL_DEVICE_CONTEXT.device_context is not None


def test_modules_of_the_suite_are_left_alone():
    assert "bypassed_library" not in sys.modules
