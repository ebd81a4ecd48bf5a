"""One SIR epidemic, three ways: eager torch, one native C function, and JAX where it is installed.

Run with: python examples/race_native_loops.py
"""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING, Any

import torch

import fullgraph
from fullgraph.torch_loop import explain_loop, torch_native_loop_adapter

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS, TOWNS, DT = 300, 100, 0.1


def stepper(xp: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return one step of Heun's method in an array namespace; the contact rate is x."""

    def slope(state: Any, rate: Any) -> Any:
        infected = rate * state[0] * state[1]
        recovered = 0.1 * state[1]
        return xp.stack([-infected, infected - recovered, recovered])

    def step(state: Any, rate: Any) -> tuple[Any, Any]:
        early = slope(state, rate)
        late = slope(state + DT * early, rate)
        new = state + DT / 2 * (early + late)
        return new, new

    return step


def fastest(run: Callable[[], Any], rounds: int = 5) -> float:
    """Return the least seconds of several runs, after one to warm up."""
    run()
    spent = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        spent.append(time.perf_counter() - begun)
    return min(spent)


def main() -> None:
    """Race, and compare the results."""
    body = stepper(torch)
    init = torch.rand(3, TOWNS, dtype=torch.float64) / 3
    rates = torch.rand(STEPS, 1, dtype=torch.float64)
    plain = fullgraph.scan(body, init, rates)
    seconds = {"eager torch": fastest(lambda: fullgraph.scan(body, init, rates), rounds=2)}
    with fullgraph.use_loop_adapter("torch", torch_native_loop_adapter()):
        native = fullgraph.scan(body, init, rates)
        seconds["native loop"] = fastest(lambda: fullgraph.scan(body, init, rates))
    if importlib.util.find_spec("jax"):
        import jax

        with jax.enable_x64(True):
            jbody, jnp = stepper(jax.numpy), jax.numpy
            run = jax.jit(lambda i, x: jax.lax.scan(jbody, i, x))
            start, xs = jnp.asarray(init.numpy()), jnp.asarray(rates.numpy())
            seconds["jitted jax.lax.scan"] = fastest(lambda: jax.block_until_ready(run(start, xs)))
    for name, spent in seconds.items():
        times = seconds["eager torch"] / spent
        print(f"{name:20s} {spent / STEPS * 1e6:9.3f} us a step, {times:7.1f} times eager")
    same = all(torch.equal(a, b) for a, b in zip(plain, native, strict=True))
    print(f"eager and native results are {'bit for bit the same' if same else 'different'}")
    told = explain_loop(body, init, rates)
    print(f"{told.lanes} lanes in blocks of {told.block}, built in {told.build_seconds:.2f} s")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
