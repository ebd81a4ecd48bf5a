"""Convolutions inside a body: one matrix product for each tap of the window."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

T = 4


def numbers(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("weight", "options"),
    [
        ((2, 2, 3), {"padding": 1}),
        ((2, 1, 3), {"padding": 1, "groups": 2}),
        ((2, 2, 3), {"padding": 2, "dilation": 2}),
        ((4, 2, 2), {"stride": 3, "padding": 1}),
        ((2, 2, 3), {"padding": "same"}),
    ],
)
def test_one_dimension(native, weight, options):
    w, bias = numbers(*weight, seed=1) * 0.4, numbers(weight[0], seed=2)

    def body(c, x):
        y = functional.conv1d(c, w, bias, **options)
        return (torch.tanh(y) if y.shape == c.shape else c * 0.9) + x, y

    native.check(body, numbers(2, 2, 7), numbers(T, 7, seed=3))


def test_two_dimensions_without_a_batch(native):
    w = numbers(1, 1, 3, 3, seed=1) * 0.2
    native.check(
        lambda c, x: (functional.conv2d(c, w, padding=1) + x, None),
        numbers(1, 5, 6),
        numbers(T, 6, seed=3),
    )


def test_a_stencil_in_a_module(native):
    layer = torch.nn.Conv1d(1, 1, 3, padding=1, dtype=torch.float64).requires_grad_(False)
    native.check(lambda c, x: (c + 0.1 * layer(c), c.sum()), numbers(1, 1, 40), numbers(T, 1))


def test_transposed_convolutions_are_refused(native):
    with pytest.raises(Exception, match=r"aten\.convolution\.default of float64"):
        native.check(
            lambda c, x: (functional.conv_transpose1d(c, torch.ones(1, 1, 1).double()), x),
            numbers(1, 1, 4),
            numbers(T, 1),
        )


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_derivatives_of_the_decomposition(stride, groups):
    from fullgraph.native.decompositions import decompositions

    x, w = numbers(2, 4, 9).requires_grad_(), numbers(4, 4 // groups, 3, seed=1).requires_grad_()
    bias = numbers(4, seed=2).requires_grad_()
    y = functional.conv1d(x, w, bias, stride=stride, padding=2, dilation=2, groups=groups)
    above = numbers(*y.shape, seed=4)
    expected = torch.autograd.grad(y, (x, w, bias), above)
    backward = decompositions()[torch.ops.aten.convolution_backward.default]
    settings = ([stride], [2], [2], False, [0], groups)
    found = backward(above, x.detach(), w.detach(), [4], *settings, [True, True, True])
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
