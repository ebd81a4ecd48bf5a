"""What real array-API suites cost under the plugin, and what they prove: the table of the how-to.

For every suite one process each, one after the other: eager, compile, fullgraph, the floor (the
same calls under a bare ``torch.compile(backend="eager")`` with the same limits, see
`pytest_helpers/floor_plugin.py`), ``-n 2``, and in ``compile`` mode dynamic shapes and small
recompile limits. Printed: tests, coverage, compiles and graphs, which are deterministic, and times
as ratios. CPU time is measured around the test loop, imports and collection apart, and is what to
read on a busy machine; wall time is that of the whole process, since the workers of ``-n 2`` import
and collect inside of the loop. The floor is compared over the tests that pass in both runs, those
apart whose calls are drawn at random.

    python benchmarks/suites.py [suite ...] [--runs eager,compile,floor] [--repeat 1]

Results are stored in ``benchmarks/results/suites.json``, runs of before kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "suites.json"

SUITES = {
    "variation": ("scipy.stats.tests.test_variation", "torch"),
    "logsumexp": ("scipy.special.tests.test_logsumexp", "torch"),
    "windows": ("scipy.signal.tests.test_windows", "torch"),
    "vq": ("scipy.cluster.tests.test_vq", "torch"),
    "differentiate": ("scipy.differentiate", "torch"),
    "cubature": ("scipy.integrate.tests.test_cubature", "torch"),
    "array-api-extra": ("array_api_extra.tests.main", "torch"),
}
"""Name, what ``--pyargs`` gets, what ``-k`` gets."""

RUNS = {
    "eager": ["--fg-modes=eager"],
    "compile": ["--fg-modes=compile"],
    "floor": ["-p", "floor_plugin", "-p", "no:fullgraph"],
    "fullgraph": ["--fg-modes=fullgraph"],
    # small portions: a compiled test takes seconds, and the last ones decide
    "compile -n 2": ["--fg-modes=compile", "-n", "2", "--maxschedchunk=1"],
    "compile dynamic=auto": ["--fg-modes=compile", "--fg-dynamic=auto"],
    "compile limit=8": ["--fg-modes=compile", "--fg-recompile-limit=8"],
    "compile limit=2": ["--fg-modes=compile", "--fg-recompile-limit=2"],
}


RANDOM = ("test_hypothesis",)
"""In the names of tests whose calls are drawn at random: two runs do not make the same ones."""


def run(suite: str, name: str, options: list[str], folder: Path) -> dict[str, Any]:
    """Run one suite in one way; return its times, outcomes and record."""
    module, keyword = SUITES[suite]
    stopwatch, report = folder / "stopwatch.json", folder / "report.json"
    for path in (stopwatch, report):
        path.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "pytest", "--pyargs", module, "-k", keyword, "-q"),
        *("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "stopwatch_plugin"),
        *("--tb=line", "-W", "ignore::pytest.PytestUnknownMarkWarning", *options),
    ]
    if "--fg-modes" in " ".join(options):
        command.append(f"--fg-report={report}")
    environment = {
        **os.environ,
        "SCIPY_ARRAY_API": "1",
        "PYTHONPATH": os.pathsep.join(
            [str(HERE / "pytest_helpers"), os.environ.get("PYTHONPATH", "")]
        ),
        "STOPWATCH": str(stopwatch),
    }
    output = folder / "output.txt"  # to be read while it runs, which takes minutes
    start = time.perf_counter()
    with output.open("w") as file:
        subprocess.run(
            command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    whole = time.perf_counter() - start
    said = output.read_text()
    if not stopwatch.exists():
        raise SystemExit(f"{suite}, {name}: no run\n{said[-3000:]}")
    result: dict[str, Any] = {
        "options": options,
        "process": whole,
        **json.loads(stopwatch.read_text()),
    }
    if report.exists():
        result |= _measures(json.loads(report.read_text()))
    result["failures"] = [line for line in said.splitlines() if line.startswith("FAILED")]
    return result


def _measures(report: dict[str, Any]) -> dict[str, Any]:
    """Return the deterministic figures of a report."""
    functions = report["functions"]
    calls: dict[str, int] = {}
    for function in functions:
        for outcome, count in function["calls"].items():
            calls[outcome] = calls.get(outcome, 0) + count
    total = sum(calls.values())
    return {
        "calls": calls,
        "coverage": calls.get("graph ran", 0) / max(1, total),
        "over_limit": calls.get("over the limit", 0)
        + sum(function["partly_over_limit"] for function in functions),
        "compiles": sum(len(function["specialisations"]) for function in functions),
        "graphs": sum(function["graphs"] for function in functions),
        "whole_functions": sum(
            function["whole"]
            == sum(function["calls"].values()) - function["calls"].get("raised", 0)
            for function in functions
        ),
        "functions": len(functions),
        "sites": sum(len(function["breaks"]) for function in functions),
        "torch": report["torch"],
    }


def show(suite: str, results: dict[str, dict[str, Any]]) -> None:
    """Print one suite's table."""
    eager, base = (results.get(key) for key in ("eager", "compile"))
    print(f"\n{suite}")
    print(
        f"{'run':24}{'passed':>7}{'failed':>7}{'coverage':>9}{'over':>6}{'compiles':>9}"
        f"{'graphs':>7}{'cpu s':>8}{'/floor':>8}{'/eager':>8}{'wall s':>8}{'/compile':>9}"
    )
    for name, result in results.items():
        outcomes = result["outcomes"]
        coverage = f"{result['coverage']:.1%}" if "coverage" in result else "-"

        def ratio(other: dict[str, Any] | None, key: str, mine: dict[str, Any] = result) -> str:
            if other is None or key not in mine or key not in other:
                return "-"
            return f"{mine[key] / other[key]:.2f}"

        print(
            f"{name:24}{outcomes.get('passed', 0):>7}{outcomes.get('failed', 0):>7}{coverage:>9}"
            f"{result.get('over_limit', '-'):>6}{result.get('compiles', '-'):>9}"
            f"{result.get('graphs', '-'):>7}{result['cpu']:>8.1f}"
            f"{against_floor(result, results.get('floor')):>8}{ratio(eager, 'cpu'):>8}"
            f"{result.get('process', result['wall']):>8.1f}{ratio(base, 'process'):>9}"
        )


