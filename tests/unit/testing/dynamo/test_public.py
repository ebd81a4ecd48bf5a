"""The watcher on public API alone, for a torch whose internals are not known.

Outcomes, values and lines are right as with the frame hook. Two things are less exact, and said
here where they show: a call that reuses compiled code for inputs never seen before is charged with
every site of the function so far, and the number of graphs of the user's own torch.compile is not
known.
"""

from __future__ import annotations

import importlib.metadata
import threading

import pytest
import torch

from fullgraph.errors import FullGraphError, GraphBreakError
from fullgraph.testing import Outcome, check_compiled, compiled, record
from fullgraph.testing._dynamo import versions, watch


@pytest.fixture(autouse=True)
def unknown_torch(monkeypatch):
    from fullgraph.testing._dynamo import shortcuts

    monkeypatch.setattr(watch, "internals_known", lambda: False)
    monkeypatch.setattr(shortcuts, "internals_known", lambda: False)


def x():
    return torch.arange(4.0)


def line(func, offset):
    return func.__code__.co_firstlineno + offset


def whole(v):
    return v * 2 + 1


def branch(v):
    if v.sum() > 0:
        return v * 2
    return -v


def in_for(v):
    for _ in range(2):
        v = v / float(v.max())
    return v


def in_try(v):
    try:
        return v / float(v.max())
    except ZeroDivisionError:
        return v


def either(v, broken):
    if broken and v.sum() > 0:
        v = v * 2
    return v + 1


def raises(v):
    raise ValueError("mine")


def test_the_hook_is_not_used():
    from torch._dynamo.convert_frame import CatchErrorsWrapper

    before = CatchErrorsWrapper.__call__
    during = []

    def f(v):
        during.append(CatchErrorsWrapper.__call__)
        return v

    compiled(torch._dynamo.disable(f))
    compiled(lambda v: torch._dynamo.disable(f)(v + 1))(x())
    assert during == [before]


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_whole(mode):
    call = compiled(whole, mode=mode, allow_graph_breaks=0)
    for _ in range(3):
        assert torch.equal(call(x()), x() * 2 + 1)
    assert call.record.calls == {Outcome.GRAPH_RAN: 3}
    assert (call.record.whole, call.record.graphs, call.record.graphs_run) == (3, 1, 3)
    assert check_compiled(whole, (x(),), mode=mode).functions[0].whole == 1


@pytest.mark.parametrize(
    ("func", "outcome", "offset"),
    [
        (branch, Outcome.GRAPH_RAN, 1),
        (in_for, Outcome.FRAME_SKIPPED, 2),
        (in_try, Outcome.FRAME_SKIPPED, 2),
    ],
)
def test_breaks_on_every_call(func, outcome, offset):
    call = compiled(func)
    for _ in range(3):
        torch.testing.assert_close(call(x()), func(x()))
    assert call.record.calls == {outcome: 3}
    assert call.record.whole == 0
    assert [(site.line, site.calls) for site in call.record.breaks] == [(line(func, offset), 3)]


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_budgets(mode):
    error = {"compile": GraphBreakError, "fullgraph": FullGraphError}[mode]
    call = compiled(branch, mode=mode, allow_graph_breaks=0)
    for _ in range(2):
        with pytest.raises(error, match=rf"test_public\.py:{line(branch, 1)}"):
            call(x())


def test_sites_belong_to_the_inputs_that_led_to_them():
    call = compiled(either)
    for _ in range(2):
        call(x(), True)
        call(x(), False)
    assert call.record.whole == 2
    assert [site.calls for site in call.record.breaks] == [2]


def test_an_upper_bound_for_reused_code_and_new_inputs():
    call = compiled(either, dynamic=True)
    call(torch.ones(3), True)
    call(torch.ones(3), False)
    call(torch.ones(4), False)  # other inputs; torch says nothing, since it compiles nothing
    (site,) = call.record.breaks
    assert site.calls in (1, 2)  # 1 would be exact


def test_exceptions_limits_and_no_tensors():
    call = compiled(raises)
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            call(x())
    assert call.record.calls == {Outcome.RAISED: 2}
    numbers = compiled(lambda n: n + 1)
    assert numbers(1) == 2
    assert numbers.record.calls == {Outcome.NO_TENSOR: 1}
    limited = compiled(lambda v, key: v + len(key), recompile_limit=2)
    for n in range(4):
        assert torch.equal(limited(x(), "k" * n), x() + n)
    assert limited.record.calls == {Outcome.GRAPH_RAN: 2, Outcome.OVER_LIMIT: 2}
    assert limited.record.recompile_guards == ("key == ''",)


def test_empty_graphs():
    call = compiled(lambda v: v.shape)
    for _ in range(2):
        assert call(x()) == (4,)
    assert call.record.calls == {Outcome.TRACED_EMPTY: 2}


def test_disabled_dynamo():
    call = compiled(whole)
    with torch.compiler.set_stance("force_eager"):
        call(x())
    assert call.record.calls == {Outcome.FRAME_SKIPPED: 1}


def test_threads_inside_a_block_do_not_wait_for_it():
    call = compiled(branch)
    done = []

    def work():
        call(x())
        done.append(1)

    with record() as recording:
        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert len(done) == 3
    assert call.record.calls == {Outcome.GRAPH_RAN: 3}
    assert recording.record["branch"].breaks[0].calls == 3


def test_users_own_compile_is_heard():
    with record() as outer, record() as inner:
        torch.compile(branch, backend="eager")(x())
    for recording in (outer, inner):
        assert [site.line for site in recording.record.breaks] == [line(branch, 1)]


def test_an_unknown_torch_gives_one_notice(monkeypatch):
    monkeypatch.setattr(watch, "internals_known", versions.internals_known)
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "2.99.0" if name == "torch" else real(name)
    )
    versions.torch_release.cache_clear()
    versions.internals_known.cache_clear()
    try:
        call = compiled(whole)
        with pytest.warns(versions.UnknownTorchWarning, match="newer than the newest release"):
            call(x())
        call(x())  # warnings are errors here: it is not said again
        assert call.record.whole == 2
    finally:
        monkeypatch.undo()
        versions.torch_release.cache_clear()
        versions.internals_known.cache_clear()
