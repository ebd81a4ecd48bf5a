"""Loops and branches inside bodies, and small linear algebra."""

from __future__ import annotations

import pytest
import torch

import fullgraph
from fullgraph.errors import UnsupportedBodyError
from fullgraph.native.ir import Nested


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def inside(native):
    """Loops of bodies go to the same adapter."""
    with fullgraph.use_loop_adapter("torch", native.adapter):
        yield native


def test_a_loop_inside(inside, form):
    def inner(c, x):
        n = torch.sin(c * 0.9 + x)
        return n, n * 2

    def body(c, x):
        a, ys = fullgraph.scan(inner, c, x)
        return a * 0.5, ys.sum(0)

    inside.check(body, numbers(4), numbers(5, 3, 4))
    loops = [s.compiled.loop for s in inside.adapter.scan.engine.specialisations()]
    assert any(isinstance(node, Nested) for loop in loops for node in loop.nodes)


def test_a_loop_inside_backwards_over_a_closed_weight(inside):
    weight = numbers(3, 3, seed=3)

    def body(c, x):
        return fullgraph.scan(lambda c, x: (c + weight @ x, None), c, x, reverse=True)[
            0
        ] * 0.1, None

    inside.check(body, numbers(3), numbers(5, 4, 3))


def test_a_loop_in_a_loop_inside(inside):
    def middle(c, x):
        a, _ = fullgraph.scan(lambda c, x: (c * x, None), c, x)
        return a, a

    def body(c, x):
        a, ys = fullgraph.scan(middle, c, x)
        return a.tanh(), ys

    inside.check(body, numbers(3), numbers(4, 3, 2, 3))


def test_a_counting_loop_inside_with_a_tree(inside):
    def body(c, x):
        total = fullgraph.fori_loop(0, 3, lambda i, v: {"a": v["a"] * 0.5 + i, "n": None}, c)
        return {"a": total["a"] + x, "n": None}, c["a"]

    inside.check(body, {"a": numbers(3), "n": None}, numbers(5, 3))


def test_a_loop_inside_does_not_grow_with_its_length(inside):
    body = lambda c, x: (fullgraph.scan(lambda c, x: (c * 0.9 + x, None), c, x)[0], None)
    inside.check(body, numbers(2), numbers(2, 3000, 2))
    for found in inside.adapter.scan.engine.specialisations():
        assert len(found.compiled.program.text) < 5000


def test_branches(inside, form):
    def body(c, x):
        return fullgraph.cond(c.sum() > 0, lambda c: c - x, lambda c: c + x * 2, c), c

    inside.check(body, numbers(3), numbers(9, 3))


def test_the_branch_not_taken_cannot_fail(inside):
    table = numbers(4)

    def body(c, x):
        total, n = c
        new = fullgraph.cond(
            n != 0,
            lambda a, n: (a // n, table[(n + 10).reshape(1)]),
            lambda a, n: (a + n, table[:1]),
            *(total, n),
        )
        return (new[0], x), new[1]

    init = (torch.tensor(100), torch.tensor(0))
    inside.check(body, init, torch.tensor([0, 0, 0]))


def test_a_loop_in_a_branch_is_refused(inside):
    inner = lambda c: fullgraph.scan(lambda c, x: (c + x, None), c, torch.ones(3, 2))[0]
    body = lambda c, x: (fullgraph.cond(x > 0, inner, lambda c: c * 1, c), None)
    with pytest.raises(UnsupportedBodyError, match="a loop inside a branch of cond"):
        inside.run(body, torch.zeros(2), torch.ones(2))


EYE = torch.eye(4, dtype=torch.float64)


def definite(c):
    return c @ c.mT + EYE


SOLVERS = {
    "solve": lambda c, x: (
        torch.linalg.solve(definite(c), x) * 0.5 + c,
        (torch.linalg.solve(definite(x), c[:, 0]), torch.linalg.solve(definite(x), c, left=False)),
    ),
    "inv": lambda c, x: (torch.linalg.inv(definite(c)) + x, None),
    "determinant": lambda c, x: (
        torch.tanh(c + x),
        (torch.linalg.det(c), torch.det(x), torch.linalg.det(c - c)),
    ),
    "cholesky": lambda c, x: (
        torch.linalg.cholesky(definite(c)) * 0.3 + x,
        torch.linalg.cholesky(definite(c), upper=True),
    ),
    "triangular": lambda c, x: (
        torch.linalg.solve_triangular(definite(c).tril(), x, upper=False) * 0.5,
        torch.linalg.solve_triangular(definite(c).triu(), x, upper=True, unitriangular=True),
    ),
    "triangular from the right": lambda c, x: (
        torch.linalg.solve_triangular(definite(c).tril(), x, upper=False, left=False) * 0.5,
        torch.linalg.solve_triangular(definite(c).triu(), x, upper=True, left=False),
    ),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_linear_algebra(native, form, name):
    native.check(SOLVERS[name], numbers(4, 4), numbers(3, 4, 4, seed=1), rtol=1e-9)


@pytest.mark.parametrize("name", ["inv", "determinant", "cholesky"])
def test_linear_algebra_in_batches(native, name):
    native.check(SOLVERS[name], numbers(5, 4, 4), numbers(3, 5, 4, 4, seed=1), rtol=1e-9)


def test_large_matrices_are_refused(native):
    body = lambda c, x: (torch.linalg.inv(c), None)
    with pytest.raises(UnsupportedBodyError, match=r"a matrix of 17 rows; .* up to 16"):
        native.run(body, torch.eye(17), None, length=2)


def test_singular_matrices_raise(native):
    body = lambda c, x: (torch.linalg.inv(c) * 0, None)
    with pytest.raises(Exception, match="singular"):
        native.run(body, torch.eye(3), None, length=3)
