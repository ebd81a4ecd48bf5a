"""Tableaux fulfil their order conditions, and fixed steps converge with the order they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from ode_problems import LOGISTIC

from fullgraph.ode import solve
from fullgraph.ode.methods import METHODS, adaptive_methods

# Rooted trees up to order 5 as (order, density, weight of each stage).


def _conditions(a: np.ndarray, c: np.ndarray) -> list[tuple[int, float, np.ndarray]]:
    one = np.ones_like(c)
    ac, ac2, aac = a @ c, a @ c**2, a @ (a @ c)
    return [
        (1, 1, one),
        (2, 2, c),
        (3, 3, c**2),
        (3, 6, ac),
        (4, 4, c**3),
        (4, 8, c * ac),
        (4, 12, ac2),
        (4, 24, aac),
        (5, 5, c**4),
        (5, 10, c**2 * ac),
        (5, 15, c * ac2),
        (5, 30, c * aac),
        (5, 20, ac**2),
        (5, 20, a @ c**3),
        (5, 40, a @ (c * ac)),
        (5, 60, a @ ac2),
        (5, 120, a @ aac),
    ]


def _arrays(name: str) -> tuple[np.ndarray, np.ndarray]:
    tableau = METHODS[name].tableau
    n = tableau.stages
    a = np.zeros((n, n))
    for i, row in enumerate(tableau.a):
        a[i, : len(row)] = row
    return a, np.array(tableau.c)


def _order_of(name: str, weights: Any, theta: float = 1.0) -> int:
    a, c = _arrays(name)
    failed = [
        order
        for order, density, stage in _conditions(a, c)
        if abs(float(np.dot(weights, stage)) - theta**order / density) > 1e-13
    ]
    return min(failed, default=6) - 1


@pytest.mark.parametrize("name", METHODS)
class TestTableau:
    def test_stages_are_consistent(self, name: str) -> None:
        a, c = _arrays(name)
        np.testing.assert_allclose(a.sum(axis=1), c, atol=1e-14)

    def test_order_is_exactly_the_promised_one(self, name: str) -> None:
        assert _order_of(name, METHODS[name].tableau.b) == METHODS[name].order

    def test_embedded_order(self, name: str) -> None:
        method = METHODS[name]
        if method.tableau.error is None:
            assert method.estimate_order is None
            return
        embedded = np.array(method.tableau.b) - np.array(method.tableau.error)
        assert _order_of(name, embedded) == method.order - 1 == method.estimate_order - 1

    def test_middle_is_right_to_fourth_order(self, name: str) -> None:
        middle = METHODS[name].tableau.middle
        if middle is not None:
            assert _order_of(name, middle, 0.5) >= 4

    def test_has_a_citation(self, name: str) -> None:
        assert any(char.isdigit() for char in METHODS[name].citation)


def test_adaptive_methods_are_those_with_an_estimate() -> None:
    assert adaptive_methods() == ["heun", "fehlberg2", "bosh3", "dopri5", "tsit5"]


def test_dopri5_and_its_dense_output_are_scipys() -> None:
    from scipy.integrate import RK45

    tableau = METHODS["dopri5"].tableau
    np.testing.assert_allclose(tableau.b[:6], RK45.B, atol=1e-16)
    np.testing.assert_allclose(np.abs(tableau.error), np.abs(RK45.E), atol=1e-16)
    middle = RK45.P @ np.array([0.5, 0.25, 0.125, 0.0625])
    np.testing.assert_allclose(tableau.middle, middle, atol=1e-14)


def _error(lib: Any, method: str, steps: int) -> float:
    ts = lib.array(np.linspace(*LOGISTIC.span, steps + 1))
    exact = LOGISTIC.solution(np.array(LOGISTIC.span))
    ys = lib.host(solve(LOGISTIC.make(lib.xp), lib.array(exact[0]), ts, method=method).ys)
    return float(np.max(np.abs(ys[-1] - exact[1])))


# Fine enough for the leading term of the error, and coarse enough for rounding.
STEPS = {"tsit5": 24, "dopri5": 24}


@pytest.mark.parametrize("method", METHODS)
def test_observed_order(lib: Any, method: str) -> None:
    n = STEPS.get(method, 48)
    observed = math.log2(_error(lib, method, n) / _error(lib, method, 2 * n))
    assert abs(observed - METHODS[method].order) < 0.15
