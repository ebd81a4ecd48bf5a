"""The rules of the layout: who imports whom, and how long things get."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import fullgraph

ROOT = Path(fullgraph.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_LINES, MOST_FUNCTION_LINES = 400, 60
APART = {"testing": "loops", "loops": "testing"}
HALVES = [path for path in MODULES if path.relative_to(ROOT).parts[0] in APART]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("path", HALVES, ids=name_of)
def test_testing_and_loops_never_import_each_other(path):
    other = APART[path.relative_to(ROOT).parts[0]]
    names = imported(ast.parse(path.read_text()))
    assert not [
        n for n in names if n == f"fullgraph.{other}" or n.startswith(f"fullgraph.{other}.")
    ]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_not_long(path):
    assert len(path.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_are_not_long(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body
            documented = ast.get_docstring(node) is not None
            rest = body[1:] if documented else body
            length = (node.end_lineno - rest[0].lineno + 1) if rest else 0
            assert length <= MOST_FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_they_are(path):
    assert ast.get_docstring(ast.parse(path.read_text()))
