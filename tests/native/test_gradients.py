"""Gradients of native loops against those of the plain loop."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint

from fullgraph import cond, scan, use_loop_adapter
from fullgraph.errors import (
    GradientRefusedError,
    LoopError,
    LoopTypeError,
    NativeMemoryError,
    UsageError,
)


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


# --- Loops in loops, chained loops, modules ---


@pytest.mark.parametrize("reverse", [False, True])
def test_nested_loops(native, form, reverse):
    weight, matrix = leaf(3), leaf(3, 3, seed=1)

    def body(c, x):
        def inner(a, s):
            k, v = a
            n = torch.sin(v * weight + s)
            return (k + 1, n), (v * k, n.sum())

        (_, v), (ys, sums) = scan(inner, (torch.tensor(0), c), x, reverse=reverse)
        return torch.tanh(matrix @ v), ys.sum(0) * sums.sum()

    with use_loop_adapter("torch", native.adapter):
        native.gradients(
            body, leaf(3, seed=2), leaf(4, 5, 3), closed=[weight, matrix], reverse=reverse
        )


def test_loops_three_deep(native):
    weight = leaf(2)

    def innermost(a, s):
        return torch.sin(a * weight + s), None

    def inner(a, s):
        return scan(innermost, a, s)[0], a

    def body(c, x):
        n, ys = scan(inner, c, x)
        return n * 0.9, ys

    with use_loop_adapter("torch", native.adapter):
        native.gradients(body, leaf(2, seed=1), leaf(3, 2, 2, 2), closed=[weight])


def test_no_gradient_flows_through_a_nested_loop_without_gradients(native):
    weight = leaf(2)

    def body(c, x):
        with torch.no_grad():
            n = scan(lambda a, s: (a * weight + s, None), c, x)[0]
        return torch.sin(c * weight) + n, n

    with use_loop_adapter("torch", native.adapter):
        native.gradients(body, leaf(2, seed=1), leaf(3, 4, 2), closed=[weight])


def test_chained_loops_share_a_weight(native):
    weight = leaf(4)

    def both(run):
        first = run(lambda c, x: ((n := torch.sin(c * weight + x)), n), leaf(4, seed=1), xs)[1]
        return run(lambda c, x: (c * weight + x, c), leaf(4, seed=2), first, reverse=True)

    xs = leaf(6, 4, seed=3)
    found, expected = (
        torch.autograd.grad(both(run)[1].sum(), [weight, xs]) for run in (native.run, native.plain)
    )
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() <= 1e-12 * b.abs().max()


def test_parameters_of_modules_get_gradients(native):
    cell = torch.nn.GRUCell(3, 4).double()
    body = lambda h, x: ((n := cell(x, h)), n)
    native.gradients(body, leaf(2, 4), leaf(5, 2, 3), closed=list(cell.parameters()))


def test_a_tensor_that_is_init_and_closed_over(native):
    init = leaf(3)
    native.gradients(lambda c, x: (torch.sin(c) * init + x, c), init, leaf(4, 3))


def test_branches(native):
    weight = leaf(3)

    def body(c, x):
        n = cond(
            x.sum() > 0,
            lambda a, b: torch.sqrt(b.abs()) * a,
            lambda a, b: a * weight - b,
            c,
            x,
        )
        return n, n * c

    native.gradients(body, leaf(3, seed=1), leaf(6, 3, seed=2), closed=[weight])


# --- What stays as in the plain loop ---


def test_detach_and_no_grad_in_a_body(native):
    weight = leaf(3)

    def body(c, x):
        with torch.no_grad():
            scale = (c * weight).sum()
        return torch.sin(c * weight.detach() + x) * scale + weight, c.detach() * weight

    native.gradients(body, leaf(3, seed=1), leaf(4, 3), closed=[weight])


def test_results_that_autograd_must_not_see(native):
    weight = leaf(2)
    (c, k), ys = native.run(
        lambda c, x: ((c[0] * weight + x, c[1] + 1), c[1]),
        (leaf(2), torch.tensor(0)),
        leaf(3, 2),
    )
    assert c.requires_grad
    assert not k.requires_grad
    assert not ys.requires_grad


def test_nothing_is_differentiated_without_gradients(native):
    weight = leaf(3)
    body = lambda c, x: (c * weight + x, c)
    with torch.no_grad():
        native.check(body, leaf(3, seed=1), leaf(4, 3))
    native.gradients(body, leaf(3, seed=1), leaf(4, 3), closed=[weight])
    with torch.inference_mode():
        native.run(body, leaf(3, seed=1), leaf(4, 3))


def test_values_do_not_depend_on_gradients(native):
    weight = leaf(3)
    body = lambda c, x: (c * weight / (1 + c * c) + x, c * x)
    init, xs = leaf(3, seed=1), leaf(50, 3)
    with torch.no_grad():
        plain = native.run(body, init, xs)
    found = native.run(body, init, xs)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


def test_changing_what_was_saved_is_noticed(native):
    weight = leaf(3)
    ys = native.run(lambda c, x: (c * weight + x, torch.sin(c)), leaf(3, seed=1), leaf(4, 3))[1]
    with torch.no_grad():
        weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ys.sum().backward()


def test_backward_twice_needs_retain_graph_as_ever(native):
    weight = leaf(3)
    ys = native.run(lambda c, x: (c * weight + x, c), leaf(3, seed=1), leaf(4, 3))[1]
    (first,) = torch.autograd.grad(ys.sum(), weight, retain_graph=True)
    (second,) = torch.autograd.grad(ys.sum(), weight)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(ys.sum(), weight)


def test_inputs_of_any_layout(native):
    weight = leaf(3, 2).T
    xs = leaf(1, 3).expand(5, 3)[:, :2]
    init = leaf(4)[::2]
    body = lambda c, x: (torch.tanh(weight @ torch.cat([c, x[:1]]) * x), c)
    leaves = [t.detach().requires_grad_() for t in (weight, xs, init)]
    native.gradients(body, init, xs)
    weight = leaves[0]
    native.gradients(body, leaves[2], leaves[1], closed=[weight])


def test_lanes_add_up_in_shared_parameters(native, form):
    rate, matrix = leaf(1), leaf(2, 2, seed=1)

    def body(c, x):
        a, b = c[0], c[1]
        n = torch.stack([a - rate * a * b + x, b * torch.exp(-rate * x) + matrix[0, 1] * a])
        return n * 0.5, n.sum()

    for lanes in (4, 37, 300):
        native.gradients(
            body, leaf(2, lanes), leaf(6, 1, seed=2), closed=[rate, matrix], rtol=1e-12
        )


def test_rows_that_all_lanes_share_get_the_sum(native, form):
    body = lambda c, x: (torch.sin(c * x + 0.1), c[:, 0])
    for lanes in (5, 40, 3000):
        native.gradients(body, leaf(3, lanes), leaf(4, 1))
        native.gradients(body, leaf(3, lanes), leaf(4))


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_lanes_of_the_backward(native_with, threads):
    native = native_with(threads=threads)
    rate = leaf(1)
    body = lambda c, x: (torch.sin(c * rate + x), c)
    native.gradients(body, leaf(20_000), leaf(60, 20_000), closed=[rate])


def test_batched_gradients_are_refused(native):
    weight = leaf(3)
    carry = native.run(lambda c, x: (torch.sin(c * weight) + x, None), leaf(3), leaf(4, 3))[0]
    with pytest.raises(GradientRefusedError, match="cannot be batched"):
        torch.autograd.grad(carry, weight, torch.eye(3).double(), is_grads_batched=True)


def test_a_body_that_torch_cannot_differentiate_says_so(native):
    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v * 2

        @staticmethod
        def backward(ctx, g):
            raise NotImplementedError

    with pytest.raises(LoopError):
        native.run(lambda c, x: (Forward.apply(c) + x, None), leaf(3), leaf(4, 3))


def test_rows_that_would_not_fit_are_refused_before_they_are_made(native):
    weight = leaf(1000, 1000)
    body = lambda c, x: (c * weight + x, None)
    xs = torch.zeros(1, dtype=torch.float64).expand(10**7)
    with pytest.raises(NativeMemoryError, match="the rows that are saved for the backward"):
        native.run(body, leaf(1000, 1000), xs)


def test_a_product_with_zero_in_a_body_stays_one(native):
    weight = leaf(2)
    body = lambda c, x: (c * 0.0 + x, c * weight * 0.0)
    init = torch.tensor([float("inf"), -1.0], dtype=torch.float64, requires_grad=True)
    carry, ys = native.run(body, init, leaf(2, 2))
    assert carry[1] == native.plain(body, init, leaf(2, 2))[0][1]
    assert torch.isnan(ys[0, 0])


@pytest.mark.parametrize(
    "term",
    [
        lambda w, c: torch.log(w) * 0.0,
        lambda w, c: (1 / w) * 0.0,
        lambda w, c: c * w * 0.0,
        lambda w, c: torch.cat([(w * torch.sqrt(w))[1:], c[:1]]),
    ],
)
@pytest.mark.parametrize("loss", ["everything", "carry", "ys"])
def test_zero_times_infinity_is_nan_in_gradients_as_well(native, term, loss):
    weight = torch.tensor([1.0, float("inf"), float("nan"), 0.0], dtype=torch.float64)
    weight.requires_grad_()
    factor = 0.5 if loss == "ys" else weight
    body = lambda c, x: (c * 0.0 * factor + x, c + term(weight, c))
    losses = {"everything": None, "carry": lambda r: r[0].sum(), "ys": lambda r: r[1].sum()}
    native.gradients(body, leaf(4), leaf(3, 4, seed=1), closed=[weight], loss=losses[loss])


@pytest.mark.parametrize("every", [None, 1, 2])
@pytest.mark.parametrize("used", [lambda r: r[0].sum(), lambda r: r[2].sum()])
def test_a_carry_that_nothing_reads_has_no_cotangent_where_its_slope_is_infinite(
    native, used, every
):
    """Zeros in its place would give NaN: zero times infinity."""
    weight = torch.tensor([1.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    plain = lambda c, x: ((c[0] + x * weight, torch.sqrt(c[1] * 0.0 + weight)), c[0] * weight)
    body = plain if every is None else native.adapter.checkpoint(plain, every=every)
    init = (leaf(3), leaf(3, seed=1))
    found = native.gradients(body, init, leaf(5, 3, seed=2), closed=[weight], loss=used)
    assert all(g is None or torch.isfinite(g).all() for g in found)


def test_sums_of_what_the_old_carry_says(native, form):
    """Gradients that are summed read the cotangent of this step, not of the one before it."""
    weight, other = leaf(40), leaf(40, seed=1)
    body = lambda c, x: ((c[0] * weight + c[1], c[1] * other + x), c[0])
    init = (leaf(40, seed=2), leaf(40, seed=3))
    native.gradients(body, init, leaf(5, 40), closed=[weight, other])


def test_after_no_step_the_carry_is_the_first_one_with_its_gradient(native):
    """Also of a body that gives the carry no gradient."""
    xs = leaf(0, 3, grad=False)
    for init in (leaf(3), leaf(3, seed=1)):
        carry, ys = native.run(lambda c, x: (c.detach() * 2 + x, c * x), init, xs)
        assert not ys.requires_grad
        assert torch.equal(torch.autograd.grad(carry.sum(), init)[0], torch.ones_like(init))


@pytest.mark.parametrize("factor", [2.0, leaf(3, seed=4)], ids=["number", "tensor"])
def test_a_while_loop_that_takes_no_step_gives_its_state_with_its_gradient(native, factor):
    body = lambda s: (s[0].detach() * factor, s[1] + 1, s[2])
    for steps in (3, 0, 2, 0):
        value = leaf(3)
        state = (value, torch.tensor(0), torch.tensor(steps))
        found = native.adapter.while_loop(lambda s: s[1] < s[2], body, state)[0]
        assert found.requires_grad == (steps == 0 or isinstance(factor, torch.Tensor))
        if not steps:
            assert torch.equal(torch.autograd.grad(found.sum(), value)[0], torch.ones(3).double())


def test_a_differentiated_while_loop_says_how_many_steps_it_took(native):
    init = leaf(3)
    for _ in range(2):
        result = native.adapter.while_loop(
            lambda s: s.abs().sum() < 100, lambda s: s * 2.0, init, max_steps=3
        )
        assert result.steps.dtype == torch.int64
        assert (int(result.steps), bool(result.done)) == (3, False)
        assert torch.equal(
            torch.autograd.grad(result.state.sum(), init)[0], torch.full_like(init, 8.0)
        )


FIRST = pytest.param(
    False, marks=pytest.mark.xfail(strict=True, reason="hooks see what a capture saves, too")
)


@pytest.mark.parametrize("known", [True, FIRST], ids=["known", "first"])
@pytest.mark.parametrize("loop", ["scan", "while_loop"])
def test_inside_of_a_checkpoint_of_torch(native, loop, known):
    """Its second forward pass ends with an exception out of the loop."""
    weight, xs = leaf(3), leaf(4, 3, grad=False)

    def scan(c):
        return native.run(lambda c, x: (torch.sin(c * weight) + x, c * c), c, xs)[1]

    def while_loop(c):
        return native.adapter.while_loop(lambda s: s.sum() < 50, lambda s: s + 1 + weight**2, c)

    function = {"scan": scan, "while_loop": while_loop}[loop]
    init = leaf(3, seed=1)
    if known:
        function(init)  # compiled before
    whole = torch.utils.checkpoint.checkpoint(function, init, use_reentrant=False)
    found = torch.autograd.grad((whole**2).sum(), [init, weight])
    expected = torch.autograd.grad((function(init) ** 2).sum(), [init, weight])
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_what_a_hook_on_saved_tensors_raises_comes_out_as_itself(native):
    init = leaf(3)

    def pack(tensor):
        raise KeyError("no space")

    body = lambda c, x: (torch.sin(c) + x, c * c)
    for _ in range(2):
        with (
            pytest.raises(KeyError, match="no space"),
            torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
        ):
            native.run(body, init, leaf(4, 3, grad=False))


def test_a_carry_of_a_nested_loop_that_nothing_reads_has_no_cotangent(native):
    weight = leaf(3)
    root = torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64, requires_grad=True)

    def body(carry, x):
        def inner(pair, row):
            return (pair[0] * weight + row, torch.sqrt(pair[1] * 0.0 + root)), None

        rows = x[None].expand(4, 3)
        return scan(inner, (carry, carry), rows)[0][0], None

    found = native.gradients(body, leaf(3, seed=1), leaf(2, 3, seed=2), closed=[weight, root])
    assert all(g is None or torch.isfinite(g).all() for g in found)


def test_what_is_absent_stays_absent_however_many_losses_there_were(native, monkeypatch):
    """An infinite derivative that nobody asked for is no NaN, whatever was compiled before."""
    from fullgraph.native.gradient import loops

    monkeypatch.setattr(loops, "MOST_VARIANTS", 1)
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    xs = leaf(4, 3)

    def body(c, row):
        return c + row, (c * row, torch.sqrt(c * 0.0 + x), c + x)

    _, (first, _, third) = native.run(body, torch.ones(3, dtype=torch.float64), xs)
    for loss in ((first * first).sum(), third.sum(), (first * first).sum() + third.sum()):
        found = torch.autograd.grad(loss, (x, xs), retain_graph=True, allow_unused=True)
        assert all(g is None or bool(g.isfinite().all()) for g in found)
