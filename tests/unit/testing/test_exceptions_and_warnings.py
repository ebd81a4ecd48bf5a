"""What user code raises and warns comes out as in eager mode; torch's own notices do not."""

from __future__ import annotations

import contextlib
import threading
import warnings

import numpy as np
import pytest
import torch

from fullgraph.errors import FullGraphError, GraphBreakError, MismatchError
from fullgraph.testing import Outcome, check_compiled, compiled
from fullgraph.testing._dynamo import backends
from fullgraph.testing._dynamo.tracing import quiet_notices

MODES = ["eager", "compile", "fullgraph"]


def x():
    return torch.arange(4.0)


class Own(Exception):
    pass


def plain(v):
    raise Own("mine")


def after_a_graph(v):
    v = v + 1
    if v.sum() > 0:
        raise Own("mine")
    return v


def in_for(v):
    for n in range(3):
        if n == 1:
            raise Own("mine")
        v = v + 1
    return v


def from_a_callee(v):
    return plain(v * 2)


def chained(v):
    try:
        raise KeyError("below")
    except KeyError as error:
        raise Own("mine") from error


def in_generator(v):
    yield v
    raise Own("mine")


class Raises:
    def method(self, v):
        raise Own("mine")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", [None, 0])
@pytest.mark.parametrize(
    "func",
    [plain, after_a_graph, in_for, from_a_callee, chained, in_generator, Raises().method],
)
def test_a_users_exception_comes_out_as_itself(func, mode, budget):
    call = compiled(func, mode=mode, allow_graph_breaks=budget)
    for _ in range(2):
        with pytest.raises(Own, match="mine") as caught:
            list(call(x())) if mode == "eager" else call(x())
        assert type(caught.value) is Own
        if func is chained:
            assert isinstance(caught.value.__cause__, KeyError)
    if func is not in_generator or mode != "eager":
        assert call.record.calls == {Outcome.RAISED: 2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("func", "error"),
    [
        (lambda v: v @ torch.ones(3), RuntimeError),
        (lambda v: v.reshape(3), RuntimeError),
        (lambda v: v[7], IndexError),
        (lambda v: v.no_such, AttributeError),
        (lambda v: {}["k"], KeyError),
        (lambda v: torch.ones(2, dtype="float"), TypeError),
        (lambda v: 1 / 0, ZeroDivisionError),
    ],
)
def test_errors_of_operators_keep_their_eager_type(func, error, mode):
    with pytest.raises(error) as caught:
        compiled(func, mode=mode, allow_graph_breaks=0)(x())
    assert type(caught.value).__module__ != "torch._dynamo.exc"


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_no_exception_type_of_torch_escapes(mode):
    def f(v):
        return v if v.sum() > 0 else -v

    with pytest.raises((FullGraphError, GraphBreakError)) as caught:
        compiled(f, mode=mode, allow_graph_breaks=0)(x())
    if mode == "fullgraph":
        assert type(caught.value.__cause__).__name__ == "UserError" or isinstance(
            caught.value.__cause__, Exception
        )


@pytest.mark.parametrize("mode", MODES)
def test_keyboard_interrupt_leaves_nothing_open(mode):
    def f(v):
        raise KeyboardInterrupt

    call = compiled(f, mode=mode)
    with pytest.raises(KeyboardInterrupt):
        call(x())
    assert compiled(lambda v: v + 1)(x()).sum() == 10
    from fullgraph.testing._dynamo import calls, watch

    assert not calls.inside_call()
    assert watch._frames._users == 0


def test_hook_is_taken_away_after_every_call():
    from torch._dynamo.convert_frame import CatchErrorsWrapper

    before = CatchErrorsWrapper.__call__
    compiled(lambda v: v + 1)(x())
    with pytest.raises(Own):
        compiled(plain)(x())
    assert CatchErrorsWrapper.__call__ is before


def test_sites_say_how_many_of_their_calls_raised():
    def f(v):
        if v.sum() > 0:
            raise Own("mine")
        return v + 1

    call = compiled(f)
    call(-x())
    for _ in range(2):
        with pytest.raises(Own):
            call(x())
    (site,) = [site for site in call.record.breaks if "branching" in site.reason]
    assert (site.calls, site.raised, site.only_raised) == (3, 2, False)
    fresh = compiled(f)
    with pytest.raises(Own):
        fresh(x())
    assert all(site.only_raised for site in fresh.record.breaks)
    assert ", which raised" in str(fresh.record)


