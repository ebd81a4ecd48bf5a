"""A compiled call that is made eagerly too."""

from __future__ import annotations

import random
import warnings

import pytest
import torch

from fullgraph.errors import GraphBreakError, MismatchError
from fullgraph.testing import Mode
from fullgraph.testing._alongside import call_both
from fullgraph.testing._progress import in_progress, longest_running, while_running
from fullgraph.testing._torch_call import CompiledCall


def both(func, compiled, *args, **kwargs):
    return call_both(func, lambda a, k: compiled(*a, **k), args, kwargs, name="m:f", owner=func)


def test_the_compiled_result_is_returned_and_side_effects_happen_once():
    calls = []

    def double(x):
        calls.append(torch.is_tensor(x))
        x *= 2
        return x

    x = torch.ones(2)
    assert both(double, double, x) is x
    assert x.tolist() == [2, 2]
    assert len(calls) == 1  # what the eager call appended is taken back


def test_both_see_the_same_random_numbers():
    def draw(x):
        return x + torch.rand(3) + random.random()

    both(draw, draw, torch.ones(3))


@pytest.mark.parametrize(
    ("compiled", "problem"),
    [
        (lambda x: x + 1, r"m:f: compiled and eager differ in result"),
        (lambda x: x.double(), r"compiled has dtype torch.float64, eager torch.float32"),
        (lambda x: x.add_(0) and None, r"differ in result"),
    ],
)
def test_what_differs_is_named(compiled, problem):
    with pytest.raises(MismatchError, match=problem):
        both(lambda x: x, compiled, torch.ones(1))


def test_arguments_changed_by_one_alone():
    with pytest.raises(MismatchError, match="differ in argument"):
        both(lambda x: 1, lambda x: [x.zero_(), 1][1], torch.ones(2))


def fail(error):
    def func(x):
        raise error

    return func


def test_exceptions_must_be_of_one_type():
    with pytest.raises(KeyError):
        both(fail(KeyError("a")), fail(KeyError("a")), torch.ones(1))
    with pytest.raises(MismatchError, match="eager raises KeyError: 'a', compiled returns"):
        both(fail(KeyError("a")), lambda x: x, torch.ones(1))
    with pytest.raises(MismatchError, match="eager returns, compiled raises ValueError: b"):
        both(lambda x: x, fail(ValueError("b")), torch.ones(1))


def test_a_verdict_on_the_capture_comes_first():
    with pytest.raises(GraphBreakError):
        both(lambda x: x, fail(GraphBreakError("broken")), torch.ones(1))


def test_a_call_that_is_given_an_iterator_is_made_once():
    assert both(lambda it: 0, lambda it: sum(it), iter([1, 2])) == 3


def test_warnings_are_those_of_the_compiled_call():
    def warn(x):
        warnings.warn("careful", UserWarning, stacklevel=1)
        return x

    with pytest.warns(UserWarning, match="careful") as caught:
        both(warn, warn, torch.ones(1))
    assert len(caught) == 1


def test_the_outermost_running_call_is_known():
    log = []

    class Around:
        def __enter__(self):
            log.append("in")

        def __exit__(self, *_):
            log.append("out")

    while_running.append(Around)
    try:
        with in_progress("m:outer"), in_progress("m:inner"):
            seconds, name = longest_running()
    finally:
        while_running.remove(Around)
    assert name == "m:outer"
    assert seconds >= 0
    assert log == ["in", "out"]
    assert longest_running() is None


def test_what_a_callable_carries_is_put_back_between_the_calls():
    seen: list[int] = []
    total = torch.zeros(2)

    def f(v):
        seen.append(len(seen))
        total.add_(1)
        return v + len(seen)

    call = CompiledCall(f, Mode.COMPILE, compare=True)
    assert call((torch.zeros(2),), {}).tolist() == [1, 1]
    assert seen == [0]
    assert total.tolist() == [1, 1]
