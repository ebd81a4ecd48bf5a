"""Write a loop once: one solver, on every array library that is installed.

Run with ``python examples/write_a_loop_once.py``.
"""

import importlib
import importlib.util
import time

from array_api_compat import array_namespace

import fullgraph

NAMESPACES = ["numpy", "torch", "jax.numpy", "array_api_strict"]


def rates(state):
    s, i = state[0, ...], state[1, ...]
    infections, recoveries = 0.5 * s * i, 0.1 * i
    return array_namespace(state).stack((-infections, infections - recoveries, recoveries))


def rk4(state, h):
    k1 = rates(state)
    k2 = rates(state + h / 2 * k1)
    k3 = rates(state + h / 2 * k2)
    k4 = rates(state + h * k3)
    new = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return new, new[1, ...]


def peak_of_the_epidemic(xp):
    """Return when the most people are infected, and how many."""
    start = xp.asarray([[0.99, 0.9], [0.01, 0.1], [0.0, 0.0]])
    steps = xp.full((400,), 0.1, dtype=start.dtype)
    _, infected = fullgraph.scan(rk4, start, steps)
    return xp.argmax(infected, axis=0), xp.max(infected, axis=0)


def days_until_it_is_over(xp):
    """Step until few people are infected, which is known only on the way."""
    start = xp.asarray([[0.99], [0.01], [0.0]])
    result = fullgraph.while_loop(
        lambda state: xp.any(state[1, ...] > 1e-3),
        lambda state: rk4(state, 0.5)[0],
        start,
        max_steps=1000,
    )
    assert bool(result.done)
    return int(result.steps) / 2


def main():
    found = set()
    for name in NAMESPACES:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            print(f"{name:17} not installed")
            continue
        xp = importlib.import_module(name)
        if name == "torch":
            import array_api_compat.torch as xp
        began = time.perf_counter()
        when, most = peak_of_the_epidemic(xp)
        days = days_until_it_is_over(xp)
        seconds = time.perf_counter() - began
        row = (int(when[0]) / 10, round(float(most[0]), 4), days)
        found.add(row)
        print(
            f"{name:17} peak on day {row[0]:.1f} with {row[1]:.1%} infected, over after "
            f"{row[2]:.1f} days   ({seconds:.2f} s)"
        )
    assert len(found) == 1, "one loop, one answer"


if __name__ == "__main__":
    main()
