"""Write docs/ecosystem.md: what torch.compile captures of array-api-extra and SciPy, by release.

    python tools/ecosystem.py             # measure with every environment that is there
    python tools/ecosystem.py --keep      # measure only what build/ does not have yet
    python tools/ecosystem.py --suites scipy.cluster.vq,scipy.signal.windows

Measured is one call of every function, the calls of ``examples/audit_demo.py``, and whole suites;
environments are ``.venv`` and ``.venv-torch215``. Records go to ``build/``. Suites take an hour.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from fullgraph.report.markdown import table
from fullgraph.report.measures import (
    calls_to_compile,
    charged_sites,
    compiled_items,
    is_whole,
    place,
    status,
    torch_bug_sites,
    torch_series,
)
from fullgraph.testing import Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from fullgraph.testing import FunctionRecord

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ecosystem.md"
RESULTS = ROOT / "build"
STORED = ROOT / "benchmarks" / "results" / "suites.json"
ENVIRONMENTS = {"torch214": ".venv", "torch215": ".venv-torch215"}
SUITES = {
    "array-api-extra": "array_api_extra.tests.main",
    "scipy.cluster.vq": "scipy.cluster.tests.test_vq",
    "scipy.signal.windows": "scipy.signal.tests.test_windows",
    "scipy.special.logsumexp": "scipy.special.tests.test_logsumexp",
    "scipy.stats.variation": "scipy.stats.tests.test_variation",
    "scipy.stats.entropy": "scipy.stats.tests.test_entropy",
}
MOST_SITES = 15
ICONS = {"good": "🟢", "warn": "🟡", "bad": "🔴", "bug": "🟣", "none": "⚪"}

HEAD = """\
# The state of the ecosystem

What `torch.compile` captures of array-api-extra and of SciPy's array-API functions, as their wheels
ship them: {versions}.

One call of every function on small input (`examples/audit_demo.py` has the calls), in `compile`
mode, where the graph may break, and in `fullgraph` mode. Other inputs of the same function can take
other paths: for a whole suite, `fullgraph audit array_api_extra.tests.main`. This page is written
by `python tools/ecosystem.py`.

🟢 one whole graph · 🟡 captured, with graph breaks · 🔴 ran eagerly: Dynamo gave the function up,
or it is not whole in `fullgraph` mode · 🟣 a known bug of torch · ⚪ nothing to compile

Known bugs of torch are its own: they are listed apart, and held against nobody.
"""

SUITES_HEAD = """
## Whole suites

The torch tests of these modules in `compile` and `fullgraph` mode, as their authors have written
and tagged them. *Whole*: functions that were whole in every call of every test, in both modes.
*Coverage*: of the calls that had something to compile, those that ran a graph, in both modes. Tests
use shapes, dtypes and edge cases that one call does not, so fewer functions are whole here than
above.

"""

REWRITES = """
## Rewrites

For each function of array-api-extra that breaks the graph, `examples/rewrites.py` has one that does
not: array-API code for any namespace, one whole graph in both modes, and equal in value, which
`tests/unit/test_rewrites.py` shows. Where the shape of a result depends on values, the
rewrite returns an array of fixed shape and how many of its elements count.

One has no rewrite: `xpx.at` with a slice. A slice that is stored in an object meets a bug of torch,
`slice-attribute-error` in 2.14 and `slice-attribute-type` in 2.15, whichever way the update is
written around it. `xpx.at` with an index is whole.

"""


def main() -> None:
    """Measure, unless records are given, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="use the records that build/ has")
    parser.add_argument("--suites", default=",".join(SUITES), help="those to run, with commas")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    calls: list[Record] = []
    suites: dict[str, list[Record]] = {name: [] for name in options.suites.split(",") if name}
    for tag, python in environments():
        calls.append(measured(f"ecosystem-{tag}", calls_of_demo(python), keep=options.keep))
        for name in suites:
            command = tests_of(python, SUITES[name])
            suites[name].append(measured(f"suites-{tag}-{name}", command, keep=options.keep))
    PAGE.write_text(page(calls, suites), encoding="utf-8")
    print(f"wrote {PAGE}")


