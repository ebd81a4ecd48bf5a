"""Recurrent cells and other torch composites as bodies, with their gradients."""

from __future__ import annotations

import pytest
import torch

import fullgraph
from fullgraph.torch_loop import torch_native_loop_adapter

CELLS = {
    "RNN": torch.nn.RNNCell(3, 4),
    "GRU": torch.nn.GRUCell(3, 4),
    "LSTM": torch.nn.LSTMCell(3, 4),
}


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_cells(name):
    cell = CELLS[name].double()
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(5, 2, 3, generator=generator, dtype=torch.float64)
    start = torch.zeros(2, 4, dtype=torch.float64)

    def body(state, x):
        state = cell(x, state)
        return state, state[0] if name == "LSTM" else state

    def found(adapter):
        with fullgraph.use_loop_adapter("torch", adapter):
            init = (start, start) if name == "LSTM" else start
            hidden = fullgraph.scan(body, init, rows)[1]
        return [hidden, *torch.autograd.grad((hidden**2).sum(), list(cell.parameters()))]

    for a, b in zip(found(torch_native_loop_adapter()), found(None), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "body",
    [
        lambda c, x: (torch.linalg.solve(c @ c.mT + torch.eye(3, dtype=c.dtype), x) + c, None),
        lambda c, x: (torch.linalg.inv(c @ c.mT + torch.eye(3, dtype=c.dtype)) @ x, None),
        lambda c, x: (torch.linalg.cholesky(c @ c.mT + torch.eye(3, dtype=c.dtype)) + x, None),
        lambda c, x: (
            torch.linalg.solve_triangular(
                c.tril() + 5 * torch.eye(3, dtype=c.dtype), x, upper=False
            ),
            None,
        ),
    ],
    ids=["solve", "inverse", "cholesky", "triangular"],
)
def test_derivatives_of_linear_algebra(body):
    generator = torch.Generator().manual_seed(0)
    init, xs = (
        torch.randn(*s, generator=generator, dtype=torch.float64, requires_grad=True)
        for s in ((3, 3), (4, 3, 3))
    )

    def found(adapter):
        with fullgraph.use_loop_adapter("torch", adapter):
            last = fullgraph.scan(body, init, xs)[0]
        return torch.autograd.grad((last**2).sum(), (init, xs))

    for a, b in zip(found(torch_native_loop_adapter()), found(None), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
