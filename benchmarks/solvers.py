"""ODE solves against torchdiffeq, torchode, diffrax, SciPy: ratios, in one process and run.

Usage: ``python benchmarks/solvers.py [--quick] [--only WORD] [--plot]``. Peers that cannot be
imported are reported as missing. One thread, pinned to one CPU. Prints a table and writes
``benchmarks/results/solvers.json``; with ``--plot`` also the work-precision plot
``benchmarks/results/solvers.png``.
"""

# ruff: noqa: B023 - functions over loop variables are called within the same turn
from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from solver_problems import Problem, problems, sir

RESULTS = Path(__file__).parent / "results"
PEERS = ("torchdiffeq", "torchode", "diffrax", "scipy", "op_engine")
Run = Callable[[], Any]


def available() -> dict[str, str]:
    """Return the versions of the peers that can be imported, and ``"missing"`` for the others."""
    import importlib

    found = {}
    for name in PEERS:
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            found[name] = f"missing ({error})"
        else:
            found[name] = getattr(module, "__version__", "?")
    return found


def race(runs: dict[str, Run], rounds: int, budget: float = 4.0) -> dict[str, dict[str, float]]:
    """Time functions turn by turn after a warm-up; a slow one gets fewer turns."""
    once = {}
    for name, run in runs.items():
        begun = time.perf_counter()
        run()
        once[name] = time.perf_counter() - begun
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name, run in runs.items():
            if number and number * once[name] > budget / len(runs):
                continue
            for _ in range(max(1, min(40, int(0.02 / once[name])))):
                begun = time.perf_counter()
                run()
                found[name].append(time.perf_counter() - begun)
    return {
        name: {
            "min_us": min(v) * 1e6,
            "median_us": statistics.median(v) * 1e6,
            "runs": len(v),
        }
        for name, v in found.items()
    }


# --- Peers, each at its best -------------------------------------------------------------------


def diffrax_rk4() -> Any:
    """Return the classical method as diffrax's own kind of solver; diffrax has none of its own."""
    import diffrax

    class RK4(diffrax.AbstractERK):
        tableau = diffrax.ButcherTableau(
            a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
            b_sol=np.array([1 / 6, 1 / 3, 1 / 3, 1 / 6]),
            b_error=np.zeros(4),
            c=np.array([0.5, 0.5, 1.0]),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms: Any) -> int:
            return 4

    return RK4()


def diffrax_fixed(problem: Problem, steps: int) -> Callable[[Any], Any]:
    import diffrax
    import jax.numpy as jnp

    rhs = problem.make(jnp, *map(jnp.asarray, problem.parameters))
    term, solver = diffrax.ODETerm(lambda t, y, _: rhs(t, y)), diffrax_rk4()

    def solve(y0: Any) -> Any:
        return diffrax.diffeqsolve(
            term,
            solver,
            0.0,
            problem.end,
            problem.end / steps,
            y0,
            max_steps=steps + 1,
            stepsize_controller=diffrax.ConstantStepSize(),
        ).ys

    return solve


def diffrax_adaptive(
    rhs: Any, end: float, outputs: int, tol: float, most: int
) -> Callable[..., Any]:
    import diffrax
    import jax.numpy as jnp

    term = diffrax.ODETerm(lambda t, y, args: rhs(t, y, *args))
    saveat = diffrax.SaveAt(ts=jnp.linspace(0.0, end, outputs))

    def solve(y0: Any, *args: Any) -> Any:
        return diffrax.diffeqsolve(
            term,
            diffrax.Dopri5(),
            0.0,
            end,
            None,
            y0,
            args,
            saveat=saveat,
            max_steps=most,
            stepsize_controller=diffrax.PIDController(rtol=tol, atol=tol),
        ).ys

    return solve


def torchode_adaptive(rhs: Any, y0: Any, ts: Any, tol: float, most: int) -> Run:
    import torch
    import torchode

    term = torchode.ODETerm(rhs)
    method = torchode.Dopri5(term=term)
    controller = torchode.IntegralController(atol=tol, rtol=tol, term=term)
    solver = torchode.AutoDiffAdjoint(method, controller, max_steps=most)
    problem = torchode.InitialValueProblem(y0=y0, t_eval=ts.expand(len(y0), -1))

    def run() -> Any:
        with torch.no_grad():
            return solver.solve(problem).ys

    return run


