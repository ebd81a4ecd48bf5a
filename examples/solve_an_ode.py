"""One solver on three libraries: a predator, its prey, and gradients of what becomes of them."""

from __future__ import annotations

from typing import Any

import array_api_compat
import numpy as np
import torch

from fullgraph.ode import Status, solve


def lotka_volterra(t: Any, y: Any, rates: Any) -> Any:
    xp = array_api_compat.array_namespace(y)
    prey, predators = y[0], y[1]
    return xp.stack(
        [
            rates[0] * prey - rates[1] * prey * predators,
            rates[2] * prey * predators - rates[3] * predators,
        ]
    )


def main() -> None:
    start, rates = np.array([1.0, 1.0]), np.array([1.5, 1.0, 1.0, 3.0])
    times = np.linspace(0.0, 10.0, 101)

    # NumPy in, NumPy out. Both tolerances: adaptive steps.
    solution = solve(lotka_volterra, start, times, args=(rates,), rtol=1e-8, atol=1e-8)
    assert solution.status is Status.SUCCESS
    print(f"prey between {solution.ys[:, 0].min():.3f} and {solution.ys[:, 0].max():.3f}")
    print(f"{int(solution.stats.accepted)} steps, {int(solution.stats.rhs_calls)} evaluations")
    print("at t = 3.21:", np.round(solution.interpolate(3.21), 6))

    # A thousand populations, each with its own steps.
    many = start * np.random.default_rng(0).uniform(0.5, 2.0, (50, 2))

    def rows(t: Any, y: Any) -> Any:
        return np.moveaxis(lotka_volterra(t, np.moveaxis(y, -1, 0), rates), 0, -1)

    batch = solve(rows, many, times, rtol=1e-6, atol=1e-6, batch_dims=1)
    print("steps from", batch.stats.accepted.min(), "to", batch.stats.accepted.max())

    # torch: the same function, and the gradient of the last state with respect to the rates.
    wanted = torch.from_numpy(rates).requires_grad_()
    ys = solve(
        lotka_volterra,
        torch.from_numpy(start),
        torch.from_numpy(times),
        args=(wanted,),
        rtol=1e-8,
        atol=1e-8,
    ).ys
    ys[-1].sum().backward()
    print("gradient:", np.round(wanted.grad.numpy(), 4))
    np.testing.assert_allclose(ys.detach().numpy(), solution.ys, rtol=1e-6)


if __name__ == "__main__":
    main()