# --- What an operator raises when a graph runs: outside of the `try` around it in the source ---


def turned_into_another(v, size):
    try:
        return torch.nn.functional.one_hot(v, size)
    except RuntimeError as error:
        raise IndexError("out of bounds") from error


def caught(v, size):
    try:
        return torch.nn.functional.one_hot(v, size)
    except RuntimeError:
        return torch.zeros(len(v), size)


def let_through(v, size):
    return torch.nn.functional.one_hot(v, size)


def after_a_break(v, size):
    if v.sum() > 1000:
        return v
    return turned_into_another(v, size)


COMPILED = ["compile", "fullgraph"]


def good():
    return torch.tensor([0, 1])


def bad():
    return torch.tensor([0, 7])


@pytest.mark.parametrize("warm", [False, True], ids=["traced", "reused"])
@pytest.mark.parametrize("backend", ["trace", "aot_eager"])
@pytest.mark.parametrize("mode", COMPILED)
@pytest.mark.parametrize(
    ("func", "error"),
    [(turned_into_another, IndexError), (let_through, RuntimeError), (after_a_break, IndexError)],
)
def test_what_eager_raises_is_raised(func, error, mode, backend, warm):
    call = compiled(func, mode=mode, backend=backend)
    if warm:
        call(good(), 3)
    with pytest.raises(error) as raised:
        call(bad(), 3)
    assert type(raised.value) is error
    assert call.record.calls[Outcome.RAISED] == 1
    said = "the graph raised RuntimeError where eager code raises IndexError"
    assert call.record.failures == ({said: 1} if error is IndexError else {})


@pytest.mark.parametrize("warm", [False, True], ids=["traced", "reused"])
@pytest.mark.parametrize("mode", COMPILED)
def test_what_only_compiled_code_raises_is_a_mismatch(mode, warm):
    call = compiled(caught, mode=mode, allow_graph_breaks=True)
    if warm:
        call(good(), 3)
    with pytest.raises(MismatchError, match="eager code returns, compiled code raises") as raised:
        call(bad(), 3)
    assert "must be smaller than num_classes" in str(raised.value)
    line = caught.__code__.co_firstlineno + 2
    assert f"test_exceptions_and_warnings.py:{line} in caught" in str(raised.value)
    assert type(raised.value.__cause__) is RuntimeError
    assert call.record.calls[Outcome.FAILED] == 1
    assert any("when the graph ran" in reason for reason in call.record.failures)


@pytest.mark.parametrize("warm", [False, True], ids=["traced", "reused"])
@pytest.mark.parametrize("mode", COMPILED)
def test_what_a_graph_changed_before_it_raised_is_put_back(mode, warm):
    def f(v, counts, size):
        counts.add_(1)
        noise = torch.rand(2)
        return turned_into_another(v, size) * noise[:, None]

    call = compiled(f, mode=mode)
    counts = torch.zeros(2)
    if warm:
        call(good(), counts, 3)
        counts.zero_()
    torch.manual_seed(3)
    with pytest.raises(IndexError):
        call(bad(), counts, 3)
    after = torch.rand(1)
    assert counts.tolist() == [1, 1]  # as an eager call leaves it: once, not twice
    torch.manual_seed(3)
    torch.rand(2)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.parametrize(
    ("func", "snapshots"),
    [(lambda v: v * 2, 0), (lambda v: v.add_(1), 1), (lambda v: v + torch.rand(4), 1)],
    ids=["changes nothing", "in place", "random"],
)
def test_reused_graphs_are_remembered_by_what_they_change(func, snapshots, monkeypatch):
    from fullgraph.testing import _attempt

    call = compiled(func)
    call(x())
    taken = []
    real = _attempt.Snapshot
    monkeypatch.setattr(_attempt, "Snapshot", lambda *a: taken.append(1) or real(*a))
    call(x())
    assert len(taken) == snapshots


def test_whoever_compares_sees_what_compiled_code_raises():
    with pytest.raises(MismatchError, match=r"eager raises IndexError.*compiled raises RuntimeErr"):
        check_compiled(turned_into_another, (bad(), 3))


def test_nothing_is_called_twice_if_no_graph_raised():
    times = []

    def f(v):
        torch._dynamo.graph_break()
        times.append(1)
        raise Own("mine")

    with pytest.raises(Own):
        compiled(f)(x())
    assert times == [1]  # no graph raised: nothing is called twice


# --- Warnings ---


def warns_twice(v):
    warnings.warn("first", UserWarning, stacklevel=1)
    v = v + 1
    warnings.warn("second", DeprecationWarning, stacklevel=1)
    return v