# --- The cases of the table ----------------------------------------------------------------------


def fixed_small(have: set[str]) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch

    from fullgraph.ode import solve

    problem, steps = problems()["SIR"], 1000
    rhs, y0 = problem.make(torch), torch.from_numpy(problem.y0)
    ts = torch.tensor([0.0, problem.end], dtype=torch.float64)
    step = problem.end / steps
    runs: dict[str, Run] = {
        "ours": lambda: solve(rhs, y0, ts, method="rk4", step=step, loop="native").ys[-1]
    }
    if "diffrax" in have:
        import jax

        peer = jax.jit(diffrax_fixed(problem, steps))
        jy0 = jax.numpy.asarray(problem.y0)
        runs["diffrax"] = lambda: jax.block_until_ready(peer(jy0))[-1]
    if "torchdiffeq" in have:
        import torchdiffeq

        runs["torchdiffeq"] = lambda: torchdiffeq.odeint(
            rhs, y0, ts, method="rk4", options={"step_size": step}
        )[-1]
    return runs, [("torchdiffeq", 0.01), ("diffrax", 1.0)], "rk4 (torchdiffeq: its 3/8 rule)"


def fixed_batch(have: set[str]) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch

    from fullgraph.ode import solve

    small, steps = problems()["SIR"], 1000
    rng = np.random.default_rng(1)
    states = small.y0[:, None] * rng.uniform(0.5, 1.5, (3, 1000))
    rhs, y0 = sir(torch), torch.from_numpy(states)
    ts = torch.tensor([0.0, small.end], dtype=torch.float64)
    step = small.end / steps
    runs: dict[str, Run] = {
        "ours": lambda: solve(rhs, y0, ts, method="rk4", step=step, loop="native").ys[-1]
    }
    if "diffrax" in have:
        import jax

        one = diffrax_fixed(small, steps)
        batched = jax.jit(one)
        mapped = jax.jit(jax.vmap(one, in_axes=1, out_axes=2))
        jy0 = jax.numpy.asarray(states)
        runs["diffrax, batched state"] = lambda: jax.block_until_ready(batched(jy0))[-1]
        runs["diffrax, vmap"] = lambda: jax.block_until_ready(mapped(jy0))[-1]
    return runs, [("diffrax, batched state", 0.2), ("diffrax, vmap", 0.2)], "rk4, 3 x 1000"


def adaptive_small(
    name: str, have: set[str]
) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch

    from fullgraph.ode import solve

    problem, tol, most = problems()[name], 1e-8, 4096
    rhs = problem.make(torch, *map(torch.from_numpy, problem.parameters))
    y0 = torch.from_numpy(problem.y0)
    ts = torch.linspace(0, problem.end, 100, dtype=torch.float64)
    kwargs: dict[str, Any] = {"method": "dopri5", "rtol": tol, "atol": tol, "loop": "native"}
    runs: dict[str, Run] = {"ours": lambda: solve(rhs, y0, ts, **kwargs).ys}
    if "diffrax" in have:
        import jax
        import jax.numpy as jnp

        jrhs = problem.make(jnp, *map(jnp.asarray, problem.parameters))
        peer = jax.jit(diffrax_adaptive(jrhs, problem.end, 100, tol, most))
        jy0 = jnp.asarray(problem.y0)
        runs["diffrax"] = lambda: jax.block_until_ready(peer(jy0))
    if "torchdiffeq" in have:
        import torchdiffeq

        runs["torchdiffeq"] = lambda: torchdiffeq.odeint(
            rhs, y0, ts, method="dopri5", rtol=tol, atol=tol
        )
    if "scipy" in have:
        from scipy.integrate import solve_ivp

        nrhs, nts = problem.make(np, *problem.parameters), ts.numpy()
        runs["scipy"] = lambda: (
            solve_ivp(nrhs, (0, problem.end), problem.y0, t_eval=nts, rtol=tol, atol=tol).y.T
        )
    return runs, [("diffrax", 1.0)], "dopri5, 1e-8, 100 outputs"