def environments() -> Iterator[tuple[str, Path]]:
    """Return those that are there, the older torch first."""
    for tag, folder in ENVIRONMENTS.items():
        python = ROOT / folder / "bin" / "python"
        if python.exists():
            yield tag, python
        else:
            print(f"{folder} is not there: make env env215")


def calls_of_demo(python: Path) -> list[str]:
    """Return the command that calls every function once; what it writes to comes last."""
    return [str(python), str(ROOT / "examples" / "audit_demo.py"), "--json"]


def tests_of(python: Path, module: str) -> list[str]:
    """Return the command that runs the torch tests of a module in both modes."""
    return [
        *(str(python), "-m", "pytest", "--pyargs", module, "-k", "torch", "-q", "--tb=no"),
        *("-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
        *("-W", "ignore::pytest.PytestUnknownMarkWarning"),
        *("--fg-modes=compile,fullgraph", "--fg-report"),
    ]


def measured(name: str, command: Sequence[str], *, keep: bool) -> Record:
    """Return the record that a command writes, or has written."""
    path = RESULTS / f"{name}.json"
    if not (keep and path.exists()):
        print(name, flush=True)
        with tempfile.TemporaryDirectory() as folder:  # not under a pytest configuration
            # that a test fails is a result too; without a record there is none
            path.unlink(missing_ok=True)
            environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
            subprocess.run([*command, str(path)], cwd=folder, env=environment, check=False)
    return Record.from_json(path.read_text(encoding="utf-8"))


def page(records: Sequence[Record], suites: Mapping[str, Sequence[Record]] | None = None) -> str:
    """Return the text of the page; records in order of torch."""
    versions = " and ".join(f"torch {record.torch.split('+')[0]}" for record in records)
    names = sorted({item.name for record in records for item in record.functions})
    parts = [HEAD.format(versions=versions)]
    groups = {
        "array-api-extra": [n for n in names if n.startswith(("array_api_extra", "__main__"))],
        "SciPy": [n for n in names if n.startswith("scipy")],
    }
    for title, members in groups.items():
        if members:
            parts.append(f"\n## {title}\n\n" + "\n".join(_rows(records, members)) + "\n")
    parts.append(SUITES_HEAD)
    if suites:
        parts.append("\n".join(_suite_rows(suites)) + "\n")
        parts.append("\n".join(_suite_sites(suites)) + "\n")
    parts.append("\n" + "\n".join(_stored_runs()) + "\n")
    parts.append(_bugs(records))
    parts.append(REWRITES + "\n".join(_rewrites()) + "\n")
    return "".join(parts)


def _rows(records: Sequence[Record], names: Sequence[str]) -> Iterator[str]:
    headings = ["function"]
    for record in records:
        series = torch_series(record.torch)
        headings += [f"{series} compile", f"{series} fullgraph"]
    rows = []
    whole = [0] * len(records)
    for name in names:
        cells, why = [f"`{name.rpartition(':')[2]}`"], ""
        for number, record in enumerate(records):
            found = {str(item.mode): item for item in record.functions if item.name == name}
            cells += [_cell(found.get("compile")), _cell(found.get("fullgraph"))]
            whole[number] += bool(found) and all(status(i).level == "good" for i in found.values())
            why = _why(found) or why
        rows.append([*cells, why])
    for number, record in enumerate(records):
        series = torch_series(record.torch)
        yield f"torch {series}: {whole[number]} of {len(names)} whole in both modes."
        yield ""
    yield from table([*headings, "where it breaks first, in the newest torch"], rows)


def _cell(item: FunctionRecord | None) -> str:
    if item is None:
        return ""
    known = status(item)
    return f"{ICONS[known.level]} {known.text}"


def _why(found: dict[str, FunctionRecord]) -> str:
    for mode in ("compile", "fullgraph"):
        if mode in found and (
            sites := [*charged_sites(found[mode]), *torch_bug_sites(found[mode])]
        ):
            site = sites[0]
            file = "/".join(place(site.file, str(ROOT)).split("/")[-2:])
            return f"`{file}:{site.line}` {site.reason.replace('|', ' ')[:80]}"
    return ""


def _suite_rows(suites: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    rows = []
    for name, records in suites.items():
        for record in records:
            by_name: dict[str, list[FunctionRecord]] = {}
            for item in compiled_items(record):
                by_name.setdefault(item.name, []).append(item)
            whole = sum(all(is_whole(item) for item in items) for items in by_name.values())
            items = [item for several in by_name.values() for item in several]
            sites = {site.key for item in items for site in charged_sites(item)}
            ran = sum(item.calls.get(Outcome.GRAPH_RAN, 0) for item in items)
            could = sum(map(calls_to_compile, items))
            covered = f"{100 * ran // could} %" if could else ""
            series = torch_series(record.torch)
            rows.append(
                [f"`{name}`", series, f"{whole} of {len(by_name)}", covered, str(len(sites))]
            )
    yield from table(["suite", "torch", "whole", "coverage", "break sites"], rows)


def _stored_runs() -> Iterator[str]:
    """Yield what the benchmark of suites has stored."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    rows = []
    for suite, runs in stored.items():
        for mode in ("compile", "fullgraph"):
            if found := runs.get(mode):
                passed, failed = (found["outcomes"].get(n, 0) for n in ("passed", "failed"))
                whole = f"{found['whole_functions']} of {found['functions']}"
                calls = sum(found["calls"].values())
                ran = f"{100 * found['calls'].get('graph ran', 0) // calls} % of {calls}"
                tests = f"{passed} passed, {failed} failed"
                if failed and "eager" in runs:
                    tests += f" ({runs['eager']['outcomes'].get('failed', 0)} in eager mode too)"
                rows.append([suite, mode, tests, whole, ran, str(found["sites"])])
    if rows:
        version = next(iter(stored.values()))["compile"]["torch"].split("+")[0]
        yield f"One mode a run, torch {version}, as `python benchmarks/suites.py` has stored it;"
        yield "the calls include those that raise, as tested:"
        yield ""
        headings = ["suite", "mode", "tests", "whole", "calls that ran a graph", "break sites"]
        yield from table(headings, rows)


def _suite_sites(suites: Mapping[str, Sequence[Record]]) -> Iterator[str]:
    """Yield the places in the newest torch that most functions run into."""
    users: dict[tuple[str, str], set[str]] = {}
    for records in suites.values():
        for item in compiled_items(records[-1]):
            for site in charged_sites(item):
                file = "/".join(place(site.file, str(ROOT)).split("/")[-2:])
                reason = site.reason.replace("|", " ")[:80]
                users.setdefault((f"{file}:{site.line}", reason), set()).add(item.name)
    if not users:
        return
    ordered = sorted(users, key=lambda key: (-len(users[key]), key))[:MOST_SITES]
    yield ""
    yield "Where they break, the places that most functions run into, in the newest torch:"
    yield ""
    yield from table(
        ["where", "why", "functions"],
        [[f"`{where}`", why, str(len(users[where, why]))] for where, why in ordered],
    )


def _bugs(records: Sequence[Record]) -> str:
    lines = []
    for record in records:
        found: dict[str, set[str]] = {}
        for item in record.functions:
            for site in torch_bug_sites(item):
                found.setdefault(str(site.torch_bug), set()).add(item.name.rpartition(":")[2])
        for bug, users in sorted(found.items()):
            named = ", ".join(f"`{user}`" for user in sorted(users))
            lines.append(f"- torch {torch_series(record.torch)}, {bug}: {named}")
    return "\n## Known bugs of torch\n\n" + "\n".join(lines) + "\n" if lines else ""


def _rewrites() -> Iterator[str]:
    tree = ast.parse((ROOT / "examples" / "rewrites.py").read_text(encoding="utf-8"))
    rows = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            said = (ast.get_docstring(node) or "").splitlines()[0]
            if node.name != "main":
                rows.append([f"`{node.name}`", said, str(node.lineno)])
    yield from table(["function", "what the rewrite gives", "line"], rows)


if __name__ == "__main__":
    main()
