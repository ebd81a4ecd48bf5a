"""The examples in docstrings run."""

import doctest
import importlib
from pathlib import Path

import pytest

import fullgraph

ROOT = Path(fullgraph.__file__).parent
EXAMPLE = "    >>> "
MODULES = [
    ".".join(("fullgraph", *path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted(ROOT.rglob("*.py"))
    if EXAMPLE in path.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples():
    assert len(MODULES) > 15
