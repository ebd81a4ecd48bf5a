from __future__ import annotations

import threading

import pytest
import torch

from fullgraph.testing import Outcome, Record, check_compiled, compiled, record


def x():
    return torch.arange(4.0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 4)

    def forward(self, v):
        v = self.inner(v)
        if v.sum() > 1e9:
            v = -v
        return v * 2


def own_compile(func, **options):
    return torch.compile(func, backend="eager", **options)


def test_users_own_compile_is_recorded_with_its_breaks():
    def halve(v):
        v = v + 1
        if v.sum() > 0:
            v = v / 2
        return v

    model = own_compile(halve)
    with record() as recording:
        for _ in range(3):
            assert torch.equal(model(x()), (x() + 1) / 2)
    (found,) = recording.record.functions
    assert found.name == f"{__name__}:{halve.__qualname__}"
    assert (found.backend, found.mode) == ("user", "compile")
    assert found.calls == {Outcome.GRAPH_RAN: 3}
    assert (found.whole, found.graphs, found.graphs_run) == (0, 2, 6)
    assert [(s.line, s.calls) for s in found.breaks] == [(halve.__code__.co_firstlineno + 2, 3)]


def test_the_rest_of_a_method_is_the_methods():
    model = own_compile(Model())
    with torch.no_grad(), record() as recording:
        model(x())
    (found,) = recording.record.functions
    assert found.name == f"{__name__}:Model.forward"
    assert found.graphs == 2
    assert found.compiles == 1


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_failing_compile_is_recorded_and_raises_torchs_own(fullgraph):
    torch._dynamo.reset()  # the two cases share their code

    def broken(v):
        return v if v.sum() > 0 else -v

    model = own_compile(broken, fullgraph=fullgraph)
    with record() as recording:
        if fullgraph:
            with pytest.raises(torch._dynamo.exc.TorchDynamoException):
                model(x())
        else:
            model(x())
    (found,) = recording.record.functions
    assert len(found.breaks) == 1
    assert found.calls == {(Outcome.FAILED if fullgraph else Outcome.GRAPH_RAN): 1}


def test_skips_limits_and_empty_calls_of_the_user():
    def in_for(v):
        for _ in range(2):
            v = v / float(v.max())
        return v

    def many(v, key):
        return v + len(key)

    empty, loop = own_compile(lambda v: v), own_compile(in_for)
    limited = own_compile(many, recompile_limit=2, isolate_recompiles=True, dynamic=False)
    with record() as recording:
        empty(x())
        loop(x())
        for n in range(4):
            limited(x(), "k" * n)
    calls = {f.name.rpartition(".")[2]: f.calls for f in recording.record.functions}
    assert calls["in_for"] == {Outcome.FRAME_SKIPPED: 1}
    assert calls["<lambda>"] == {Outcome.TRACED_EMPTY: 1}
    assert calls["many"][Outcome.GRAPH_RAN] == 2
    assert calls["many"][Outcome.OVER_LIMIT] >= 1  # torch itself asks no more after the first


def test_our_own_calls_are_in_it_too():
    with record() as recording:
        compiled(lambda v: v + 1, mode="fullgraph")(x())
        check_compiled(torch.nn.functional.gelu, (x(),))
    assert {r.backend for r in recording.record.functions} == {"trace"}
    assert sum(r.whole for r in recording.record.functions) == 2


def test_nothing_outside_of_the_block():
    call, own = compiled(lambda v: v + 1), own_compile(lambda v: v + 1)
    call(x())
    with record() as recording:
        pass
    call(x())
    own(x())
    assert recording.record.functions == ()
    assert recording.record == Record((), (), torch.__version__)


def test_record_so_far():
    with record() as recording:
        compiled(lambda v: v + 1)(x())
        first = recording.record
        compiled(lambda v: v + 2)(x())
    assert sum(r.total_calls for r in first.functions) == 1
    assert sum(r.total_calls for r in recording.record.functions) == 2


def test_nested_blocks_both_see_what_happens_in_the_inner():
    def one(v):
        return v + 1

    def two(v):
        return v + 2

    mine, ours = own_compile(one), compiled(two)
    with record() as outer:
        with record() as inner:
            mine(x())
            ours(x())
        mine(x())
        ours(x())
    for name in ("one", "two"):
        for recording, expected in ((inner, 1), (outer, 2)):
            (found,) = [r for r in recording.record.functions if r.name.endswith(name)]
            assert found.total_calls == expected


def test_an_exception_closes_the_block():
    def fails():
        with record() as recording:
            compiled(lambda v: v + 1)(x())
            seen.append(recording)
            raise ValueError("stop")

    seen = []
    with pytest.raises(ValueError, match="stop"):
        fails()
    (recording,) = seen
    assert recording.record.graphs == 1
    compiled(lambda v: v + 1)(x())
    assert recording.record.graphs == 1
    from torch._dynamo.convert_frame import CatchErrorsWrapper

    from fullgraph.testing._dynamo import calls
    from fullgraph.testing._tally import _open

    assert not calls._ambient
    assert not _open
    assert CatchErrorsWrapper.__call__.__module__ == "torch._dynamo.convert_frame"


def test_user_exceptions_inside_own_compile():
    def fails(v):
        raise KeyError("mine")

    model = own_compile(fails)
    with record() as recording, pytest.raises(KeyError, match="mine"):
        model(x())
    assert recording.record.graphs_run == 0


def test_threads():
    functions = [own_compile(lambda v, n=n: v * n) for n in range(3)]
    ours = compiled(lambda v: v - 1)
    results = []

    def work(n):
        for _ in range(5):
            results.append((n, functions[n](x()), ours(x())))

    with record() as recording:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 15
    assert all(torch.equal(r, x() * n) and torch.equal(s, x() - 1) for n, r, s in results)
    by_backend = {}
    for found in recording.record.functions:
        by_backend[found.backend] = by_backend.get(found.backend, 0) + found.total_calls
    assert by_backend == {"user": 15, "trace": 15}


def test_settings_of_the_users_own_compile_are_not_touched():
    seen = []

    def backend(graph, inputs):
        config = torch._dynamo.config
        seen.append((config.trace_numpy, config.accumulated_recompile_limit))
        return graph

    before = (torch._dynamo.config.trace_numpy, torch._dynamo.config.accumulated_recompile_limit)
    with record():
        torch.compile(lambda v: v + 1, backend=backend)(x())
    assert seen == [before]


def test_breaks_in_a_package(module_of, tmp_path):
    library = module_of(
        "def guilty(v):\n    return v if v.sum() > 0 else -v\n", "fg_guilty_library"
    )

    def innocent(v):
        return library.guilty(v) * 2

    with record() as recording:
        own_compile(innocent)(x())
    assert len(recording.record.breaks) == 1
    assert recording.record.breaks_in("fg_guilty_library") == list(recording.record.breaks)
    assert recording.record.breaks_in(str(tmp_path)) == list(recording.record.breaks)
    assert recording.record.breaks_in("torch") == []
    assert recording.record.breaks_in("fullgraph") == []
    (site,) = recording.record.breaks
    assert site.callers
    assert site.callers[-1].endswith("innocent")