def adaptive_batch(have: set[str]) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch

    from fullgraph.ode import solve

    rng = np.random.default_rng(2)
    mu = rng.uniform(0.5, 1.5, 1000)
    mu[500] = 60.0
    states, end, tol, most = rng.uniform(0.5, 2.0, (1000, 2)), 10.0, 1e-6, 16_384

    def make(xp: Any) -> Any:
        def rhs(t: Any, y: Any, m: Any) -> Any:
            a, b = y[..., 0], y[..., 1]
            return xp.stack([b, m * (1 - a * a) * b - a], -1)

        return rhs

    rhs, y0, m = make(torch), torch.from_numpy(states), torch.from_numpy(mu)
    ts = torch.linspace(0, end, 20, dtype=torch.float64)
    kwargs: dict[str, Any] = {"method": "dopri5", "rtol": tol, "atol": tol, "max_steps": most}
    runs: dict[str, Run] = {
        "ours": lambda: solve(rhs, y0, ts, args=(m,), batch_dims=1, loop="native", **kwargs).ys
    }
    if "diffrax" in have:
        import jax
        import jax.numpy as jnp

        one = diffrax_adaptive(make(jnp), end, 20, tol, most)
        peer = jax.jit(jax.vmap(one, out_axes=1))
        jy0, jm = jnp.asarray(states), jnp.asarray(mu)
        runs["diffrax, vmap"] = lambda: jax.block_until_ready(peer(jy0, jm))
    if "torchode" in have:
        run = torchode_adaptive(lambda t, y: rhs(t, y, m), y0, ts, tol, most)
        runs["torchode"] = lambda: run().transpose(0, 1)
    return runs, [("diffrax, vmap", 1.0), ("torchode", 0.1)], "dopri5, 1e-6, 20 outputs"


def gradient(have: set[str]) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch

    from fullgraph.ode import solve

    theta = np.random.default_rng(3).uniform(-0.3, 0.3, 10)
    start, steps = np.array([1.0, 0.5]), 1000

    def make(xp: Any) -> Any:
        def rhs(t: Any, y: Any, p: Any) -> Any:
            a, b = y[0], y[1]
            return xp.stack(
                [
                    p[0] + p[1] * a + p[2] * b + p[3] * a * b + p[4] * xp.sin(a),
                    p[5] + p[6] * a + p[7] * b + p[8] * a * b + p[9] * xp.sin(b),
                ]
            )

        return rhs

    rhs, y0 = make(torch), torch.from_numpy(start)
    ts = torch.tensor([0.0, 1.0], dtype=torch.float64)
    p = torch.from_numpy(theta).requires_grad_()

    def ours(loop: str) -> Any:
        ys = solve(rhs, y0, ts, args=(p,), method="rk4", step=1 / steps, loop=loop).ys
        return torch.autograd.grad((ys[-1] ** 2).sum(), p)[0]

    runs: dict[str, Run] = {"ours": lambda: ours("native"), "ours, eager": lambda: ours("eager")}
    if "diffrax" in have:
        import diffrax
        import jax
        import jax.numpy as jnp

        jrhs, solver = make(jnp), diffrax_rk4()
        term = diffrax.ODETerm(lambda t, y, q: jrhs(t, y, q))
        for name, adjoint in (
            ("recursive checkpoints", diffrax.RecursiveCheckpointAdjoint()),
            ("direct", diffrax.DirectAdjoint()),
        ):

            def loss(q: Any, adjoint: Any = adjoint) -> Any:
                ys = diffrax.diffeqsolve(
                    term,
                    solver,
                    0.0,
                    1.0,
                    1 / steps,
                    jnp.asarray(start),
                    q,
                    max_steps=steps + 1,
                    adjoint=adjoint,
                    stepsize_controller=diffrax.ConstantStepSize(),
                ).ys
                return (ys[-1] ** 2).sum()

            grad, jp = jax.jit(jax.grad(loss)), jnp.asarray(theta)
            runs[f"diffrax, {name}"] = lambda grad=grad, jp=jp: jax.block_until_ready(grad(jp))  # type: ignore[misc]
    goals = [("diffrax, recursive checkpoints", 1.0), ("diffrax, direct", 1.0)]
    return runs, goals, "rk4, gradient of 10 parameters"


