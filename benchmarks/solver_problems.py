"""Initial value problems of the solver benchmark, written once for NumPy, torch and JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Problem:
    """A right-hand side for any array library; its state is a vector, or columns of vectors."""

    name: str
    make: Callable[..., Callable[[Any, Any], Any]]
    y0: np.ndarray
    end: float
    parameters: tuple[np.ndarray, ...] = ()


def sir(xp: Any, _: Any = None) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        infection, recovery = 0.6 * y[0] * y[1], 0.2 * y[1]
        return xp.stack([-infection, infection - recovery, recovery])

    return rhs


def lorenz(xp: Any) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        a, b, c = y[0], y[1], y[2]
        return xp.stack([10 * (b - a), a * (28 - c) - b, a * b - 8 / 3 * c])

    return rhs


def lotka_volterra(xp: Any) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        return xp.stack([1.5 * y[0] - y[0] * y[1], y[0] * y[1] - 3 * y[1]])

    return rhs


def van_der_pol(xp: Any, mu: Any = 5.0) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        return xp.stack([y[1], mu * (1 - y[0] * y[0]) * y[1] - y[0]])

    return rhs


def pleiades(xp: Any, mass: Any) -> Callable[[Any, Any], Any]:
    """Seven stars in a plane: x, y, and their velocities, 7 each."""

    def rhs(t: Any, z: Any) -> Any:
        x, y, v, w = z[:7], z[7:14], z[14:21], z[21:]
        dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]
        square = dx * dx + dy * dy
        far = xp.where(square > 0, square, xp.ones_like(square))
        pull = mass[None, :] / (far * xp.sqrt(far))
        return xp.concatenate([v, w, (pull * dx).sum(-1), (pull * dy).sum(-1)])

    return rhs


def heat(xp: Any) -> Callable[[Any, Any], Any]:
    """Return the heat equation on a rod of 128 cells, cold at its ends."""

    def rhs(t: Any, y: Any) -> Any:
        ends = xp.zeros_like(y[:1])
        wide = xp.concatenate([ends, y, ends])
        return 500.0 * (wide[2:] - 2 * y + wide[:-2])

    return rhs


def neural(xp: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Callable[[Any, Any], Any]:
    """Return a perceptron of two layers of 32."""

    def rhs(t: Any, y: Any) -> Any:
        return xp.tanh(w2 @ xp.tanh(w1 @ y + b1) + b2)

    return rhs


def problems() -> dict[str, Problem]:
    """Return all problems by name."""
    rng = np.random.default_rng(7)
    stars = np.array(
        [
            3,
            3,
            -1,
            -3,
            2,
            -2,
            2,
            3,
            -3,
            2,
            0,
            0,
            -4,
            4,
            *[0] * 5,
            1.75,
            -1.5,
            *[0] * 3,
            -1.25,
            1,
            0,
            0,
        ],
        dtype=float,
    )
    weights = (
        rng.normal(size=(32, 32)) / 4,
        rng.normal(size=32),
        rng.normal(size=(32, 32)) / 4,
        rng.normal(size=32),
    )
    found = [
        Problem("SIR", sir, np.array([0.99, 0.01, 0.0]), 50.0),
        Problem("Lorenz", lorenz, np.array([1.0, 1.0, 1.0]), 5.0),
        Problem("Lotka-Volterra", lotka_volterra, np.array([1.0, 1.0]), 10.0),
        Problem("Van der Pol", van_der_pol, np.array([2.0, 0.0]), 20.0),
        Problem("Pleiades", pleiades, stars, 1.0, (np.arange(1.0, 8.0),)),
        Problem("heat 128", heat, np.sin(np.pi * np.arange(1, 129) / 129) ** 3, 1.0),
        Problem("neural 2 x 32", neural, rng.normal(size=32), 3.0, weights),
    ]
    return {problem.name: problem for problem in found}