def against_floor(result: dict[str, Any], floor: dict[str, Any] | None) -> str:
    """Return CPU time as a ratio to the floor's, over the tests that pass in both.

    A test that fails ends early: counting it would favour the run with more failures.
    """
    if floor is None or "tests" not in floor or "tests" not in result:
        return "-"
    mine, theirs = (
        {
            name: cpu
            for name, cpu in run["tests"].items()
            if isinstance(cpu, float) and not any(word in name for word in RANDOM)
        }
        for run in (result, floor)
    )
    both = mine.keys() & theirs.keys()
    total = sum(theirs[name] for name in both)
    return f"{sum(mine[name] for name in both) / total:.2f}" if total else "-"


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", default=list(SUITES), choices=[*SUITES, []])
    parser.add_argument("--runs", default=",".join(RUNS), help="which of them, with commas")
    parser.add_argument("--repeat", type=int, default=1, help="least CPU time of so many is kept")
    options = parser.parse_args()
    chosen = options.runs.split(",")
    RESULTS.parent.mkdir(exist_ok=True)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for suite in options.suites or SUITES:
        with tempfile.TemporaryDirectory() as folder:
            for name in chosen:
                tries = [run(suite, name, RUNS[name], Path(folder)) for _ in range(options.repeat)]
                stored.setdefault(suite, {})[name] = min(tries, key=lambda one: one["cpu"])
                RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
        show(suite, {name: stored[suite][name] for name in RUNS if name in stored[suite]})


if __name__ == "__main__":
    main()