def numpy_input(have: set[str]) -> tuple[dict[str, Run], list[tuple[str, float]], str]:
    import torch
    from scipy.integrate import solve_ivp

    from fullgraph.ode import solve

    problem, tol = problems()["Lotka-Volterra"], 1e-8
    ts = np.linspace(0, problem.end, 100)
    rhs, trhs = problem.make(np), problem.make(torch)
    kwargs: dict[str, Any] = {"method": "dopri5", "rtol": tol, "atol": tol}
    runs: dict[str, Run] = {}
    runs["ours"] = lambda: solve(rhs, problem.y0, ts, loop="native", **kwargs).ys
    runs["ours, through torch.from_numpy"] = lambda: solve(
        trhs, torch.from_numpy(problem.y0), torch.from_numpy(ts), loop="native", **kwargs
    ).ys.numpy()
    runs["ours, eager"] = lambda: solve(rhs, problem.y0, ts, **kwargs).ys
    runs["scipy"] = lambda: (
        solve_ivp(rhs, (0, problem.end), problem.y0, t_eval=ts, rtol=tol, atol=tol).y.T
    )
    return runs, [("scipy", 0.05)], "dopri5, 1e-8, 100 outputs"


CASES: dict[str, Callable[[set[str]], Any]] = {
    "fixed rk4, 1 000 steps, small state": fixed_small,
    "fixed, batch 1 000": fixed_batch,
    "adaptive, small state: SIR": lambda have: adaptive_small("SIR", have),
    "adaptive, small state: Lorenz": lambda have: adaptive_small("Lorenz", have),
    "adaptive, small state: Lotka-Volterra": lambda have: adaptive_small("Lotka-Volterra", have),
    "adaptive, small state: Van der Pol": lambda have: adaptive_small("Van der Pol", have),
    "adaptive, batch 1 000, one stiff row": adaptive_batch,
    "gradient of a 1 000-step solve": gradient,
    "NumPy input, adaptive, small state": numpy_input,
}


def show(case: str, have: set[str], rounds: int) -> dict[str, Any]:
    """Run one case, print it, and return it as data."""
    runs, goals, what = CASES[case](have)
    usable, failed, first = {}, {}, {}
    for name, run in runs.items():
        begun = time.perf_counter()
        try:
            run()
        except Exception as error:  # noqa: BLE001 - said in the table
            failed[name] = f"{type(error).__name__}: {str(error)[:160]}"
        else:
            usable[name] = run
            first[name] = time.perf_counter() - begun
    results = {
        name: np.asarray(run().detach() if hasattr(run(), "detach") else run())
        for name, run in usable.items()
    }
    reference = next(iter(results.values()))
    times = race(usable, rounds)
    print(f"\n{case} ({what})")
    for name, row in times.items():
        apart = float(np.max(np.abs(results[name] - reference)))
        print(
            f"  {name:32s} {row['min_us']:12.1f} us  median {row['median_us']:12.1f}  "
            f"first call {first[name]:6.2f} s  differs by {apart:.1e}"
        )
    for name, why in failed.items():
        print(f"  {name:32s} cannot: {why}")
    verdicts = []
    for peer, goal in goals:
        if peer not in times:
            print(f"  against {peer}: the peer is missing or failed")
            continue
        if "ours" not in times:
            print(f"  against {peer}: MISSED, ours cannot (must be at most {goal} of it)")
            verdicts.append({"peer": peer, "must": goal, "ratio": None, "met": False})
            continue
        ratio = times["ours"]["min_us"] / times[peer]["min_us"]
        middle = times["ours"]["median_us"] / times[peer]["median_us"]
        met = ratio <= goal
        verdicts.append({"peer": peer, "must": goal, "ratio": ratio, "median": middle, "met": met})
        print(
            f"  against {peer}: {ratio:.4f} of its time (median {middle:.4f}), must be at most "
            f"{goal}: {'met' if met else 'MISSED'}"
        )
    return {
        "case": case,
        "what": what,
        "times": times,
        "first_s": first,
        "failed": failed,
        "goals": verdicts,
    }


# --- Work and precision ----------------------------------------------------------------------


