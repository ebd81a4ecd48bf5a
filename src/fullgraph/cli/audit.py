"""``fullgraph audit``: the test suite of a package in all modes, and what it shows."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fullgraph.cli.exits import Exit

if TYPE_CHECKING:
    from fullgraph.cli.files import RecordFile

__all__ = ["audit", "command_for"]

_PYTEST_FAILED, _PYTEST_INTERRUPTED, _PYTEST_NO_TESTS = 1, 2, 5
_PATIENCE = 60.0
"""Seconds that pytest may take to end after an interrupt."""


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("package")
@click.argument("pytest_args", nargs=-1, type=click.UNPROCESSED)
@click.option("-n", "workers", type=int, default=0, help="Worker processes (pytest-xdist).")
@click.option("--modes", default="eager,compile,fullgraph", show_default=True)
@click.option("--recompile-limit", type=int, default=256, show_default=True)
@click.option("--all-backends", is_flag=True, help="Run tests of other backends than torch too.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default="fullgraph-audit.json",
    show_default=True,
    help="Record file to write.",
)
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="HTML report.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def audit(
    context: click.Context,
    package: str,
    pytest_args: tuple[str, ...],
    workers: int,
    modes: str,
    recompile_limit: int,
    all_backends: bool,
    out: Path,
    html: Path | None,
    as_json: bool,
) -> None:
    """Run the tests of PACKAGE in all modes, and say what torch.compile captures of it.

    \b
    fullgraph audit array_api_extra -n 2
    fullgraph audit tests/ -n 2 --html report.html
    fullgraph audit scipy.stats -n 2 -- -k variation

    PACKAGE is a folder or file of tests, or an installed package that has its tests with it. What
    follows -- goes to pytest, whose output goes to the error stream. Interrupted with Ctrl-C, what
    was recorded until then is kept.

    Exits with 0 if all tests pass, 1 if some fail, 2 if there are none, 130 if interrupted.
    """  # noqa: D301 - click reads \b, not its spelling
    from fullgraph.testing._dynamo.versions import torch_release

    torch_release()
    with tempfile.TemporaryDirectory(prefix="fullgraph-audit-") as folder:
        settings = Settings(package, pytest_args, workers, modes, recompile_limit, all_backends)
        ended = _run(settings, Path(folder))
        file = _results(Path(folder), ended)
    if ended.code not in (0, _PYTEST_FAILED, _PYTEST_INTERRUPTED) and not file.record.functions:
        what = "found no tests" if ended.code == _PYTEST_NO_TESTS else "could not run the tests"
        text = f"fullgraph audit: pytest {what} of {package} (exit code {ended.code})"
        click.echo(text, err=True)
        context.exit(Exit.USAGE)
    _publish(file, ended, out=out, html=html, as_json=as_json)
    if ended.interrupted:
        context.exit(Exit.INTERRUPTED)
    context.exit(Exit.OK if ended.code == 0 else Exit.FOUND)


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run, and how."""

    package: str
    pytest_args: tuple[str, ...] = ()
    workers: int = 0
    modes: str = "eager,compile,fullgraph"
    recompile_limit: int = 256
    all_backends: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """How pytest ended."""

    code: int
    interrupted: bool
    seconds: float
    cpu_seconds: float | None


def command_for(settings: Settings, report: Path) -> list[str]:
    """Return the pytest command.

    Raises
    ------
    UsageError
        If the package is neither a path nor can be imported.
    MissingBackendError
        If workers are asked for without pytest-xdist.
    """
    from fullgraph.errors import MissingBackendError, UsageError

    target = [settings.package]
    if not os.path.exists(settings.package.partition("::")[0]):
        if not _can_be_imported(settings.package):
            raise UsageError(
                f"{settings.package!r} is no path and no installed package: name a folder of "
                "tests, or a package that has its tests with it"
            )
        target = ["--pyargs", settings.package]
    command = [
        *(sys.executable, "-m", "pytest", *target, "-q", "--tb=short"),
        *("-p", "no:cacheprovider", "-p", "fullgraph.plugin.keep"),
        *("-W", "ignore::pytest.PytestUnknownMarkWarning"),
        f"--fg-modes={settings.modes}",
        f"--fg-recompile-limit={settings.recompile_limit}",
        f"--fg-report={report}",
    ]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        command += ["-p", "fullgraph.pytest_plugin"]
    if settings.workers:
        if importlib.util.find_spec("xdist") is None:
            raise MissingBackendError("-n needs pytest-xdist: pip install pytest-xdist")
        command += ["-n", str(settings.workers), "--dist=worksteal"]
    return [*command, *settings.pytest_args]


def _can_be_imported(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def _run(settings: Settings, folder: Path) -> Ended:
    command = command_for(settings, folder / "report.json")
    environment = {
        **os.environ,
        "SCIPY_ARRAY_API": "1",  # without it SciPy's tests know NumPy only
        "FULLGRAPH_KEEP": str(folder),
        "FULLGRAPH_KEEP_ONLY": "" if settings.all_backends else "torch",
    }
    # away from a project's own pytest settings, if the tests are not its own
    where = str(folder) if "--pyargs" in command else None
    start, cpu = time.perf_counter(), _children_cpu()
    interrupted = False
    process = subprocess.Popen(  # noqa: S603 - runs the tests that the user names
        command, env=environment, cwd=where, stdout=sys.stderr.fileno()
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:  # pytest has got it too
        interrupted = True
        code = _end(process)
    spent, now = time.perf_counter() - start, _children_cpu()
    return Ended(
        code,
        interrupted or code == _PYTEST_INTERRUPTED,
        spent,
        # workers that were stopped have not been waited for, and are not counted
        None if cpu is None or now is None or interrupted else now - cpu,
    )


def _end(process: subprocess.Popen[bytes]) -> int:
    """Wait for an interrupted process; a second interrupt, or a long wait, ends it at once."""
    try:
        return process.wait(_PATIENCE)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        process.kill()
        return process.wait()


def _children_cpu() -> float | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _results(folder: Path, ended: Ended) -> RecordFile:
    """Return what was recorded: the report of a finished run, or what its processes have kept."""
    from fullgraph.cli.files import RecordFile, merged, read

    report = folder / "report.json"
    run: dict[str, Any] = {}
    if report.exists():
        finished = read(report)
        if not ended.interrupted and not finished.run.get("lost_workers"):
            return finished
        run = finished.run
    parts = merged(read(path) for path in sorted(folder.glob("part-*.json")))
    return RecordFile(parts.record, {**run, "interrupted": ended.interrupted})


def _publish(
    file: RecordFile, ended: Ended, *, out: Path, html: Path | None, as_json: bool
) -> None:
    from fullgraph.cli.files import write
    from fullgraph.cli.report import print_record

    notes = []
    if ended.interrupted:
        notes.append("The run was interrupted: this is what it had recorded until then.")
    write(out, file)
    if html is not None:
        from fullgraph.report.html import render_html

        html.write_text(render_html(file.record, root=os.getcwd(), notes=notes), encoding="utf-8")
    if as_json:
        data = {**json.loads(file.record.to_json()), "run": file.run}
        click.echo(json.dumps(data, indent=1))
    else:
        print_record(file)
    cpu = "" if ended.cpu_seconds is None else f", {ended.cpu_seconds:.0f} s of processor time"
    written = " and ".join(str(path) for path in (out, html) if path is not None)
    for line in (*notes, f"wrote {written}; {ended.seconds:.0f} s{cpu}"):
        click.echo(line, err=True)
