"""A body of a compiled loop that writes into what it closes over is refused, not run wrongly."""

import threading

import pytest

torch = pytest.importorskip("torch")

import fullgraph  # noqa: E402
from fullgraph.errors import (  # noqa: E402
    InPlaceUpdateError,
    LoopCompilationError,
    UnsupportedLoopError,
)
from fullgraph.torch_loop import torch_compile_loop_adapter  # noqa: E402


@pytest.fixture
def no_compilation(monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("compiled")

    monkeypatch.setattr(torch._inductor, "compile", forbidden)


def assigned(w, t):
    w[0] = t[0]


def augmented(w, t):
    w += t


WRITES = {
    "method": lambda w, t: w.add_(t),
    "assigned": assigned,
    "augmented": augmented,
    "through a view": lambda w, t: w[:1].mul_(2),
    "out": lambda w, t: torch.add(w, t, out=w),
    "inplace flag": lambda w, t: torch.nn.functional.relu(w, inplace=True),
}


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_tensors_closed_over(write):
    weight = torch.zeros(2)

    def body(c, x):
        write(weight, c)
        return c + x, None

    with (
        fullgraph.use_loop_adapter("torch", torch_compile_loop_adapter()),
        pytest.raises(UnsupportedLoopError, match=r"writes into a tensor of shape .* closes over"),
    ):
        fullgraph.scan(body, torch.ones(2), torch.ones(3, 2))
    assert weight.tolist() == [0, 0]


@pytest.mark.usefixtures("no_compilation")
def test_loans_keep_their_own_message():
    with (
        fullgraph.use_loop_adapter("torch", torch_compile_loop_adapter()),
        pytest.raises(InPlaceUpdateError, match="the body writes into its carry or into x"),
    ):
        fullgraph.scan(lambda c, x: (c.add_(x), None), torch.ones(2), torch.ones(3, 2))


def test_tensors_of_the_body_may_be_written(monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda module, _inputs: module)

    def body(c, x):
        mine = c.clone()
        mine += x
        mine[0] = 2
        return mine.mul_(2), torch.add(mine, 1, out=torch.empty(2))

    init, xs = torch.ones(2), torch.ones(3, 2)
    want = fullgraph.scan(body, init, xs)
    with fullgraph.use_loop_adapter("torch", torch_compile_loop_adapter()):
        found = fullgraph.scan(body, init, xs)
    assert torch.equal(found[0], want[0])
    assert torch.equal(found[1], want[1])


def test_nothing_runs_plainly_while_another_thread_compiles(monkeypatch):
    monkeypatch.setattr(torch._inductor, "compile", lambda module, _inputs: module)
    started, done = threading.Event(), threading.Event()

    def slow_backend(graph, _inputs):
        started.set()
        assert done.wait(20)
        return graph.forward

    other = threading.Thread(
        target=lambda: torch.compile(lambda v: v + 1, backend=slow_backend)(torch.ones(2))
    )

    def body(c, x):
        return c + x, None

    init, xs = torch.zeros(2), torch.ones(3, 2)

    def in_place(c, x):
        return c.add_(x), None

    other.start()
    assert started.wait(20)
    try:
        with pytest.raises(InPlaceUpdateError):  # of the eager loop
            fullgraph.scan(in_place, init, xs)
        adapter = torch_compile_loop_adapter(max_steps=2)
        with (
            fullgraph.use_loop_adapter("torch", adapter),
            torch.compiler.set_stance("force_eager"),
            pytest.raises(LoopCompilationError, match="did not compile this call"),
        ):
            fullgraph.scan(body, init, xs[:2])
    finally:
        done.set()
        other.join()
