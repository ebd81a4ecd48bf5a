"""``fullgraph report``: render, merge and compare record files."""

from __future__ import annotations

import dataclasses
import json
import linecache
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fullgraph.cli.exits import Exit

if TYPE_CHECKING:
    from fullgraph.cli.files import RecordFile
    from fullgraph.report.ratchet import Comparison
    from fullgraph.testing._tags import Tag

__all__ = ["print_record", "report"]

_FILE = click.Path(dir_okay=False, path_type=Path, allow_dash=True)


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--html", type=_FILE, metavar="FILE", help="Write an HTML report.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write Markdown; - is the terminal.")
@click.option("--github", is_flag=True, help="Print annotations of GitHub Actions.")
@click.option(
    "--capabilities",
    type=click.Choice(["markdown", "rst"]),
    help="Print a table of functions and the ways in which they work.",
)
@click.option(
    "--tags",
    multiple=True,
    metavar="MODULE",
    help="A module whose tags say what JAX and Dask are held to, for --capabilities.",
)
@click.option("--merge", type=_FILE, metavar="FILE", help="Write one record file of all.")
@click.option("--compare", metavar="FILE", help="Compare with an older record file.")
@click.option("--baseline", type=_FILE, metavar="FILE", help="Compare with a baseline file.")
@click.option("--update-baseline", is_flag=True, help="Write the baseline file.")
@click.option("--root", default=".", show_default=True, help="Folder of the project.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def report(context: click.Context, /, files: tuple[str, ...], **options: Any) -> None:
    """Show, render, merge and compare record files, as --fg-report writes them.

    \b
    fullgraph report run.json                          a table
    fullgraph report worker*.json --html report.html   merged, for a browser
    fullgraph report new.json --compare old.json       what got worse, what better

    Exits with 1 if a comparison finds something worse.
    """  # noqa: D301 - click reads \b, not its spelling
    from fullgraph.cli.files import merged, read

    file = merged(map(read, files))
    options["root"] = os.path.abspath(options["root"])
    comparison = _comparison(file, options)
    _write(file, comparison, options)
    if options["as_json"]:
        click.echo(_json(file, comparison))
    elif not _is_said(options):
        print_record(file)
    if comparison is not None and not options["as_json"]:
        from fullgraph.report.ratchet_text import describe

        for line in describe(comparison, root=options["root"], source=linecache.getline):
            click.echo(line)
    failed = comparison is not None and comparison.failed and not options["update_baseline"]
    context.exit(Exit.FOUND if failed else Exit.OK)


def _is_said(options: dict[str, Any]) -> bool:
    """Whether some output was asked for in place of the table."""
    names = ("html", "markdown", "github", "capabilities", "merge", "compare", "baseline")
    return any(options[name] for name in names)


def _comparison(file: RecordFile, options: dict[str, Any]) -> Comparison | None:
    from fullgraph.cli.files import read
    from fullgraph.errors import UsageError
    from fullgraph.report.ratchet import Baseline, compare, updated
    from fullgraph.report.ratchet_file import from_text, to_text

    path, root = options["baseline"], options["root"]
    if options["compare"] and path:
        raise UsageError("--compare and --baseline are two comparisons: ask for one")
    if options["update_baseline"] and not path:
        raise UsageError("--update-baseline needs --baseline FILE: what to write")
    if options["compare"]:
        old = read(options["compare"]).record
        # an old record of another torch is compared too: that is what is asked for
        before = updated(
            Baseline(), dataclasses.replace(old, torch=file.record.torch), root=root, complete=True
        )
        return compare(before, file.record, root=root, complete=True)
    if not path:
        return None
    if not path.exists() and not options["update_baseline"]:
        raise UsageError(f"there is no file {path}: write it with --update-baseline")
    text = path.read_text(encoding="utf-8") if path.exists() else None
    before = Baseline() if text is None else from_text(text, str(path))
    found = compare(before, file.record, root=root, complete=False)
    if options["update_baseline"]:
        after = updated(before, file.record, root=root, complete=False)
        path.write_text(to_text(after), encoding="utf-8")
        click.echo(f"baseline {path} updated (torch {file.record.torch})", err=True)
        return None if found.missing_torch else found
    return found


def _write(file: RecordFile, comparison: Comparison | None, options: dict[str, Any]) -> None:
    record, root = file.record, options["root"]
    if options["html"]:
        from fullgraph.report.html import render_html

        _save(options["html"], render_html(record, root=root))
    if options["markdown"]:
        from fullgraph.report.markdown import render_markdown

        _save(options["markdown"], render_markdown(record, root=root, comparison=comparison))
    if options["github"]:
        from fullgraph.report.github import workflow_commands

        for line in workflow_commands(record, root=root, comparison=comparison):
            click.echo(line)
    if options["capabilities"]:
        from fullgraph.report.capabilities import capabilities, render_capabilities

        rows = capabilities(record, _tags(options["tags"]))
        click.echo(render_capabilities(rows, options["capabilities"]), nl=False)
    if options["merge"]:
        from fullgraph.cli.files import write

        write(options["merge"], file)
        click.echo(f"wrote {options['merge']}", err=True)


def _save(path: Path, text: str) -> None:
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    path.write_text(text, encoding="utf-8")
    click.echo(f"wrote {path}", err=True)


def _tags(modules: tuple[str, ...]) -> dict[str, Tag]:
    from fullgraph.cli.values import imported
    from fullgraph.testing._discover import tagged_targets

    return {
        target.display_name: target.tag
        for name in modules
        for target in tagged_targets(imported(name))
    }


def _json(file: RecordFile, comparison: Comparison | None) -> str:
    data: dict[str, Any] = json.loads(file.record.to_json())
    data["run"] = file.run
    if comparison is not None:
        data = {
            "failed": comparison.failed,
            "missing_torch": comparison.missing_torch,
            "compared": comparison.compared,
            "worse": [dataclasses.asdict(change) for change in comparison.worse],
            "better": [dataclasses.asdict(change) for change in comparison.better],
            "record": data,
        }
    return json.dumps(data, indent=1)


def print_record(file: RecordFile, *, verbosity: int = 0) -> None:
    """Print the table that a test run ends with."""
    import shutil

    from fullgraph.report.summary import summarise
    from fullgraph.report.terminal import render

    run = file.run
    summary = summarise(
        file.record,
        limit=int(run.get("recompile_limit", 256)),
        tagged=run.get("tagged", ()),
        bypassed=run.get("bypassed", {}),
        tests=run.get("tests", {}),
        lost_workers=run.get("lost_workers", ()),
    )
    width = shutil.get_terminal_size((120, 24)).columns
    for line in render(summary, verbosity=verbosity, width=width):
        colour = next((word for word in line.markup if word in ("green", "yellow", "red")), None)
        click.echo(click.style(line.text, fg=colour, bold="bold" in line.markup))
    sys.stdout.flush()
