"""Write what the documentation says about speed, from the numbers that the benchmarks have stored.

    python tools/performance.py

Writes ``docs/performance.md``, and the tables of README.md between ``<!-- numbers: NAME -->`` and
``<!-- end -->``. Tests hold the texts against ``benchmarks/results/*.json``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fullgraph.report.markdown import table as lines_of_table

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
MARKED = re.compile(r"(?<=<!-- numbers: )(\w+) -->\n.*?(?=<!-- end -->)", re.DOTALL)
# the rows that README shows, the unfavourable ones among them
CHOSEN = (
    *("SIR RK4 3 x 1, T = 128", "SIR RK4 3 x 1, T = 1000", "SIR RK4 3 x 1000, T = 1000"),
    *("tanh RNN 64 x 1", "heat RK4, 128 cells", "Kalman filter 4 x 4", "leapfrog, 8 bodies"),
)

HEAD = """\
# What it costs, and how fast it is

Every number on this page is read from the results that the benchmarks have stored
(`python tools/performance.py` writes it; a test compares). All are ratios: both sides ran in one
process, turn by turn, after a warm-up, on two shared cores. **Below 1 is faster than the peer.**
Where two numbers are given, the second is of medians; the first is of the fastest rounds.
"""

NATIVE = """
## Native loops

`python benchmarks/native_loops.py` prints these: a whole `scan` by `torch_native_loop_adapter`
against `jax.jit` of `jax.lax.scan` and, where shown, against a Python loop over eager torch. One
thread, if not said otherwise, float64, {versions}. The first row is what a call costs, whatever
is in it.

"""

FIRST = """
The first call of a body captures and compiles it; later calls of the same program, and later
processes, find the compiled function in a cache. `import torch` and `import torch._dynamo`, which
take seconds of their own, are not in these:

"""

SOLVERS = """
## Differential equations

`python benchmarks/solvers.py` prints these: `fullgraph.ode.solve` with `loop="native"` on torch,
where not said otherwise, against each peer that was installed: {versions}. **n/a**: we cannot run
that row.

"""

TESTING = """
## Testing

`python benchmarks/testing_overhead.py` prints these: a tagged call, recorded, against bare
`torch.compile(backend="eager")`, torch {torch}. First calls are faster than bare ones: two things
that Dynamo does needlessly for array-API code are left out, without changing what is captured.

"""

PLAIN = """
## Plain loops

`taskset -c 0 python benchmarks/loops.py` prints these: `scan` without an adapter, which checks
its carry at every step, against the same Python loop written by hand.

"""


def stored(name: str) -> Any:
    """Return the results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def number(value: float) -> str:
    """Return a number with two significant digits, as people write it."""
    if value >= 9.95:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.2g}" if value < 0.995 else f"{value:.1f}"


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Return a table as text."""
    return "\n".join(lines_of_table(headings, rows))


def ratio(least: float, median: float) -> str:
    """Return a ratio of the fastest rounds, and of medians."""
    return f"{number(least)} ({number(median)})"


def native_table(chosen: tuple[str, ...] = ()) -> str:
    """Return the rows of the native loops."""
    rows = []
    for row in stored("native_loops")["rows"]:
        if chosen and row["case"] not in chosen:
            continue
        threads = "" if row["threads"] == 1 else f", {row['threads']} threads"
        eager = number(row["ratio_eager"]) if "ratio_eager" in row else ""
        ours = f"{number(row['native_us'])} us"
        against = ratio(row["ratio_jax"], row["ratio_jax_median"])
        rows.append([row["case"] + threads, ours, against, eager])
    return table(["loop", "native", "over jitted JAX", "over eager torch"], rows)


def first_table() -> str:
    """Return the rows of first calls."""
    rows = [
        [name, f"{row['seconds']:.1f} s", f"{row['cpu_seconds']:.1f} s"]
        for name, row in stored("native_loops")["first_call"].items()
    ]
    return table(["cache, steps", "wall", "CPU"], rows)


def solver_table() -> str:
    """Return a row for each case and peer."""
    rows = []
    for case in stored("solvers")["cases"]:
        for goal in case["goals"]:
            known = goal.get("ratio") is not None
            told = ratio(goal["ratio"], goal["median"]) if known else "n/a"
            rows.append([case["case"], case["what"], goal["peer"], told])
    return table(["case", "method, output", "peer", "over peer"], rows)


def testing_table() -> str:
    """Return the rows of the testing half."""
    rows = [
        [row["case"], ratio(row["ratio_min"], row["ratio_median"])]
        for row in stored("testing_overhead")["rows"]
    ]
    return table(["call", "over bare torch.compile"], rows)


def plain_table() -> str:
    """Return the rows of loops without an adapter."""
    rows = [
        [f"{row['library']}, {row['width']} elements", *(ratio(*row["ratio"][n]) for n in names)]
        for row in stored("loops")["plain driver"]["rows"]
        if (names := list(row["ratio"]))
    ]
    return table(["arrays", "scan", "scan, carry in a dict"], rows)


def page() -> str:
    """Return the text of the page."""
    native, solvers = stored("native_loops"), stored("solvers")
    ours = f"torch {native['torch'].split('+')[0]}, JAX {native['jax']}"
    peers = ", ".join(f"{name} {version}" for name, version in solvers["peers"].items())
    parts = [
        *(HEAD, NATIVE.format(versions=ours), native_table(), FIRST, first_table()),
        *(SOLVERS.format(versions=peers), solver_table()),
        "\n![Work and precision](../benchmarks/results/solvers.png)\n",
        *(TESTING.format(torch=stored("testing_overhead")["about"]["torch"]), testing_table()),
        *(PLAIN, plain_table()),
    ]
    return "".join(part if part.endswith("\n") else part + "\n" for part in parts)


def readme(text: str) -> str:
    """Return the text of README.md with the numbers of today."""
    tables = {"native": native_table(CHOSEN), "testing": testing_table()}
    return MARKED.sub(lambda found: f"{found[1]} -->\n{tables[found[1]].rstrip()}\n", text)


def main() -> None:
    """Write both."""
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote {PAGE} and {README}")


if __name__ == "__main__":
    main()
