"""The examples in docstrings of the reports."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["capabilities", "github", "json_schema", "measures", "ratchet"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"fullgraph.report.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
