"""Initial value problems with known solutions, written for any array library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Problem:
    """A right-hand side and the solution that belongs to it."""

    name: str
    make: Callable[[Any], Callable[[Any, Any], Any]]
    solution: Callable[[np.ndarray], np.ndarray]
    span: tuple[float, float]


def _rational(xp: Any) -> Callable[[Any, Any], Any]:
    """y' = -2 t y^2 and w' = cos(t) w: nonlinear, and not autonomous."""

    def rhs(t: Any, y: Any) -> Any:
        return xp.stack([-2 * t * y[0] * y[0], xp.cos(t) * y[1]])

    return rhs


def _oscillator(xp: Any) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        return xp.stack([y[1], -y[0]])

    return rhs


def _constant(xp: Any) -> Callable[[Any, Any], Any]:
    """(a + (y - (a t + b))^5): the solution is a line, as long as the solver keeps to it."""

    def rhs(t: Any, y: Any) -> Any:
        return 0.2 + (y - (0.2 * t + 3.0)) ** 5

    return rhs


def _logistic(xp: Any) -> Callable[[Any, Any], Any]:
    """Growth in a season: y' = y (1 - y) (4 + 2 cos(3 t))."""

    def rhs(t: Any, y: Any) -> Any:
        return y * (1 - y) * (4 + 2 * xp.cos(3 * t))

    return rhs


def _logistic_solution(t: np.ndarray) -> np.ndarray:
    odds = np.log(np.array([0.05, 0.2]) / np.array([0.95, 0.8]))
    return 1 / (1 + np.exp(-(odds + (4 * t + 2 / 3 * np.sin(3 * t))[:, None])))


_MATRIX = np.array([[-0.2, 1.0, 0.3], [-1.0, -0.2, 0.0], [0.1, 0.0, -0.5]])
_START = np.array([1.0, -2.0, 0.5])


def _linear(xp: Any) -> Callable[[Any, Any], Any]:
    rows = _MATRIX.tolist()

    def rhs(t: Any, y: Any) -> Any:
        return xp.stack([sum(a * y[j] for j, a in enumerate(row)) for row in rows])

    return rhs


def _linear_solution(t: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eig(_MATRIX)
    start = np.linalg.solve(vectors, _START)
    return (vectors @ (start[:, None] * np.exp(values[:, None] * t))).real.T


def _sine(xp: Any) -> Callable[[Any, Any], Any]:
    def rhs(t: Any, y: Any) -> Any:
        return 2 * y / t + t**4 * xp.sin(2 * t) - t**2 + 4 * t**3

    return rhs


def _sine_solution(t: np.ndarray) -> np.ndarray:
    return (
        -0.5 * t**4 * np.cos(2 * t)
        + 0.5 * t**3 * np.sin(2 * t)
        + 0.25 * t**2 * np.cos(2 * t)
        - t**3
        + 2 * t**4
        + (np.pi - 0.25) * t**2
    )[:, None]


RATIONAL = Problem(
    "rational",
    _rational,
    lambda t: np.stack([1 / (1 + t * t), np.exp(np.sin(t))], axis=1),
    (0.0, 2.0),
)
LOGISTIC = Problem("logistic", _logistic, _logistic_solution, (0.0, 1.0))
OSCILLATOR = Problem(
    "oscillator", _oscillator, lambda t: np.stack([np.cos(t), -np.sin(t)], axis=1), (0.0, 3.0)
)
CONSTANT = Problem("constant", _constant, lambda t: (0.2 * t + 3.0)[:, None], (1.0, 8.0))
LINEAR = Problem("linear", _linear, _linear_solution, (0.0, 4.0))
SINE = Problem("sine", _sine, _sine_solution, (1.0, 8.0))


def jumping(xp: Any) -> Any:
    """A right-hand side with a jump at t = 1, which belongs to what comes after it."""

    def rhs(t: Any, y: Any) -> Any:
        return xp.where(t < 1.0, xp.ones_like(t), -2 * xp.ones_like(t)) * y

    return rhs


def jumped(t: np.ndarray) -> np.ndarray:
    return np.where(t < 1, np.exp(t), np.exp(1 - 2 * (t - 1)))[:, None]
