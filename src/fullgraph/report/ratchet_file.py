"""The text of a baseline file: TOML, sorted, one fact a line.

.. code-block:: toml

    format = 1

    ["2.14"."mypkg.stats:mean"]
    compile.whole = true
    fullgraph.whole = true

    ["2.14"."mypkg.stats:mode"]
    compile.recompiles = 2
    compile.breaks = [
        "mypkg/stats.py mode: Data-dependent branching",
    ]

    # end of torch 2.14

A line says one thing, defaults are left out, every list has a comma after its last item, and lines
that do not change lie between functions and series: changes to two functions merge in git.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.report.ratchet import Baseline, Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["FORMAT", "from_text", "to_text"]

FORMAT = 1
"""Version of the form; another one is refused."""

_HEAD = """\
# What torch.compile captures of this project, by torch series and function. Written by
# `pytest --fg-modes=compile,fullgraph --fg-baseline=FILE --fg-update-baseline`; without the last
# option, the run fails if anything here has got worse.
"""
_FIELDS = {"whole": bool, "coverage": int, "recompiles": int, "breaks": list}


def to_text(baseline: Baseline) -> str:
    """Return the text of a baseline file; `from_text` is the inverse.

    Returns
    -------
    str
        TOML, sorted, one fact a line.
    """
    return _HEAD + f"format = {FORMAT}\n" + "".join(_blocks(baseline))


def _blocks(baseline: Baseline) -> Iterator[str]:
    for series, entries in sorted(baseline.by_torch.items(), key=lambda pair: _by_number(pair[0])):
        if not entries:  # compared with, and nothing in it
            yield f"\n[{_quoted(series)}]\n"
        functions: dict[str, list[str]] = {}
        for (function, mode), entry in sorted(entries.items()):
            functions.setdefault(function, []).extend(_lines(mode, entry))
        for function, lines in functions.items():
            yield f"\n[{_quoted(series)}.{_quoted(function)}]\n" + "\n".join(lines) + "\n"
        # what git keeps between a change to the last function and another series that is added
        yield f"\n# end of torch {series}\n"


def _lines(mode: str, entry: Entry) -> Iterator[str]:
    yield f"{mode}.whole = {str(entry.whole).lower()}"
    if entry.coverage != 100:
        yield f"{mode}.coverage = {entry.coverage}"
    if entry.recompiles:
        yield f"{mode}.recompiles = {entry.recompiles}"
    if entry.breaks:
        yield f"{mode}.breaks = ["
        for name, count in sorted(entry.breaks.items()):
            yield from [f"    {_quoted(name)},"] * count
        yield "]"


def _by_number(series: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in series.split(".")]


def _quoted(text: str) -> str:
    # JSON's escapes are TOML's, save that TOML also wants DEL escaped
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def from_text(text: str, name: str = "baseline") -> Baseline:
    """Return the baseline that `to_text` wrote.

    Parameters
    ----------
    text : str
        Content of the file.
    name : str, optional
        What to call it in an error.

    Returns
    -------
    Baseline
        Entries by torch series, function and mode.

    Raises
    ------
    UsageError
        If it is not a baseline, or one of another version.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = ""
        if any(line.startswith(("<<<<<<<", ">>>>>>>")) for line in text.splitlines()):
            hint = ": it has conflict markers of a merge; keep both sides, and update the baseline"
        raise UsageError(f"{name} is no baseline: {error}{hint}") from None
    found = data.pop("format", None)
    if found != FORMAT:
        raise UsageError(
            f"{name} has format {found!r}, and this version of fullgraph reads format {FORMAT}: "
            "write it anew with --fg-update-baseline, or use the version that wrote it"
        )
    return Baseline(
        {series: _entries(name, series, functions) for series, functions in data.items()}
    )


def _entries(name: str, series: str, functions: Any) -> Mapping[tuple[str, str], Entry]:
    entries = {}
    for function, modes in _table(functions, f"{name}: [{series}]").items():
        where = f"{name}: [{series}.{function}]"
        for mode, fields in _table(modes, where).items():
            entries[function, mode] = _entry(_table(fields, f"{where} {mode}"), f"{where} {mode}")
    return entries


def _entry(fields: Mapping[str, Any], where: str) -> Entry:
    for key, value in fields.items():
        kind = _FIELDS.get(key)
        if kind is None or type(value) is not kind:
            what = "is not known" if kind is None else f"= {value!r} is no {kind.__name__}"
            raise UsageError(f"{where}: {key} {what}; write the file with --fg-update-baseline")
    return Entry(**{**fields, "breaks": dict(Counter(map(str, fields.get("breaks", ()))))})


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is not a table; write the file with --fg-update-baseline")
    return value
