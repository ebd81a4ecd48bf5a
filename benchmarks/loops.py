"""Cost of portable loops: the plain driver, and the bounded Inductor adapter beside its peers.

Run ``taskset -c 0 python benchmarks/loops.py`` for the plain driver (half a minute), and add
``--compiled`` for the bounded adapter and ``jax.lax.scan`` (minutes, most of them compilation).
Rows of one table come from one process and one run, taken in turns after a warm-up; figures are the
minimum and the median of the repeats. Clocks start after the imports. On a machine that others use
too, ``--clock cpu`` counts the time of this process alone in the rows of the plain driver.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fullgraph

RESULTS = Path(__file__).parent / "results" / "loops.json"
STEPS = 1000


def sir_step(xp):
    """One Runge-Kutta step of an SIR epidemic, state 3 x P."""

    def rates(y):
        infections, recoveries = 0.5 * y[0] * y[1], 0.1 * y[1]
        return xp.stack((-infections, infections - recoveries, recoveries))

    def step(y, h):
        k1 = rates(y)
        k2 = rates(y + h / 2 * k1)
        k3 = rates(y + h / 2 * k2)
        k4 = rates(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    return step


def start(xp, width):
    host = np.tile(np.array([[0.99], [0.01], [0.0]]), (1, width))
    return xp.from_numpy(host) if xp.__name__ == "torch" else xp.asarray(host)


def hand_written(xp, y0, steps):
    """Return the loop that one writes without this package."""
    step = sir_step(xp)

    def run():
        y, ys = y0, []
        for h in steps:
            y = step(y, h)
            ys.append(y)
        return y, xp.stack(ys)

    return run


def scanned(xp, y0, steps, *, tree=False):
    """Return the same loop as a scan, with a bare carry or one in a dict."""
    step = sir_step(xp)

    def body(y, h):
        new = step(y, h)
        return new, new

    def tree_body(carry, h):
        new = step(carry["y"], h)
        return {"y": new, "n": None}, new

    if tree:
        return lambda: fullgraph.scan(tree_body, {"y": y0, "n": None}, steps)
    return lambda: fullgraph.scan(body, y0, steps)


def cheapest(y0, steps):
    return lambda: fullgraph.scan(lambda c, x: (c, None), y0, steps)


def in_turns(candidates, repeats, inner=1, clock=time.perf_counter):
    """Time callables in turns; return microseconds per repeat as {name: (min, median)}."""
    for run in candidates.values():
        run()
    taken = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            began = clock()
            for _ in range(inner):
                run()
            taken[name].append((clock() - began) / inner * 1e6)
    return {name: (min(times), statistics.median(times)) for name, times in taken.items()}


def plain_rows(repeats, clock=time.perf_counter):
    """Measure the plain driver against the hand-written loop, all of it in one thread."""
    import torch

    torch.set_num_threads(1)
    rows = []
    for name in ("numpy", "torch"):
        xp = importlib.import_module(name)
        for width in (1, 1000):
            y0 = start(xp, width)
            steps = xp.full((STEPS,), 0.1, dtype=y0.dtype)
            found = in_turns(
                {
                    "hand-written": hand_written(xp, y0, steps),
                    "scan": scanned(xp, y0, steps),
                    "scan, dict carry": scanned(xp, y0, steps, tree=True),
                    "cheapest body": cheapest(y0, steps),
                },
                repeats,
                clock=clock,
            )
            per_step = {k: [round(t / STEPS, 3) for t in v] for k, v in found.items()}
            base = found["hand-written"]
            ratios = {
                k: [round(a / b, 3) for a, b in zip(v, base, strict=True)]
                for k, v in found.items()
                if k.startswith("scan")
            }
            rows.append({"library": name, "width": width, "us per step": per_step, "ratio": ratios})
            print(
                f"{name:6} 3x{width:<5} hand-written {per_step['hand-written'][0]:8.2f} us/step   "
                f"scan x{ratios['scan'][0]:.3f} (median x{ratios['scan'][1]:.3f})   "
                f"dict carry x{ratios['scan, dict carry'][0]:.3f}   "
                f"cheapest body {per_step['cheapest body'][0]:.2f} us/step",
                flush=True,
            )
    return rows


def first_call(run):
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compiled_rows(repeats, lengths, widths):
    """Measure the bounded adapter beside the eager loop and ``jax.lax.scan``."""
    import jax
    import torch
    import torch._dynamo  # the clock of a first call starts after this import

    from fullgraph.torch_loop import torch_compile_loop_adapter

    torch.set_num_threads(1)
    jax.config.update("jax_enable_x64", val=True)
    adapter = torch_compile_loop_adapter(max_elements=1_048_576)
    # The very first compilation also makes Inductor's precompiled header: printed apart.
    warm = first_call(
        lambda: adapter.scan(lambda c, x: (c + x, None), torch.ones(1), torch.ones(1))
    )
    print(f"first compilation of the process, one addition: {warm:.1f} s", flush=True)
    rows = []
    for length in lengths:
        for width in widths:
            row = _compiled_row(adapter, jax, torch, length, width, repeats)
            rows.append(row)
            for name, entry in row["ways"].items():
                print(
                    f"T={length:<3} 3x{width:<5} {name:16} first {entry['first call, s']:7.2f} s"
                    f"   {entry['us per step'][0]:9.3f} us/step (median "
                    f"{entry['us per step'][1]:.3f})",
                    flush=True,
                )
    return {"first compilation, s": round(warm, 2), "rows": rows}


def _compiled_row(adapter, jax, torch, length, width, repeats):
    y0, steps = start(torch, width), torch.full((length,), 0.1, dtype=torch.float64)
    jy0, jsteps = start(jax.numpy, width), jax.numpy.full((length,), 0.1)
    step, jstep = sir_step(torch), sir_step(jax.numpy)

    def body(y, h):
        new = step(y, h)
        return new, new

    def jbody(y, h):
        new = jstep(y, h)
        return new, new

    lax = jax.jit(lambda y, hs: jax.lax.scan(jbody, y, hs))
    ways = {
        "eager": lambda: fullgraph.scan(body, y0, steps),
        "bounded adapter": lambda: adapter.scan(body, y0, steps),
        "jax.lax.scan": lambda: jax.block_until_ready(lax(jy0, jsteps)),
    }
    first = {name: first_call(run) for name, run in ways.items()}
    np.testing.assert_allclose(ways["bounded adapter"]()[1], ways["eager"]()[1], rtol=1e-12)
    found = in_turns(ways, repeats, inner=5)
    return {
        "length": length,
        "width": width,
        "ways": {
            name: {
                "first call, s": round(first[name], 3),
                "us per step": [round(t / length, 4) for t in found[name]],
            }
            for name in ways
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiled", action="store_true", help="also the bounded adapter")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="for the plain driver's one thread"
    )
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 1000])
    options = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored["machine"] = {"python": platform.python_version(), "processor": platform.machine()}
    stored["versions"] = {
        name: importlib.import_module(name).__version__ for name in ("numpy", "torch", "jax")
    }
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    stored["plain driver"] = {
        "clock": options.clock,
        "rows": plain_rows(options.repeats, clock),
    }
    if options.compiled:
        with tempfile.TemporaryDirectory() as cold:  # a warm cache would make first calls look good
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cold
            stored["bounded adapter"] = compiled_rows(
                options.repeats, options.lengths, options.widths
            )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print(f"stored in {RESULTS}")


if __name__ == "__main__":
    main()
