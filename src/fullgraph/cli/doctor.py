"""``fullgraph doctor``: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from fullgraph.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Finding", "doctor"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: str
    """"ok", "missing" (something does not work without it), or "note"."""
    found: str
    fix: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--quick", is_flag=True, help="Do not import torch.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, quick: bool) -> None:
    """Say what is installed, what is missing, and how to get it.

    Exits with 3 if torch is missing, too old, or does not compile a small function.
    """
    findings = [*_python(), *_libraries(), *_plugin(), *_compiler()]
    if not quick:
        findings += _torch()
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _print(findings)
    broken = any(f.state == "missing" and f.what.startswith("torch") for f in findings)
    context.exit(Exit.MISSING if broken else Exit.OK)


def _print(findings: list[Finding]) -> None:
    marks = {"ok": ("ok", "green"), "missing": ("missing", "red"), "note": ("note", "yellow")}
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        word, colour = marks[finding.state]
        mark = click.style(word.ljust(7), fg=colour)
        click.echo(f"{mark}  {finding.what.ljust(width)}  {finding.found}")
        if finding.fix:
            click.echo(f"{' ' * (width + 11)}{finding.fix}")


def _python() -> Iterator[Finding]:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield Finding("python", "note", text, "free-threaded Python is not supported yet")
    else:
        yield Finding("python", "ok", text)
    yield Finding("fullgraph", "ok", importlib.metadata.version("fullgraph"))


_LIBRARIES = (
    ("torch", "2.13", "torch", "all of the testing half, and loops on torch (2.14)"),
    ("array-api-extra", "0.11", "testing", "tags of other libraries, and assertions"),
    ("array-api-compat", "1.12", "testing", "namespaces"),
    ("pytest", "8", "testing", "the plugin"),
    ("jax", "0.6", "jax", "loops and the mode jit on JAX"),
    ("dask", "2025.1", "dask", "tests on Dask"),
    ("jinja2", "3", "report", "the HTML report"),
    ("rich", "13", "cli", "fullgraph explain"),
)


def _libraries() -> Iterator[Finding]:
    for name, least, extra, what in _LIBRARIES:
        fix = f"pip install 'fullgraph[{extra}]': {what}"
        # without jax and dask nothing else is lost
        absent = "note" if name in ("jax", "dask") else "missing"
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, absent, "not installed", fix)
            continue
        if _numbers(version) < _numbers(least):
            yield Finding(name, "missing", f"{version}, too old: {least} is needed", fix)
        else:
            yield Finding(name, "ok", version)


def _numbers(version: str) -> tuple[int, ...]:
    parts = []
    for part in version.split("+")[0].split("."):
        digits = "".join(c for c in part if c.isdigit()) if part[:1].isdigit() else ""
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)


def _plugin() -> Iterator[Finding]:
    points = importlib.metadata.entry_points(group="pytest11")
    if any(point.value.startswith("fullgraph.") for point in points):
        if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
            fix = "PYTEST_DISABLE_PLUGIN_AUTOLOAD is set: pytest -p fullgraph.pytest_plugin"
            yield Finding("pytest plugin", "note", "installed, not loaded by itself", fix)
        else:
            yield Finding("pytest plugin", "ok", "loaded by pytest")
    else:
        fix = "pytest -p fullgraph.pytest_plugin, or install fullgraph instead of copying it"
        yield Finding("pytest plugin", "missing", "not registered", fix)


def _compiler() -> Iterator[Finding]:
    names = [name for name in (os.environ.get("CC"), "gcc", "clang") if name]
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        yield Finding(
            "C compiler",
            "note",
            "none found",
            "native loops need gcc or clang, and so does the backend inductor: apt install gcc",
        )
        return
    try:
        done = subprocess.run(  # noqa: S603 - the compiler that the user has
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
        lines = done.stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        lines = []
    yield Finding("C compiler", "ok", f"{path}: {lines[0] if lines else 'version unknown'}")
    if not (sys.platform == "linux" and platform.machine() == "x86_64"):
        yield Finding("native loops", "note", "need Linux on x86-64")


def _torch() -> Iterator[Finding]:
    from fullgraph.errors import FullgraphException
    from fullgraph.testing._dynamo.versions import torch_release

    try:
        torch_release()
    except FullgraphException as error:
        yield Finding("torch.compile", "missing", str(error))
        return
    import torch

    from fullgraph.testing import check_compiled

    threads = f"{torch.get_num_threads()} threads of {os.cpu_count()} processors"
    if (asked := os.environ.get("OMP_NUM_THREADS")) is not None:
        threads += f" (OMP_NUM_THREADS={asked})"
    yield Finding("torch threads", "ok", threads)
    yield _folder("Inductor cache", _inductor_cache())
    yield from _native_cache()
    try:
        check_compiled(_double, (torch.ones(3),))
    except FullgraphException as error:
        yield Finding("torch.compile", "missing", str(error))
    else:
        text = f"captures a small function (torch {torch.__version__})"
        yield Finding("torch.compile", "ok", text)


def _double(x: object) -> object:
    return x * 2  # type: ignore[operator]


def _inductor_cache() -> str:
    import getpass
    import tempfile

    return os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(
        tempfile.gettempdir(), f"torchinductor_{getpass.getuser()}"
    )


def _native_cache() -> Iterator[Finding]:
    """Say where compiled loops are kept, where this installation has native loops."""
    try:
        cache = importlib.import_module("fullgraph.native.cache")
    except ImportError:
        return
    yield _folder("native loop cache", str(cache.cache_folder()))


def _folder(what: str, folder: str) -> Finding:
    if not os.path.isdir(folder):
        return Finding(what, "ok", f"{folder}, empty")
    size = 0
    for place, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(place, name)
            size += os.path.getsize(path) if os.path.isfile(path) else 0
    return Finding(what, "ok", f"{folder}, {size / 1e6:.0f} MB")
