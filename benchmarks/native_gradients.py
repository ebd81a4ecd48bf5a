"""Gradients of native loops against jitted ``jax.value_and_grad`` of ``jax.lax.scan``: ratios.

Usage: ``python benchmarks/native_gradients.py [--quick] [--only WORD]``. Everything runs in one
process, pinned to one CPU, turn by turn. Prints a table, with bytes saved beside the times, and
writes ``benchmarks/results/native_gradients.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from native_cases import rnn, sir
from native_loops import timings

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent


@dataclass(frozen=True)
class GradientCase:
    """One row: a body with parameters, inputs, what is differentiated, and the required ratio.

    The loss is the sum of ys, or of their squares, and of a row of the last carry; torch computes
    it outside of the loop, JAX in its compiled graph.
    """

    name: str
    make: Callable[..., Any]
    parameters: tuple[np.ndarray, ...]
    init: np.ndarray
    xs: np.ndarray
    wrt: tuple[str, ...]
    ratio: float
    squares: bool = False


def cases() -> list[GradientCase]:
    """Return the rows: gradients of init and rates through an ODE, of the weights of an RNN."""
    rng = np.random.default_rng(0)
    rows = [
        GradientCase(
            f"SIR RK4 3 x {p}, T = 1000{', squares' if squares else ''}",
            sir,
            (),
            rng.random((3, p)) / 3,
            rng.random((1000, 1)),
            ("init", "xs"),
            ratio,
            squares,
        )
        for squares in (False, True)
        for p, ratio in ((4, 0.7), (1000, 0.3))
    ]
    rows.append(
        GradientCase(
            "tanh RNN 64 x 16, T = 200, weights",
            rnn,
            (rng.standard_normal((64, 64)) / 8,),
            np.zeros((64, 16)),
            rng.standard_normal((200, 64, 16)),
            ("parameters",),
            1.0,
        )
    )
    return rows


def loss_of(case: GradientCase, carry: Any, ys: Any) -> Any:
    """Return the loss of a row."""
    return carry[1].sum() + ((ys * ys).sum() if case.squares else ys.sum())


def native_step(case: GradientCase, checkpoint: bool = False) -> Callable[[], list[Any]]:
    """Return value and gradients of a case as a function, natively."""
    import torch

    from fullgraph.torch_loop import torch_native_loop_adapter

    parameters = [torch.from_numpy(p.copy()) for p in case.parameters]
    init, xs = torch.from_numpy(case.init.copy()), torch.from_numpy(case.xs.copy())
    named = {"init": [init], "xs": [xs], "parameters": parameters}
    leaves = [t.requires_grad_() for word in case.wrt for t in named[word]]
    adapter = torch_native_loop_adapter()
    body = case.make(torch, *parameters)
    if checkpoint:
        assert adapter.checkpoint is not None
        body = adapter.checkpoint(body)

    def step() -> list[Any]:
        value = loss_of(case, *adapter.scan(body, init, xs))
        return [value.detach(), *torch.autograd.grad(value, leaves)]

    return step


def jax_step(case: GradientCase) -> Callable[[], list[Any]]:
    """Return the same in JAX."""
    import jax
    import jax.numpy as jnp

    def loss(named: dict[str, Any]) -> Any:
        body = case.make(jnp, *named["parameters"])
        return loss_of(case, *jax.lax.scan(body, named["init"], named["xs"]))

    named = {
        "init": jnp.asarray(case.init),
        "xs": jnp.asarray(case.xs),
        "parameters": [jnp.asarray(p) for p in case.parameters],
    }

    def of(wanted: dict[str, Any], rest: dict[str, Any]) -> Any:
        return loss({**rest, **wanted})

    wanted = {word: named[word] for word in case.wrt}
    rest = {word: leaf for word, leaf in named.items() if word not in case.wrt}
    function = jax.jit(jax.value_and_grad(of))

    def step() -> list[Any]:
        value, gradients = jax.block_until_ready(function(wanted, rest))
        return [value, *(leaf for word in case.wrt for leaf in jax.tree.leaves(gradients[word]))]

    return step


def race(case: GradientCase, rounds: int) -> dict[str, Any]:
    """Time one case natively and in JAX, after comparing the gradients."""
    functions = {"native": native_step(case), "jax": jax_step(case)}
    for a, b in zip(functions["native"](), functions["jax"](), strict=True):
        bound = 1e-12 * max(1.0, float(np.abs(np.asarray(b)).max()))  # cotangents are of size 1
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=0, atol=bound)
    functions["native"]()
    spent = timings(functions, rounds, dict.fromkeys(functions, 3))
    row: dict[str, Any] = {"case": case.name, "steps": len(case.xs), "must_jax": case.ratio}
    for name, pairs in spent.items():
        row[f"{name}_us"] = min(min(pair) for pair in pairs) * 1e6
        row[f"{name}_us_wall_median"] = statistics.median(pair[0] for pair in pairs) * 1e6
    row["ratio_jax"] = row["native_us"] / row["jax_us"]
    row["ratio_jax_median"] = row["native_us_wall_median"] / row["jax_us_wall_median"]
    return row


def race_checkpoint(lanes: int, rounds: int) -> dict[str, Any]:
    """Compare time and memory of a long loop with and without checkpointing."""
    from fullgraph.native.gradient.loops import GradientLoops

    rng = np.random.default_rng(2)
    init, xs = rng.random((3, lanes)) / 3, rng.random((10_000, 1))
    name = f"checkpointed: SIR RK4 3 x {lanes}, T = 10000"
    case = GradientCase(name, sir, (), init, xs, ("init", "xs"), 1.6)
    functions = {"whole": native_step(case), "checkpointed": native_step(case, checkpoint=True)}
    saved: dict[str, int] = {}
    for way, function in functions.items():
        function()
        saved[way] = GradientLoops.latest_saved[1]
        function()
    spent = timings(functions, rounds, dict.fromkeys(functions, 3))
    row: dict[str, Any] = {"case": name, "saved_bytes": saved}
    for way, pairs in spent.items():
        row[f"{way}_us"] = min(min(pair) for pair in pairs) * 1e6
        row[f"{way}_us_wall_median"] = statistics.median(pair[0] for pair in pairs) * 1e6
    row["ratio_time"] = row["checkpointed_us"] / row["whole_us"]
    row["ratio_time_median"] = row["checkpointed_us_wall_median"] / row["whole_us_wall_median"]
    row["ratio_memory"] = saved["checkpointed"] / saved["whole"]
    row |= {"must_time": 1.6, "must_memory": 1 / 20}
    met = row["ratio_time"] <= 1.6 and row["ratio_memory"] <= 1 / 20
    print(
        f"{name:42s} time {row['ratio_time']:.3f}x whole (<= 1.6; median "
        f"{row['ratio_time_median']:.3f})  memory 1/{1 / row['ratio_memory']:.0f} of "
        f"{saved['whole']:_} bytes (<= 1/20)  {'met' if met else 'MISSED'}"
    )
    return row


def main() -> None:
    """Run all rows, print them, store them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing stored")
    parser.add_argument("--only", default="", help="only rows whose name has this word")
    options = parser.parse_args()
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    os.sched_setaffinity(0, {0})
    torch.set_num_threads(1)
    rounds = 7 if options.quick else 25
    rows = [race(case, rounds) for case in cases() if options.only in case.name]
    for row in rows:
        verdict = "met" if row["ratio_jax"] <= row["must_jax"] else "MISSED"
        print(
            f"{row['case']:42s} native {row['native_us']:9.1f} us  jax {row['jax_us']:9.1f} us  "
            f"{row['ratio_jax']:.3f}x JAX (<= {row['must_jax']}; median "
            f"{row['ratio_jax_median']:.3f})  {verdict}"
        )
    long = [
        race_checkpoint(lanes, 2 if options.quick else 5)
        for lanes in (4, 1000)
        if options.only in "checkpointed"
    ]
    if not options.quick and not options.only:
        result = {
            "rows": rows,
            "checkpointed": long,
            "torch": torch.__version__,
            "jax": jax.__version__,
            "machine": platform.processor() or platform.machine(),
            "cpus": os.cpu_count(),
        }
        path = HERE / "results" / "native_gradients.json"
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
