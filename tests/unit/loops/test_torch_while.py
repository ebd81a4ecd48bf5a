"""`while_loop` inside a user's own torch.compile is one graph."""

from __future__ import annotations

import threading

import pytest
import torch

import fullgraph
import fullgraph.errors
from fullgraph.loops import _torch_while
from fullgraph.testing import check_compiled


def newton(a):
    return fullgraph.while_loop(
        lambda x: torch.max(torch.abs(x * x - a)) > 1e-6, lambda x: (x + a / x) / 2, a
    )


def newton_bounded(a):
    start = {"x": a, "n": 0, "unused": None}
    return fullgraph.while_loop(
        lambda s: torch.max(torch.abs(s["x"] * s["x"] - a)) > 1e-6,
        lambda s: {"x": (s["x"] + a / s["x"]) / 2, "n": s["n"] + 1, "unused": None},
        start,
        max_steps=20,
    )


def passed_through(a):
    return fullgraph.while_loop(
        lambda s: s[0].sum() < 20, lambda s: (s[0] + s[1], s[1], s[1]), (a, a, a)
    )


def no_steps(a):
    return fullgraph.while_loop(lambda x: x.sum() > 1e9, lambda x: x * 2, a)


def python_loop(a):
    x = a
    while torch.max(torch.abs(x * x - a)) > 1e-6:
        x = (x + a / x) / 2
    return x


A = torch.tensor([2.0, 3.0])


@pytest.mark.parametrize("mode", ["fullgraph", "compile"])
@pytest.mark.parametrize("func", [newton, newton_bounded, passed_through, no_steps])
def test_one_graph_equal_to_eager(func, mode):
    record = check_compiled(func, (A,), mode=mode, graph_breaks=0)
    assert record.graphs == 1
    assert record.breaks == ()


def test_the_python_loop_that_it_replaces_breaks_the_graph():
    record = check_compiled(python_loop, (A,), mode="compile", graph_breaks=True)
    assert len(record.breaks) == 1
    assert record.functions[0].whole == 0


def test_bounded_reports_steps_and_whether_the_condition_ended_it():
    compiled = torch.compile(newton_bounded, backend="aot_eager", fullgraph=True)
    state, steps, done = compiled(A)
    plain = newton_bounded(A)
    assert (int(steps), bool(done)) == (int(plain.steps), bool(plain.done)) == (4, True)
    assert int(state["n"]) == 4
    assert state["unused"] is None
    assert steps.dtype == plain.steps.dtype
    assert state["n"].dtype == plain.state["n"].dtype

    def cut(a):
        return fullgraph.while_loop(lambda x: x.sum() > 0, lambda x: x / 2, a, max_steps=3)

    state, steps, done = torch.compile(cut, backend="aot_eager", fullgraph=True)(A)
    assert (int(steps), bool(done)) == (3, False)
    assert torch.equal(state, A / 8)


def test_gradient_of_the_bounded_form():
    def loss(a):
        return newton_bounded(a).state["x"].sum()

    record = check_compiled(loss, (A,), backend="aot_eager", grad=True)
    assert record.graphs == 1


def test_condition_known_while_tracing_unrolls():
    def counted(a):
        return fullgraph.while_loop(
            lambda s: s.shape[0] < 3 and False, lambda s: s, a
        )  # decided by the shape

    assert check_compiled(counted, (A,)).graphs == 1


def test_without_the_operator_the_plain_loop_runs_and_breaks(monkeypatch):
    monkeypatch.setattr(_torch_while, "_operator", None)
    torch._dynamo.reset()
    record = check_compiled(newton, (A,), mode="compile", graph_breaks=True)
    assert record.functions[0].whole == 0


def test_other_threads_stay_plain_while_one_compiles():
    """torch says "compiling" in all threads while one of them traces."""
    results, stop = [], threading.Event()

    def plain():
        while not stop.is_set():
            results.append(fullgraph.cond(A.sum() > 0, lambda v: v + 1, lambda v: v, A))
            with pytest.raises(fullgraph.errors.InPlaceUpdateError):
                fullgraph.scan(lambda c, x: (c.add_(x), None), torch.zeros(2), torch.ones(3, 2))

    thread = threading.Thread(target=plain)
    thread.start()
    try:
        for k in range(4):
            torch.compile(lambda a, k=k: newton(a) + k, backend="eager", fullgraph=True)(A)
    finally:
        stop.set()
        thread.join()
    assert results
    assert all(torch.equal(result, A + 1) for result in results)


def views_closed_over(a):
    first = a[:1]
    return fullgraph.while_loop(lambda x: x.sum() < 20, lambda x: x + first + a, a)


def test_what_shares_memory_and_is_closed_over_is_refused_with_the_way_out():
    with pytest.raises(fullgraph.errors.FullGraphError, match="do not support aliasing") as caught:
        check_compiled(views_closed_over, (A,))
    assert "copy one of them before" in str(caught.value)
