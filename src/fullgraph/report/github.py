"""Break sites as annotations of GitHub Actions: lines that show up beside the code of a change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fullgraph.report.measures import charged_sites, compiled_items
from fullgraph.testing._advice import advice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fullgraph.report.ratchet import Comparison
    from fullgraph.testing._records import BreakSite, Record

__all__ = ["workflow_commands"]

_MOST = 10
"""GitHub shows ten annotations of a kind for each step, and drops the rest without a word."""


def workflow_commands(
    record: Record, *, root: str, comparison: Comparison | None = None, most: int = _MOST
) -> list[str]:
    """Return workflow commands: a warning for each break site, an error for each one that is new.

    Parameters
    ----------
    record : Record
        Of a run.
    root : str
        Root of the repository. Sites in files outside it cannot be annotated; they are counted.
    comparison : Comparison, optional
        With a baseline: what is worse becomes an error.
    most : int, optional
        How many of each kind.

    Returns
    -------
    list of str
        One command a line, as a workflow prints them; what is beyond `most` is counted in a notice.

    Examples
    --------
    >>> from fullgraph.testing import BreakSite, FunctionRecord, Mode, Record
    >>> site = BreakSite("/repo/f.py", 3, "f", "Data-dependent branching")
    >>> item = FunctionRecord("m:f", Mode.COMPILE, "trace", breaks=(site,))
    >>> print(*workflow_commands(Record((item,)), root="/repo"))  # doctest: +ELLIPSIS
    ::warning file=f.py,line=3,title=graph break in f::Data-dependent branching...
    """
    worse = _worse_sites(comparison)
    errors: list[str] = []
    warnings: list[str] = []
    outside = 0
    for site, users in _sites(record):
        path = _relative(site.file, root)
        if path is None:
            outside += 1
            continue
        is_new = site.key in worse
        title = f"{'new graph break' if is_new else 'graph break'} in {site.function or '?'}"
        text = site.reason
        if what := advice(site.reason, site.explanation):
            text += f"\ninstead: {what}"
        text += f"\nmet by {', '.join(users[:5])}{' and others' if len(users) > 5 else ''}"
        line = _command("error" if is_new else "warning", path, site.line, title, text)
        (errors if is_new else warnings).append(line)
    lines = errors[:most] + warnings[:most]
    hidden = max(0, len(errors) - most) + max(0, len(warnings) - most)
    if hidden or outside:
        said = [f"{hidden} more break sites"] if hidden else []
        said += [f"{outside} break sites in files outside this repository"] if outside else []
        lines.append(f"::notice title=fullgraph::{_data(' and '.join(said))}")
    return lines


def _worse_sites(comparison: Comparison | None) -> set[tuple[str, int, str]]:
    changes = comparison.worse if comparison is not None else ()
    return {site.key for change in changes for site in change.sites}


def _sites(record: Record) -> Iterator[tuple[BreakSite, list[str]]]:
    """Give each site once, those with most calls first, and the functions that meet it."""
    found: dict[tuple[str, int, str], tuple[BreakSite, dict[str, None]]] = {}
    calls: dict[tuple[str, int, str], int] = {}
    for item in compiled_items(record):
        for site in charged_sites(item):
            found.setdefault(site.key, (site, {}))[1][item.name] = None
            calls[site.key] = calls.get(site.key, 0) + site.calls
    for key in sorted(found, key=lambda key: (-calls[key], key)):
        site, users = found[key]
        yield site, list(users)


def _relative(file: str, root: str) -> str | None:
    path, base = file.replace("\\", "/"), root.replace("\\", "/").rstrip("/")
    if "/site-packages/" in path or not path.startswith(base + "/"):
        return None
    return path[len(base) + 1 :]


def _command(kind: str, file: str, line: int, title: str, text: str) -> str:
    return f"::{kind} file={_property(file)},line={line},title={_property(title)}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