@pytest.mark.parametrize("mode", MODES)
def test_warnings_of_the_user_are_visible_in_order(mode):
    call = compiled(warns_twice, mode=mode)
    for _ in range(2):
        with pytest.warns() as caught:
            assert torch.equal(call(x()), x() + 1)
        assert [str(w.message) for w in caught] == ["first", "second"]
        assert all(w.filename == __file__ for w in caught)


@pytest.mark.parametrize("mode", MODES)
def test_warnings_of_the_user_are_errors_where_asked(mode):
    call = compiled(warns_twice, mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="first"):
            call(x())
    assert call.record.calls == {Outcome.RAISED: 1}


@pytest.mark.parametrize("mode", MODES)
def test_numpy_warnings_of_user_code_are_visible(mode):
    def f(v):
        np.log(np.zeros(1))
        return v + 1

    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert torch.equal(compiled(f, mode=mode)(x()), x() + 1)


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("where", ["tracing", "backend"])
def test_notices_of_torch_about_itself_are_silent(mode, where, monkeypatch):
    """Simulated: newer Pythons make torch deprecate its own `torch.jit` while it compiles."""
    given = []

    def notice():
        code = compile(
            "import warnings\n"
            "warnings.warn('`torch.jit.script` is deprecated.', DeprecationWarning)\n",
            torch.jit.__file__,
            "exec",
        )
        exec(code, {"__name__": "torch.jit._script"})
        given.append(1)

    if where == "tracing":
        from torch._dynamo import convert_frame

        hook = convert_frame.register_bytecode_hook(lambda *_: notice())
    else:
        interpreter = backends.program

        def noisy(graph, inputs):
            notice()
            return interpreter(graph, inputs)

        monkeypatch.setattr(backends, "program", noisy)
        hook = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            call = compiled(lambda v: v + 1, mode=mode, allow_graph_breaks=0)
            assert torch.equal(call(x()), x() + 1)
            assert given
            with pytest.raises(DeprecationWarning):  # only then is it silent
                notice()
    finally:
        if hook is not None:
            hook.remove()
    assert call.record.whole == 1


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_notice_of_the_lru_cache(mode):
    import functools

    @functools.lru_cache
    def cached(n):
        return n + 1

    def f(v):
        return v + cached(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled(f, mode=mode, allow_graph_breaks=0)(x()), x() + 2)


@pytest.mark.parametrize("func", [lambda v: v + 1, warns_twice, after_a_graph])
def test_filters_are_exactly_as_before(func):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="first|second")
        before = list(warnings.filters)
        with contextlib.suppress(Own):
            compiled(func)(x())
        assert warnings.filters == before


def test_filters_that_others_add_meanwhile_stay():
    with warnings.catch_warnings():
        before = list(warnings.filters)
        with quiet_notices():
            with quiet_notices():
                warnings.filterwarnings("ignore", message="added meanwhile")
            ours = [f for f in warnings.filters if f not in before]
            assert len(ours) == 3  # two of the outer context, which is still in force
        assert [f for f in warnings.filters if f not in before] == [
            f for f in ours if f[1] is not None and f[1].pattern == "added meanwhile"
        ]


def test_filters_survive_threads_that_compile():
    with warnings.catch_warnings():
        before = list(warnings.filters)

        def work(n):
            compiled(lambda v: v + n)(x())

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert warnings.filters == before


def test_logs_stay_quiet_about_settings_that_are_ours(caplog, capfd):
    def f(v, n):
        return v * v.sum().item() + n

    call = compiled(f, recompile_limit=1)
    for n in range(3):
        call(x(), str(n).__len__() + n)
    assert call.record.partly_over_limit == 2
    assert "capture_scalar_outputs" not in caplog.text + capfd.readouterr().err
    assert "recompile_limit" not in caplog.text


def test_handlers_of_pytest_are_back_on_the_trace_logger():
    import logging

    logger = logging.getLogger("torch.__trace")
    before = list(logger.handlers)
    check_compiled(lambda v: v + 1, (x(),))
    assert logger.handlers == before


@pytest.mark.parametrize("mode", MODES)
def test_exceptions_beyond_exception_are_counted(mode):
    def f(v):
        pytest.skip("not today")
        return v

    call = compiled(f, mode=mode)
    with pytest.raises(pytest.skip.Exception, match="not today"):
        call(torch.ones(2))
    assert call.record.calls == {Outcome.RAISED: 1}
