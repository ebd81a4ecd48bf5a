"""Gradients of native loops against those of the plain loop."""

from __future__ import annotations

import pytest
import torch

from fullgraph.errors import GradientRefusedError, LoopTypeError, UsageError


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


# --- checkpoint ---


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("every", [None, 1, 3, 50])
def test_checkpointing_gives_the_same_gradients(native, form, every, reverse):
    weight, matrix = leaf(4), leaf(4, 4, seed=5)

    def body(c, x):
        a, k = c
        n = torch.tanh(matrix @ a + torch.sin(a * weight) + x)
        return (n, k + 1), (a * k, n.sum())

    init, xs = (leaf(4, seed=1), torch.tensor(0)), leaf(11, 4, seed=2)
    plain = native.gradients(body, init, xs, closed=[weight, matrix], reverse=reverse)
    kept = native.adapter.checkpoint(body, every=every)
    found = native.gradients(kept, init, xs, closed=[weight, matrix], reverse=reverse)
    assert all(torch.allclose(a, b, rtol=1e-14) for a, b in zip(plain, found, strict=True))
    assert native.compiled == 1


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_checkpointing_few_steps(native, steps):
    weight = leaf(3)
    body = native.adapter.checkpoint(lambda c, x: (torch.sin(c * weight) + x, c * c))
    native.gradients(body, leaf(3, seed=1), leaf(steps, 3), closed=[weight])


def test_checkpointed_bodies_are_bodies_everywhere(native):
    body = native.adapter.checkpoint(lambda c, x: (c + x, c))
    assert native.plain(body, torch.zeros(2), torch.ones(3, 2))[0].tolist() == [3.0, 3.0]
    native.check(body, torch.zeros(2), torch.ones(3, 2))


@pytest.mark.parametrize("every", [0, -1, True, 2.0])
def test_checkpoint_says_what_it_takes(native, every):
    with pytest.raises(UsageError, match="every must be an int"):
        native.adapter.checkpoint(lambda c, x: (c, x), every=every)
    with pytest.raises(LoopTypeError, match="checkpoint takes a loop body"):
        native.adapter.checkpoint(3)
