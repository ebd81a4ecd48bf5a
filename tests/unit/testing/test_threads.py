"""Several threads call compiled functions: each call's value and record are right."""

from __future__ import annotations

import threading

import pytest
import torch

from fullgraph.testing import Outcome, compiled

THREADS, CALLS = 4, 12


def run(work):
    errors = []
    barrier = threading.Barrier(THREADS)

    def guarded(n):
        try:
            barrier.wait()
            work(n)
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def whole(v, n):
    return (v * 2 + n).sum()


def broken(v, n):
    v = v + n
    if v.sum() > 0:
        v = v * 2
    return v.sum()


def skipped(v, n):
    for _ in range(2):
        v = v + float(v.max())
    return v.sum() + n


def raises(v, n):
    raise ValueError(f"{n}")


@pytest.mark.parametrize("backend", ["trace", "aot_eager"])
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_one_function(mode, backend):
    call = compiled(whole, mode=mode, backend=backend)

    def work(n):
        for k in range(CALLS):
            v = torch.full((4,), float(k + 1))
            assert call(v, n).item() == 4 * (2 * (k + 1) + n)

    run(work)
    found = call.record
    assert found.calls == {Outcome.GRAPH_RAN: THREADS * CALLS}
    assert found.whole == found.graphs_run == THREADS * CALLS
    # Torch may overlook compiled code while other threads add to it, and compile it again.
    assert len({item.signature for item in found.specialisations}) == THREADS
    assert not found.breaks


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_what_all_need_at_once_counts_once(mode):
    """Torch asks whether there is compiled code before it waits for its turn to compile."""
    call = compiled(whole, mode=mode, allow_recompiles=0)
    run(lambda _n: call(torch.ones(4), 1))
    assert call.record.calls == {Outcome.GRAPH_RAN: THREADS}
    assert call.record.compiles == 1
    assert call.record.recompile_guards == ()


def test_breaks_are_charged_to_each_call():
    call = compiled(broken)

    def work(n):
        for _ in range(CALLS):
            assert call(torch.ones(4), n).item() == 8 * (1 + n)

    run(work)
    found = call.record
    assert found.calls == {Outcome.GRAPH_RAN: THREADS * CALLS}
    assert found.whole == 0
    (site,) = found.breaks
    assert site.calls == THREADS * CALLS
    assert found.graphs_run == 2 * THREADS * CALLS


def test_different_functions_at_once():
    functions = [compiled(f) for f in (whole, broken, skipped, raises)]

    def work(n):
        for k in range(CALLS):
            v = torch.full((4,), float(k + 1))
            if n == 3:
                with pytest.raises(ValueError, match="3"):
                    functions[n](v, n)
            else:
                expected = (whole, broken, skipped)[n](v, n)
                assert torch.equal(functions[n](v, n), expected)

    run(work)
    outcomes = [f.record.calls for f in functions]
    assert outcomes[0] == {Outcome.GRAPH_RAN: CALLS}
    assert outcomes[1] == {Outcome.GRAPH_RAN: CALLS}
    assert outcomes[2] == {Outcome.FRAME_SKIPPED: CALLS}
    assert outcomes[3] == {Outcome.RAISED: CALLS}
    assert [f.record.whole for f in functions] == [CALLS, 0, 0, 0]


def test_the_interpreter_keeps_values_apart():
    """A long graph, run by all threads at the same time with inputs of their own."""

    def long(v):
        for _ in range(30):
            v = (v + 1) * 0.5
        return v

    call = compiled(long)
    expected = {n: long(torch.full((64, 64), float(n))) for n in range(THREADS)}
    call(torch.zeros(64, 64))

    def work(n):
        for _ in range(CALLS):
            assert torch.equal(call(torch.full((64, 64), float(n))), expected[n])

    run(work)
    assert call.record.graphs == 1
    assert call.record.graphs_run == THREADS * CALLS + 1
