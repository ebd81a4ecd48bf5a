"""What pyproject.toml says: budgets of functions whose tag carries none, and a baseline file.

.. code-block:: toml

    [tool.fullgraph]
    baseline = "fullgraph.toml"                                  # as --fg-baseline=fullgraph.toml

    [tool.fullgraph.budgets]
    "mypkg.stats:mean" = 0                                       # whole
    "mypkg.stats:mode" = { graph_breaks = 3, recompiles = 10 }
    "mypkg.sparse*" = true                                       # any number of breaks
"""

from __future__ import annotations

import fnmatch
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from fullgraph.errors import UsageError
from fullgraph.testing._modes import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Budgets", "read_baseline", "read_budgets"]

_TABLE = {"baseline", "budgets"}
_KEYS = {"graph_breaks", "recompiles"}
_WILD = "*?["


class Budgets:
    """Budgets by ``module:qualname``, or by a pattern of it; the exact name comes first."""

    def __init__(self, table: dict[str, Budget]) -> None:
        self._exact = {name: b for name, b in table.items() if not set(name) & set(_WILD)}
        self._patterns = [(name, b) for name, b in table.items() if name not in self._exact]

    def __call__(self, name: str) -> Budget | None:
        """Return the budget of a function."""
        if name in self._exact:
            return self._exact[name]
        return next(
            (b for pattern, b in self._patterns if fnmatch.fnmatchcase(name, pattern)), None
        )

    def unused(self, names: Iterable[str]) -> list[str]:
        """Return the entries that fit none of `names`: a slip, or a function that is gone."""
        known = set(names)
        return [name for name in self._exact if name not in known] + [
            pattern for pattern, _ in self._patterns if not fnmatch.filter(known, pattern)
        ]


def read_budgets(path: Path) -> Budgets:
    """Read the table of a pyproject file; a file that is not there has none.

    Raises
    ------
    pytest.UsageError
        If an entry is malformed, with the file and the entry.
    """
    entries = _table(path).get("budgets", {})
    if not isinstance(entries, dict):
        raise pytest.UsageError(f"{path}: [tool.fullgraph.budgets] is not a table")
    return Budgets({name: _budget(path, name, entry) for name, entry in entries.items()})


def read_baseline(path: Path) -> Path | None:
    """Return the baseline file that a pyproject file names, if any, from the folder of the latter.

    Raises
    ------
    pytest.UsageError
        If the entry is no name of a file.
    """
    given = _table(path).get("baseline")
    if given is None:
        return None
    if not isinstance(given, str) or not given:
        raise pytest.UsageError(f"{path}: [tool.fullgraph] baseline={given!r} is no name of a file")
    return path.parent / given


def _table(path: Path) -> dict[str, Any]:
    """Return ``[tool.fullgraph]`` of a pyproject file, empty where there is none."""
    if not path.is_file():
        return {}
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    table: dict[str, Any] = tools.get("fullgraph", {})
    if unknown := sorted(set(table) - _TABLE):
        raise pytest.UsageError(
            f"{path}: [tool.fullgraph] has {', '.join(unknown)}; known are "
            f"{', '.join(sorted(_TABLE))}"
        )
    return table


def _budget(path: Path, name: str, entry: Any) -> Budget:
    where = f"{path}: [tool.fullgraph.budgets] {name!r}"
    if ":" not in name and not set(name) & set(_WILD):
        raise pytest.UsageError(f"{where}: write 'module:qualname', or a pattern with *")
    fields = entry if isinstance(entry, dict) else {"graph_breaks": entry}
    if unknown := sorted(set(fields) - _KEYS):
        raise pytest.UsageError(
            f"{where}: unknown key {', '.join(unknown)}; accepted are {', '.join(sorted(_KEYS))}"
        )
    try:
        return Budget.parse(fields.get("graph_breaks"), fields.get("recompiles"))
    except UsageError as error:
        text = str(error).replace("allow_graph_breaks", "graph_breaks")
        raise pytest.UsageError(
            f"{where}: {text.replace('allow_recompiles', 'recompiles')}"
        ) from None
