"""gradcheck of native loops: analytic gradients against finite differences, body by body."""

from __future__ import annotations

import pytest
import torch

T = torch
FIRST = torch.tensor([1, 1, 0])

# Each body is a function of carry (3,), row (3,), w (3,), m (3, 3); values stay away from kinks.
BODIES = {
    "linear": lambda c, x, w, m: (m @ c + w * x, c),
    "tanh cell": lambda c, x, w, m: ((n := T.tanh(m @ c + w * x)), n),
    "sin and cos": lambda c, x, w, m: (T.sin(c * w) + T.cos(x), c * x),
    "exp and log": lambda c, x, w, m: (T.exp(-c * c) * w, T.log(1 + x * x) * c),
    "sqrt and powers": lambda c, x, w, m: (T.sqrt(1 + c * c), c**3 + (1 + x * x) ** w),
    "division": lambda c, x, w, m: (c / (2 + x * x), w / (1 + c * c)),
    "sigmoid and softplus": lambda c, x, w, m: (T.sigmoid(c + w), T.nn.functional.softplus(x * c)),
    "relu and abs": lambda c, x, w, m: (T.relu(c + 3) * w * 0.2, (c - 5).abs() * x),
    "where": lambda c, x, w, m: (T.where(c > 9, c, c * w), T.where(x > -9, c * x, w)),
    "maximum and minimum": lambda c, x, w, m: (T.maximum(c, w - 9), T.minimum(x * c, w + 9)),
    "clamp": lambda c, x, w, m: (c.clamp(-9, 9) * w, (x + 20).clamp(max=1.5) + c),
    "sum and mean": lambda c, x, w, m: (c * w.sum() * 0.1 + x.mean(), (c * x).sum()),
    "largest": lambda c, x, w, m: (c * 0.3 + w, (m + c).amax(1) + x.max()),
    "product": lambda c, x, w, m: (T.tanh(c * w), (c + 2).prod() * x),
    "running sum": lambda c, x, w, m: (T.tanh(T.cumsum(c * w, 0)), T.cumsum(x, 0) * c),
    "norm": lambda c, x, w, m: (c / (1 + T.linalg.vector_norm(c)), (w * x).norm() * c),
    "softmax": lambda c, x, w, m: (T.softmax(c + w, 0), T.log_softmax(x * c, 0)),
    "outer": lambda c, x, w, m: (T.outer(c, w).sum(0) * 0.2, T.outer(x, c) * m),
    "matrix in the carry": lambda c, x, w, m: (T.tanh(m @ T.outer(c, x) @ w), m.T @ c),
    "views": lambda c, x, w, m: (c.flip(0) * w, T.stack([c, x])[:, 1:].reshape(-1)),
    "cat and roll": lambda c, x, w, m: (T.roll(T.cat([c, w])[1:4], 1), T.cat([x, c * 2])),
    "pad and slice": lambda c, x, w, m: (T.nn.functional.pad(c[1:], (1, 0)) + w, x[::2] * c[:2]),
    "lookup": lambda c, x, w, m: (c[T.tensor([2, 0, 0])] * w, m[T.tensor([0, 1, 0]), 1] * x),
    "gather": lambda c, x, w, m: (
        T.gather(c * w, 0, T.tensor([1, 1, 2])),
        x.index_select(0, T.tensor([2, 2])),
    ),
    "scatter": lambda c, x, w, m: (
        T.zeros_like(c).scatter_add(0, T.tensor([0, 2, 0]), c * w),
        x + c,
    ),
    "in place on its own": lambda c, x, w, m: (_in_place(c, w), x * c),
    "solve": lambda c, x, w, m: (T.linalg.solve(m @ m.T + 9 * T.eye(3).double(), c + w), c * x),
    "layer norm": lambda c, x, w, m: (T.nn.functional.layer_norm(c + x, (3,), w), c),
    "erf and atan2": lambda c, x, w, m: (T.erf(c) * w, T.atan2(x, 2 + c * c)),
    "einsum": lambda c, x, w, m: (T.einsum("ij,j,i->i", m, c, w) * 0.3, T.einsum("i,i->", c, x)),
    "detached": lambda c, x, w, m: (c * w.detach() + w, x * c),
}
QUICK = ("linear", "tanh cell", "where", "lookup", "views", "solve")


def _in_place(c, w):
    made = torch.zeros(3, dtype=torch.float64)
    made[0] = c[1] * w[0]
    made[1:] += c[:2] * 0.5
    return made


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in BODIES]
)
def test_gradcheck(native, name):
    function = BODIES[name]
    generator = torch.Generator().manual_seed(5)

    def draw(*shape):
        made = torch.randn(shape, generator=generator, dtype=torch.float64)
        return made.requires_grad_()

    def loop(init, xs, w, m):
        carry, ys = native.run(lambda c, x: function(c, x, w, m), init, xs)
        return carry, ys

    inputs = (draw(3), draw(4, 3), draw(3), draw(3, 3))
    if name == "detached":  # finite differences see through detach, so the oracle is autograd
        native.gradients(
            lambda c, x: function(c, x, inputs[2], inputs[3]), *inputs[:2], closed=[inputs[2]]
        )
    else:
        assert torch.autograd.gradcheck(loop, inputs, atol=1e-7, rtol=1e-5)
