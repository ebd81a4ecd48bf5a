"""Loop bodies of the native benchmark, written once for torch and JAX.

Every body takes the array namespace first; ``make`` functions give the inputs as NumPy arrays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

Array = Any


def rk4(
    slope: Callable[[Array, Array], Array], dt: float
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Return the body of one Runge-Kutta step, whose y is the new state."""

    def body(state: Array, rate: Array) -> tuple[Array, Array]:
        k1 = slope(state, rate)
        k2 = slope(state + dt / 2 * k1, rate)
        k3 = slope(state + dt / 2 * k2, rate)
        k4 = slope(state + dt * k3, rate)
        new = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return new, new

    return body


def sir(xp: Any) -> Callable[[Array, Array], tuple[Array, Array]]:
    """One RK4 step of an SIR model; the contact rate is x."""
    dt, recovery = 0.1, 0.1

    def slope(state: Array, rate: Array) -> Array:
        s, i = state[0], state[1]
        infected = rate * s * i
        recovered = recovery * i
        return xp.stack([-infected, infected - recovered, recovered])

    return rk4(slope, dt)


def rnn(xp: Any, weights: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Take one step of a tanh RNN without a bias."""

    def body(hidden: Array, x: Array) -> tuple[Array, Array]:
        new = xp.tanh(weights @ hidden + x)
        return new, new

    return body


def heat(xp: Any) -> Callable[[Array, Array], tuple[Array, Array]]:
    """One RK4 step of the heat equation on a ring; x is a source strength."""
    dt = 0.1

    def slope(u: Array, source: Array) -> Array:
        return xp.roll(u, 1) - 2 * u + xp.roll(u, -1) + source

    return rk4(slope, dt)


def kalman(
    xp: Any, f: Array, h: Array, q: Array, r: Array, eye: Array
) -> Callable[[Array, Array], tuple[Array, Array]]:
    """One step of a Kalman filter with 4 states and one measurement."""

    def body(carry: Array, z: Array) -> tuple[Array, Array]:
        mean, cov = carry
        mean = f @ mean
        cov = f @ cov @ f.T + q
        gain = cov @ h.T / (h @ cov @ h.T + r)
        mean = mean + gain[:, 0] * (z - h @ mean)
        cov = (eye - gain @ h) @ cov
        return (mean, cov), mean

    return body


def leapfrog(xp: Any, masses: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """One kick-drift-kick step of gravitating bodies."""
    dt, softening = 0.001, 0.01

    def acceleration(position: Array) -> Array:
        apart = position[None, :, :] - position[:, None, :]
        square = (apart * apart).sum(-1) + softening
        pull = masses[None, :] / (square * xp.sqrt(square))
        return (apart * pull[:, :, None]).sum(1)

    def body(carry: Array, push: Array) -> tuple[Array, Array]:
        position, velocity = carry
        velocity = velocity + dt / 2 * acceleration(position)
        position = position + dt * velocity
        velocity = velocity + dt / 2 * acceleration(position) + push
        return (position, velocity), position

    return body


@dataclass(frozen=True)
class Case:
    """One row: a name, its body maker with array parameters, init, xs and the required ratios."""

    name: str
    make: Callable[..., Any]
    parameters: tuple[np.ndarray, ...]
    init: Any
    xs: np.ndarray
    jax_ratio: float
    eager_ratio: float | None = None
    threads: int = 1


def cases() -> list[Case]:
    """Return all rows."""
    rng = np.random.default_rng(0)
    rows = [
        Case(
            f"SIR RK4 3 x {p}, T = {t}",
            sir,
            (),
            rng.random((3, p)) / 3,
            rng.random((t, 1)),
            ratio,
            None,
            threads,
        )
        for p, t, ratio, threads in (
            (1, 128, 1.0, 1),
            (1, 1000, 1.0, 1),
            (1, 10000, 0.9, 1),
            (1000, 1000, 0.15, 1),
            (100000, 100, 0.15, 2),
        )
    ]
    weights = rng.standard_normal((64, 64)) / 8
    rows.append(
        Case(
            "tanh RNN 64 x 1",
            rnn,
            (weights,),
            np.zeros((64, 1)),
            rng.standard_normal((1000, 64, 1)),
            1.0,
            0.2,
        )
    )
    rows.append(
        Case("heat RK4, 128 cells", heat, (), rng.random(128), rng.random((1000, 1)), 1.0, 0.2)
    )
    f = np.eye(4) + 0.1 * np.eye(4, k=2)
    h = np.array([[1.0, 0.0, 0.0, 0.0]])
    rows.append(
        Case(
            "Kalman filter 4 x 4",
            kalman,
            (f, h, 0.01 * np.eye(4), np.array([[0.1]]), np.eye(4)),
            (np.zeros(4), np.eye(4)),
            rng.standard_normal((1000, 1)),
            1.0,
            0.2,
        )
    )
    rows.append(
        Case(
            "leapfrog, 8 bodies",
            leapfrog,
            (rng.random(8),),
            (rng.standard_normal((8, 3)), np.zeros((8, 3))),
            np.zeros((1000, 1, 1)),
            1.0,
            0.2,
        )
    )
    assert all(math.prod(r.xs.shape) for r in rows)
    return rows
