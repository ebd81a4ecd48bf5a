"""What the reports say of one function's record: whole or not, covered or not, and where it breaks.

Pure functions; every rendering uses the same ones, so that no two of them disagree.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

from fullgraph.testing._modes import Mode
from fullgraph.testing._records import Outcome

if TYPE_CHECKING:
    from fullgraph.testing._records import BreakSite, FunctionRecord, Record

__all__ = [
    "USER_BACKEND",
    "Status",
    "calls_to_compile",
    "charged_sites",
    "compiled_items",
    "coverage_percent",
    "is_whole",
    "mode_label",
    "place",
    "status",
    "torch_bug_sites",
    "torch_series",
]

USER_BACKEND = "user"
"""Backend of records of a `torch.compile` that is the project's own."""

_COMPILED = (Mode.COMPILE, Mode.FULLGRAPH)
_RAISING = "Observed exception"
"""Dynamo's reason where an exception leaves what is compiled."""
_NOT_ANSWERED = (Outcome.RAISED, Outcome.TORCH_BUG)
_SHOULD_HAVE_RUN = (Outcome.FRAME_SKIPPED, Outcome.OVER_LIMIT, Outcome.FAILED)


def compiled_items(record: Record) -> list[FunctionRecord]:
    """Return the records of compiled modes of torch; eager calls are no news."""
    return [item for item in record.functions if item.mode in _COMPILED]


def mode_label(item: FunctionRecord) -> str:
    """Return the mode as reports write it; "own" for a `torch.compile` of the project's own."""
    return "own" if item.backend == USER_BACKEND else str(item.mode)


def is_whole(item: FunctionRecord) -> bool:
    """Whether every call that returned was one whole graph, or needed none.

    Calls that raised (eager code does too) and calls that a known bug of torch spoiled say nothing
    about the function; a function with no other call is not whole.
    """
    answered = item.total_calls - sum(item.calls.get(outcome, 0) for outcome in _NOT_ANSWERED)
    return 0 < answered == item.whole


def coverage_percent(item: FunctionRecord) -> int:
    """Return how many of the calls with something to compile ran a graph, in per cent.

    Rounded down, so that 100 is said only of all. Calls that raised, had no tensor or were traced
    and empty are left out: adding a test of an error does not change the number.
    """
    meant = calls_to_compile(item)
    return 100 if meant == 0 else 100 * item.calls.get(Outcome.GRAPH_RAN, 0) // meant


def calls_to_compile(item: FunctionRecord) -> int:
    """Return how many calls had something to compile, as far as is known."""
    return sum(item.calls.get(outcome, 0) for outcome in (Outcome.GRAPH_RAN, *_SHOULD_HAVE_RUN))


def charged_sites(item: FunctionRecord) -> list[BreakSite]:
    """Return the break sites that are the project's own affair, in order of file and line.

    Left out are known bugs of torch, and where a call that raises in eager mode too left the graph
    by its exception: a test of an error message is no graph break.
    """
    sites = [site for site in item.breaks if site.torch_bug is None]
    raised = item.calls.get(Outcome.RAISED, 0)
    if raised and is_whole(item):
        return []  # every call that returned was whole, so that only the others can have met them
    return [site for site in sites if not (site.reason == _RAISING and site.calls <= raised)]


def torch_bug_sites(item: FunctionRecord) -> list[BreakSite]:
    """Return the sites that are known bugs of torch."""
    return [site for site in item.breaks if site.torch_bug is not None]


def torch_series(version: str) -> str:
    """Return the part of a torch version that reports compare by: "2.14" of "2.14.1+cpu"."""
    parts = version.split("+")[0].split(".")
    return ".".join(parts[:2]) if version else "unknown"


def place(file: str, root: str = "") -> str:
    """Return a file's name as on every machine: from the project's root, or as it is imported.

    A leading ``src/`` is dropped, so that a checkout and an installed package agree.

    Parameters
    ----------
    file : str
        Absolute path.
    root : str, optional
        Folder of the project.

    Examples
    --------
    >>> place("/home/me/pkg/src/pkg/stats.py", "/home/me/pkg")
    'pkg/stats.py'
    >>> place("/venv/lib/python3.11/site-packages/scipy/stats/_stats_py.py")
    'scipy/stats/_stats_py.py'
    """
    path = file.replace("\\", "/")
    if "/site-packages/" in path:
        return path.rpartition("/site-packages/")[2]
    base = str(root).replace("\\", "/").rstrip("/")
    if base and path.startswith(base + "/"):
        return path[len(base) + 1 :].removeprefix("src/")
    parts = PurePath(path).parts
    for number, part in enumerate(parts):  # the standard library
        if part.startswith("python3") and number and parts[number - 1] in ("lib", "lib64"):
            return "/".join(parts[number + 1 :])
    return path


class Status(NamedTuple):
    """One word or two about a function in a mode."""

    text: str
    level: str
    """"good", "warn", "bad", "bug" (a known bug of torch) or "none" (nothing can be said)."""


def status(item: FunctionRecord) -> Status:
    """Return what a table says of one record.

    Examples
    --------
    >>> from fullgraph.testing import FunctionRecord, Mode, Outcome
    >>> status(FunctionRecord("m:f", Mode.COMPILE, "trace", {Outcome.GRAPH_RAN: 3}, whole=3)).text
    'whole'
    """
    calls, sites = item.calls, charged_sites(item)
    if not sum(item.calls.get(o, 0) for o in Outcome if o not in _NOT_ANSWERED):
        if calls.get(Outcome.TORCH_BUG):
            return Status("torch bug", "bug")
        return Status("only raises", "none") if item.total_calls else Status("not called", "none")
    if is_whole(item):
        ran = calls.get(Outcome.GRAPH_RAN) or item.graphs_run
        return Status("whole", "good") if ran else Status("nothing to compile", "none")
    if not calls.get(Outcome.GRAPH_RAN):
        return Status("not whole" if item.mode is Mode.FULLGRAPH else "not compiled", "bad")
    if sites:
        return Status("1 break" if len(sites) == 1 else f"{len(sites)} breaks", "warn")
    if calls.get(Outcome.OVER_LIMIT) or item.partly_over_limit:
        return Status("over the limit", "bad")
    return Status("partly compiled", "bad")
