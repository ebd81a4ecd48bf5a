"""The bounded adapter on loops as long as people would give it: minutes of compilation."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fullgraph  # noqa: E402
from fullgraph.torch_loop import torch_compile_loop_adapter  # noqa: E402


def rates(y):
    infections, recoveries = 0.5 * y[0] * y[1], 0.1 * y[1]
    return torch.stack((-infections, infections - recoveries, recoveries))


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("length", [16, 64])
def test_runge_kutta(length):
    steps = torch.full((length,), 0.1, dtype=torch.float64)
    adapter = torch_compile_loop_adapter()

    def loss(scale, scan):
        def body(y, h):
            k1 = rates(y) * scale
            k2 = rates(y + h / 2 * k1) * scale
            k3 = rates(y + h / 2 * k2) * scale
            k4 = rates(y + h * k3) * scale
            new = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            return new, new

        y0 = torch.tensor([[0.99], [0.01], [0.0]], dtype=torch.float64)
        return scan(body, y0, steps)[1]

    results = []
    for scan in (adapter.scan, fullgraph.scan):
        scale = torch.tensor(1.3, dtype=torch.float64, requires_grad=True)
        ys = loss(scale, scan)
        (gradient,) = torch.autograd.grad((ys * ys).sum(), scale)
        results.append((ys.detach().numpy(), gradient.item()))
    (ys, gradient), (want, want_gradient) = results
    np.testing.assert_allclose(ys, want, rtol=1e-13)
    assert abs(gradient - want_gradient) <= 1e-12 * abs(want_gradient)
