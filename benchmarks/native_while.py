"""Native while loops against jitted ``jax.lax.while_loop``: Newton's method, ratios.

Usage: ``python benchmarks/native_while.py [--quick]``. Both run in one process, pinned to one CPU,
turn by turn, until the largest residual of a square root is below 1e-12. Prints a table, with
eager torch beside it, and writes ``benchmarks/results/native_while.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from native_loops import best, timings

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
LIMITS = {1: 1.5, 1000: 1.0}  # elements: the ratio to JAX that must be reached


def newton(wanted: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return condition and step of Newton's method for the square roots of `wanted`."""
    return (
        lambda x: (abs(x * x - wanted) > 1e-12).any(),
        lambda x: x - (x * x - wanted) / (2 * x),
    )


def race(elements: int, rounds: int) -> dict[str, Any]:
    """Time one row."""
    import jax
    import jax.numpy as jnp
    import torch

    import fullgraph
    from fullgraph.torch_loop import torch_native_loop_adapter

    values = np.linspace(2.0, 3.0, elements)
    start, wanted = torch.ones(elements, dtype=torch.float64), torch.from_numpy(values)
    condition, step = newton(wanted)
    loop = torch_native_loop_adapter().while_loop
    assert loop is not None
    jwanted, jstart = jnp.asarray(values), jnp.ones(elements)
    jloop = jax.jit(lambda w, x: jax.lax.while_loop(*newton(w), x))
    functions: dict[str, Callable[[], Any]] = {
        "native": lambda: loop(condition, step, start),
        "jax": lambda: jax.block_until_ready(jloop(jwanted, jstart)),
        "eager": lambda: fullgraph.while_loop(condition, step, start),
    }
    results = {name: np.asarray(function()) for name, function in functions.items()}
    for name in ("native", "eager"):
        np.testing.assert_allclose(results[name], results["jax"], rtol=1e-12)
    found = timings(functions, rounds, {"native": 300, "jax": 300, "eager": 3})
    row: dict[str, Any] = {"case": f"Newton, {elements} elements", "must_jax": LIMITS[elements]}
    for name, values_of in found.items():
        row[f"{name}_us"] = best(values_of, 1) * 1e6
        row[f"{name}_us_median"] = statistics.median(pair[0] for pair in values_of) * 1e6
    row["ratio_jax"] = row["native_us"] / row["jax_us"]
    row["ratio_jax_median"] = row["native_us_median"] / row["jax_us_median"]
    row["ratio_eager"] = row["native_us"] / row["eager_us"]
    return row


def main() -> None:
    """Run both rows, print them, store them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing is stored")
    options = parser.parse_args()
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    os.sched_setaffinity(0, {0})
    torch.set_num_threads(1)
    rows = [race(elements, 7 if options.quick else 25) for elements in LIMITS]
    for row in rows:
        verdict = "met" if row["ratio_jax"] <= row["must_jax"] else "MISSED"
        print(
            f"{row['case']:22s} native {row['native_us']:8.1f} us  jax {row['jax_us']:8.1f} us  "
            f"{row['ratio_jax']:.3f}x JAX (<= {row['must_jax']}; median "
            f"{row['ratio_jax_median']:.3f})  {row['ratio_eager']:.4f}x eager  {verdict}"
        )
    if not options.quick:
        result = {
            "rows": rows,
            "torch": torch.__version__,
            "jax": jax.__version__,
            "machine": platform.processor() or platform.machine(),
        }
        (HERE / "results" / "native_while.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