def precision(have: set[str], names: list[str], tolerances: list[float]) -> list[dict[str, Any]]:
    """Measure the error and time of adaptive dopri5 at several tolerances."""
    import torch
    from scipy.integrate import solve_ivp

    from fullgraph.ode import solve

    rows = []
    for name in names:
        problem = problems()[name]
        nrhs = problem.make(np, *problem.parameters)
        exact = solve_ivp(
            nrhs, (0, problem.end), problem.y0, method="DOP853", rtol=1e-13, atol=1e-13
        ).y[:, -1]
        rhs = problem.make(torch, *map(torch.from_numpy, problem.parameters))
        y0, ts = torch.from_numpy(problem.y0), torch.tensor([0.0, problem.end], dtype=torch.float64)
        for tol in tolerances:
            kwargs: dict[str, Any] = {"rtol": tol, "atol": tol, "max_steps": 100_000}
            runs: dict[str, Run] = {
                "ours": lambda: solve(rhs, y0, ts, method="dopri5", loop="native", **kwargs).ys[-1],
                "ours, tsit5": lambda: solve(rhs, y0, ts, loop="native", **kwargs).ys[-1],
                "scipy": lambda: solve_ivp(  # type: ignore[dict-item]
                    nrhs,
                    (0, problem.end),
                    problem.y0,
                    rtol=tol,
                    atol=tol,
                ).y[:, -1],
            }
            if "torchdiffeq" in have and tol > 1e-6:  # seconds a solve below
                import torchdiffeq

                runs["torchdiffeq"] = lambda: torchdiffeq.odeint(
                    rhs,
                    y0,
                    ts,
                    method="dopri5",
                    rtol=tol,
                    atol=tol,
                )[-1]
            if "diffrax" in have:
                import jax
                import jax.numpy as jnp

                jrhs = problem.make(jnp, *map(jnp.asarray, problem.parameters))
                peer = jax.jit(diffrax_adaptive(jrhs, problem.end, 2, tol, 16_384))
                jy0 = jnp.asarray(problem.y0)
                runs["diffrax"] = lambda: jax.block_until_ready(peer(jy0))[-1]
            for run in runs.values():  # compiled before anything is timed
                run()
            times = race(runs, 5, budget=1.0)
            for solver, run in runs.items():
                error = float(np.max(np.abs(np.asarray(run()) - exact)))
                rows.append(
                    {
                        "problem": name,
                        "tolerance": tol,
                        "solver": solver,
                        "error": error,
                        **times[solver],
                    }
                )
            print(
                f"{name:16s} {tol:.0e}  "
                + "  ".join(
                    f"{r['solver']} {r['error']:.1e} in {r['min_us']:.0f} us"
                    for r in rows[-len(runs) :]
                )
            )
    return rows


def plot(rows: list[dict[str, Any]]) -> None:
    """Draw work against precision, one panel for each problem."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["problem"] for row in rows))
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(4 * columns, 3.4 * lines), squeeze=False)
    for panel in axes.flat[len(names) :]:
        panel.set_visible(False)
    for panel, name in zip(axes.flat, names, strict=False):
        for solver in dict.fromkeys(row["solver"] for row in rows):
            own = [r for r in rows if r["problem"] == name and r["solver"] == solver]
            panel.loglog([r["error"] for r in own], [r["min_us"] for r in own], "o-", label=solver)
        panel.set_title(name)
        panel.set_xlabel("error at the end")
        panel.invert_xaxis()
    axes[0][0].set_ylabel("microseconds a solve")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(RESULTS / "solvers.png", dpi=110)


def main() -> None:
    """Run all cases, print them, store them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="fewer rounds; nothing is stored")
    parser.add_argument("--only", default="", help="only cases whose name has this word")
    parser.add_argument("--plot", action="store_true", help="measure and draw work and precision")
    options = parser.parse_args()
    os.sched_setaffinity(0, {0})
    import jax
    import torch

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torchode|equinox|diffrax|jax")
    versions = available()
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    have = {name for name, version in versions.items() if not version.startswith("missing")}
    print("op_engine has no solver with error control or a compiled loop: no row of this table.")
    rows = [show(case, have, 5 if options.quick else 15) for case in CASES if options.only in case]
    result: dict[str, Any] = {
        "peers": versions,
        "torch": torch.__version__,
        "jax": jax.__version__,
        "cpus": os.cpu_count(),
        "cases": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    stored = not options.quick and not options.only
    if stored:  # before the plot, which takes longest
        (RESULTS / "solvers.json").write_text(json.dumps(result, indent=1) + "\n")
    if options.plot:
        tolerances = [1e-4, 1e-6, 1e-8] if options.quick else [1e-3, 1e-5, 1e-7, 1e-9]
        names = [name for name in problems() if options.only in name] or list(problems())
        result["precision"] = precision(have, names, tolerances)
        try:
            plot(result["precision"])
        except ImportError as error:
            print(f"no plot: {error}")
        if stored:
            (RESULTS / "solvers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
