"""The code on the pages of the guide, and in docstrings, is run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULES = [
    "fullgraph.backends",
    "fullgraph.loops._adapter",
    "fullgraph.loops._api",
    "fullgraph.loops._tree",
    "fullgraph.torch_loop._construct",
    "fullgraph.torch_loop._skeleton",
]


def test_guide_to_loops():
    for library in ("torch", "jax", "array_api_strict", "array_api_compat"):
        pytest.importorskip(library)
    text = (ROOT / "docs" / "guide-loops.md").read_text()
    blocks = FENCE.findall(text)
    assert len(blocks) == text.count("```pycon") > 5
    test = doctest.DocTestParser().get_doctest("".join(blocks), {}, "guide-loops", None, 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
