"""Closures of one code whose functions share a variable, or do not."""

from __future__ import annotations

import itertools

import pytest
import torch

from fullgraph.native.cells import shared_cells
from fullgraph.torch_loop import torch_native_loop_adapter


def readers(value):
    """Return two functions of one code and one variable."""
    return tuple([lambda: value for _ in range(2)])


def body_of(first, second):
    return lambda c, x: (c * first() + second() * x, c)


def one_variable(a, _):
    return body_of(*readers(a))


def two_variables(a, b):
    return body_of(readers(a)[0], readers(b)[0])


def one_function(a, _):
    reader = readers(a)[0]
    return body_of(reader, reader)


MAKERS = {"one": one_variable, "two": two_variables, "same": one_function}


def test_patterns():
    assert shared_cells(two_variables(1, 2)) == ()
    assert len(set(shared_cells(one_variable(1, 2)))) == 3
    assert shared_cells(print) == ()


def test_functions_that_call_themselves_come_to_an_end():
    def again(n):
        return again(n - 1) if n else 0

    assert shared_cells(again) == (0, 0)


@pytest.mark.parametrize("order", list(itertools.permutations(MAKERS)), ids="-".join)
@pytest.mark.parametrize("kind", ["numbers", "tensors"])
def test_none_is_served_what_was_compiled_for_another(order, kind):
    scan = torch_native_loop_adapter().scan
    init, xs = torch.ones(3, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    for name, (a, b) in itertools.product(order, [(2.0, 3.0), (3.0, 2.0), (2.0, 2.0)]):
        if kind == "tensors":
            a, b = (torch.tensor(v, dtype=torch.float64) for v in (a, b))
        body = MAKERS[name](a, b)
        expected = init
        for x in xs:
            expected = body(expected, x)[0]
        for _ in range(3):
            assert torch.equal(scan(body, init, xs)[0], expected)
