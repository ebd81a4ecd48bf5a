"""Budgets of functions whose tag carries none: ``[tool.fullgraph.budgets]`` of pyproject.toml.

.. code-block:: toml

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

__all__ = ["Budgets", "read_budgets"]

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
    if not path.is_file():
        return Budgets({})
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    entries = table.get("fullgraph", {}).get("budgets", {})
    if not isinstance(entries, dict):
        raise pytest.UsageError(f"{path}: [tool.fullgraph.budgets] is not a table")
    return Budgets({name: _budget(path, name, entry) for name, entry in entries.items()})


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
