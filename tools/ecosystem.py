"""Write docs/ecosystem.md: what torch.compile captures of array-api-extra and SciPy, by release.

    python tools/ecosystem.py                       # measure with every environment that is there
    python tools/ecosystem.py --use RECORD.json ... # write the page from records taken before

Measured is one call of every function, the calls of ``examples/audit_demo.py``; environments are
``.venv`` and ``.venv-torch215``. Records go to ``build/ecosystem-*.json``.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from fullgraph.report.markdown import table
from fullgraph.report.measures import charged_sites, place, status, torch_bug_sites, torch_series
from fullgraph.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fullgraph.testing import FunctionRecord

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "ecosystem.md"
RESULTS = ROOT / "build"
ENVIRONMENTS = (".venv", ".venv-torch215")
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

REWRITES = """
## Rewrites

For each function of array-api-extra that breaks the graph, `examples/rewrites.py` has one that does
not: array-API code for any namespace, one whole graph in both modes, and equal in value, which
`tests/unit/test_rewrites.py` shows. Where the shape of a result depends on values, the
rewrite returns an array of fixed shape and how many of its elements count.

"""


def main() -> None:
    """Measure, unless records are given, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--use", nargs="+", type=Path, help="records taken before")
    options = parser.parse_args()
    paths = options.use or list(measured())
    records = [Record.from_json(path.read_text(encoding="utf-8")) for path in paths]
    records.sort(key=lambda record: [int(n) for n in torch_series(record.torch).split(".")])
    PAGE.write_text(page(records), encoding="utf-8")
    print(f"wrote {PAGE}")


def measured() -> Iterator[Path]:
    """Run the calls in each environment; give the record files."""
    RESULTS.mkdir(exist_ok=True)
    for name in ENVIRONMENTS:
        python = ROOT / name / "bin" / "python"
        if not python.exists():
            print(f"{name} is not there: make env env215")
            continue
        path = (
            RESULTS / f"ecosystem-{name.removeprefix('.venv').removeprefix('-') or 'torch214'}.json"
        )
        subprocess.run(
            [python, ROOT / "examples" / "audit_demo.py", "--json", path], cwd=ROOT, check=True
        )
        yield path


def page(records: Sequence[Record]) -> str:
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
