"""Gradients of native loops against those of the plain loop."""

from __future__ import annotations

import pytest
import torch

from fullgraph.errors import GradientRefusedError


def leaf(*shape, seed=0, dtype=torch.float64, grad=True):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("reverse", [False, True])
def test_carry_rows_and_closed_over_tensors(native, form, reverse, dtype):
    weight, bias = leaf(3, 3, dtype=dtype), leaf(3, seed=1, dtype=dtype)

    def body(c, x):
        n = torch.tanh(weight @ c + x * bias)
        return n, (n, n.sum())

    native.gradients(
        body,
        leaf(3, seed=2, dtype=dtype),
        leaf(6, 3, seed=3, dtype=dtype),
        closed=[weight, bias],
        reverse=reverse,
    )


def test_the_number_of_steps_is_not_compiled_in(native):
    weight = leaf(2)
    body = lambda c, x: (torch.sin(c * weight) + x, c)
    for steps in (1, 2, 7, 0, 100):
        native.gradients(body, leaf(2, seed=1), leaf(steps, 2), closed=[weight])
    assert native.compiled == 1


LOSSES = {
    "carry only": lambda results: results[0].sum(),
    "ys only": lambda results: results[1].sum(),
    "one step": lambda results: results[1][2].sum(),
    "squares": lambda results: (results[1] ** 2).sum() + results[0].prod(),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_cotangents_that_are_absent_expanded_or_sparse(native, loss):
    weight = leaf(4)
    body = lambda c, x: (torch.sin(c * weight) + x, c * c)
    native.gradients(body, leaf(4, seed=1), leaf(5, 4, seed=2), closed=[weight], loss=LOSSES[loss])


def test_a_second_derivative_raises(native):
    weight = leaf(3)
    xs = leaf(4, 3, grad=False)
    ys = native.run(lambda c, x: (c * weight + x, c * c), leaf(3, seed=1), xs)[1]
    (first,) = torch.autograd.grad(ys.sum(), weight, create_graph=True)
    with pytest.raises(GradientRefusedError, match="first derivatives only"):
        torch.autograd.grad(first.sum(), weight)


def test_a_second_derivative_raises_where_only_the_carry_is_differentiated(native):
    """Nothing that is saved, and no cotangent, depends on the first carry here."""
    run = lambda v: native.run(lambda c, x: (c * c * 0.5, None), v, None, length=3)[0].sum()
    with pytest.raises(GradientRefusedError, match="first derivatives only"):
        torch.autograd.functional.hessian(run, leaf(3, grad=False))
    v = leaf(3)
    loss = run(v)
    (first,) = torch.autograd.grad(loss, v, create_graph=True)
    with pytest.raises(GradientRefusedError, match="gradient penalty"):
        (loss + (first**2).sum()).backward()


def test_int_counter_and_none_leaves(native):
    weight = leaf(3)

    def body(c, x):
        k, v, nothing = c
        return (k + 1, v * weight * k + x, nothing), (v, k)

    native.gradients(body, (torch.tensor(0), leaf(3, seed=1), None), leaf(5, 3), closed=[weight])


def test_results_require_grad_as_in_the_plain_loop(native):
    weight = leaf(3)

    def body(c, x):
        a, b, k = c
        return (a * weight, b + x, k + 1), (b, a.detach(), a > 0)

    init = (leaf(3, grad=False), leaf(3, grad=False), torch.tensor(0))
    xs = leaf(4, 3, grad=False)
    found, expected = native.run(body, init, xs), native.plain(body, init, xs)
    flags = [[t.requires_grad for t in (*r[0], *r[1])] for r in (found, expected)]
    assert flags[0] == flags[1]
