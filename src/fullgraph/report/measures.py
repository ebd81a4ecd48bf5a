"""What the reports say of one function's record: whole or not, covered or not, and where it breaks.

Pure functions; every rendering uses the same ones, so that no two of them disagree.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from fullgraph.testing._records import Outcome

if TYPE_CHECKING:
    from fullgraph.testing._records import BreakSite, FunctionRecord

__all__ = [
    "USER_BACKEND",
    "charged_sites",
    "coverage_percent",
    "is_whole",
    "mode_label",
    "place",
    "torch_bug_sites",
    "torch_series",
]

USER_BACKEND = "user"
"""Backend of records of a `torch.compile` that is the project's own."""

_NOT_ANSWERED = (Outcome.RAISED, Outcome.TORCH_BUG)
_SHOULD_HAVE_RUN = (Outcome.FRAME_SKIPPED, Outcome.OVER_LIMIT, Outcome.FAILED)


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
    ran = item.calls.get(Outcome.GRAPH_RAN, 0)
    meant = ran + sum(item.calls.get(outcome, 0) for outcome in _SHOULD_HAVE_RUN)
    return 100 if meant == 0 else 100 * ran // meant


def charged_sites(item: FunctionRecord) -> list[BreakSite]:
    """Return the break sites that are the project's own affair, in order of file and line."""
    return [site for site in item.breaks if site.torch_bug is None]


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
