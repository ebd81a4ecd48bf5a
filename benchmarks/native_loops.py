"""Native loops against jitted ``jax.lax.scan`` and eager torch: ratios, in one process and run.

Usage: ``python benchmarks/native_loops.py [--quick] [--only WORD]``. One-thread rows are pinned to
one CPU. Prints a table and writes ``benchmarks/results/native_loops.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from native_cases import Case, cases

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent

FIRST_CALL = """
import sys, time
t = time.perf_counter(); import torch; a = time.perf_counter(); import torch._dynamo
b = time.perf_counter()
import fullgraph; from fullgraph.torch_loop import torch_native_loop_adapter
c = time.perf_counter()
sys.path.insert(0, {here!r})
from native_cases import sir
xs, init = torch.rand({steps}, 1, dtype=torch.float64), torch.rand(3, 1, dtype=torch.float64)
import os
def cpu():
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system
d, p = time.perf_counter(), cpu()
scan = torch_native_loop_adapter().scan
scan(sir(torch), init, xs)
e, q = time.perf_counter(), cpu()
print(a - t, b - a, c - b, e - d, q - p)
"""


def timings(
    functions: dict[str, Callable[[], Any]], rounds: int, number: dict[str, int]
) -> dict[str, list[tuple[float, float]]]:
    """Time several functions turn by turn, so that noise meets all of them.

    Returns wall seconds and CPU seconds of the process for each round: where other processes share
    the machine, the CPU clock does not count the time in which they run.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(number[name]):
                function()
            spent = time.perf_counter() - wall, time.process_time() - cpu
            found[name].append((spent[0] / number[name], spent[1] / number[name]))
    return found


def best(values: list[tuple[float, float]], threads: int) -> float:
    """Return the least time: of either clock for one thread, else of the wall clock."""
    return min(min(pair) if threads == 1 else pair[0] for pair in values)


def race(case: Case, rounds: int, *, eager: bool) -> dict[str, Any]:
    """Time one case natively, in JAX, and in eager torch where asked."""
    import jax
    import jax.numpy as jnp
    import torch

    from fullgraph.torch_loop import torch_native_loop_adapter

    os.sched_setaffinity(0, {0} if case.threads == 1 else set(range(os.cpu_count() or 1)))
    torch.set_num_threads(case.threads)
    to_torch = torch.from_numpy
    body = case.make(torch, *(to_torch(p) for p in case.parameters))
    init = jax.tree.map(to_torch, case.init)
    xs = to_torch(case.xs)
    scan = torch_native_loop_adapter(threads=case.threads).scan
    jbody = case.make(jnp, *(jnp.asarray(p) for p in case.parameters))
    jinit, jxs = jax.tree.map(jnp.asarray, case.init), jnp.asarray(case.xs)
    jscan = jax.jit(lambda i, x: jax.lax.scan(jbody, i, x))

    def eager_loop() -> Any:
        carry, ys = init, []
        for row in xs:
            carry, y = body(carry, row)
            ys.append(y)
        return carry, torch.stack(ys)

    functions: dict[str, Callable[[], Any]] = {
        "native": lambda: scan(body, init, xs),
        "jax": lambda: jax.block_until_ready(jscan(jinit, jxs)),
    }
    ours, theirs = functions["native"](), functions["jax"]()
    reference = (
        eager_loop()
        if eager or (len(xs) <= 1000 and case.init is not None and case.threads == 1)
        else None
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-9, atol=1e-12)
    number = {}
    for name, function in functions.items():
        begun = time.perf_counter()
        function()
        number[name] = max(1, min(300, int(0.02 / max(time.perf_counter() - begun, 1e-7))))
    found = timings(functions, rounds, number)
    row: dict[str, Any] = {"case": case.name, "threads": case.threads, "steps": len(case.xs)}
    if eager:
        spent = timings({"eager": eager_loop}, 2, {"eager": 1})["eager"]
        row["eager_us_per_step"] = best(spent, 1) / len(xs) * 1e6
    for name, values in found.items():
        row[f"{name}_us"] = best(values, case.threads) * 1e6
        row[f"{name}_us_wall"] = min(pair[0] for pair in values) * 1e6
        row[f"{name}_us_wall_median"] = statistics.median(pair[0] for pair in values) * 1e6
    row["ratio_jax"] = row["native_us"] / row["jax_us"]
    row["ratio_jax_median"] = row["native_us_wall_median"] / row["jax_us_wall_median"]
    row["must_jax"] = case.jax_ratio
    if eager:
        row["ratio_eager"] = row["native_us"] / len(xs) / row["eager_us_per_step"]
        row["must_eager"] = case.eager_ratio
    if reference is not None:
        row["equal_to_eager"] = all(
            bool(torch.equal(a, b))
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(reference), strict=True)
        )
        row["max_difference_to_eager"] = max(
            float((a - b).abs().max())
            for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(reference), strict=True)
        )
    return row


def first_calls() -> dict[str, Any]:
    """Measure the first call in fresh processes: cold and warm cache, few and many steps."""
    import shutil
    import tempfile

    found: dict[str, Any] = {}
    for steps in (50, 5000):
        folder = tempfile.mkdtemp(prefix="fullgraph-bench-")
        for state in ("cold", "warm"):
            out = subprocess.run(
                [sys.executable, "-c", FIRST_CALL.format(here=str(HERE), steps=steps)],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "FULLGRAPH_CACHE": folder},
            ).stdout.split()
            torch_s, dynamo_s, own_s, call_s, cpu_s = map(float, out)
            found[f"{state}, T = {steps}"] = {
                "seconds": call_s,
                "cpu_seconds": cpu_s,
                "import_torch": torch_s,
                "import_dynamo": dynamo_s,
                "import_fullgraph": own_s,
            }
        shutil.rmtree(folder)
    return found


def main() -> None:
    """Run all rows, print them, store them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no first-call rows")
    parser.add_argument("--only", default="", help="only rows whose name has this word")
    options = parser.parse_args()
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    rounds = 7 if options.quick else 25
    rng = np.random.default_rng(1)
    one = cases()[0]
    overhead = Case(
        "call overhead: SIR 3 x 1, T = 1", one.make, (), one.init, rng.random((1, 1)), 1.0
    )
    rows = []
    for case in (overhead, *cases()):
        if options.only not in case.name:
            continue
        row = race(case, rounds, eager=case.eager_ratio is not None)
        rows.append(row)
        eager = (
            f"  {row['ratio_eager']:.3f}x eager (<= {row['must_eager']})"
            if "ratio_eager" in row
            else ""
        )
        verdict = (
            "met"
            if row["ratio_jax"] <= row["must_jax"]
            and row.get("ratio_eager", 0) <= (row.get("must_eager") or 1)
            else "MISSED"
        )
        print(
            f"{row['case']:36s} native {row['native_us']:10.1f} us  jax {row['jax_us']:10.1f} us  "
            f"{row['ratio_jax']:.3f}x JAX (<= {row['must_jax']}; median {row['ratio_jax_median']:.3f}){eager}  {verdict}"  # noqa: E501
        )
    result: dict[str, Any] = {
        "rows": rows,
        "torch": torch.__version__,
        "jax": jax.__version__,
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
    }
    if not options.quick and not options.only:
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)))
        result["first_call"] = first_calls()
        for name, row in result["first_call"].items():
            print(
                f"first call, {name:14s} {row['seconds']:.2f} s wall, "
                f"{row['cpu_seconds']:.2f} s CPU"
            )
        folder = HERE / "results"
        folder.mkdir(exist_ok=True)
        (folder / "native_loops.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
