"""The page on the state of the ecosystem is made of records, and knows every rewrite."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from made_records import function, record, site

from fullgraph.testing import Outcome

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ecosystem():
    spec = importlib.util.spec_from_file_location("fg_ecosystem", ROOT / "tools" / "ecosystem.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_releases_stand_side_by_side(ecosystem):
    name = "array_api_extra._delegation:pad"
    bug = site(torch_bug="slice-attribute-error")
    old = record(
        function(name, sites=[site()]),
        function("scipy.stats:skew", sites=[bug], calls={Outcome.TORCH_BUG: 1}),
        torch="2.9.1",
    )
    new = record(function(name), function(name, mode="fullgraph"), torch="2.14.1+cpu")
    text = ecosystem.page([old, new])
    assert "ship them: torch 2.9.1 and torch 2.14.1." in text
    assert "| function | 2.9 compile | 2.9 fullgraph | 2.14 compile | 2.14 fullgraph |" in text
    assert "| `pad` | 🟡 1 break |  | 🟢 whole | 🟢 whole | `mypkg/stats.py:41`" in text
    assert "torch 2.9: 0 of 1 whole in both modes." in text
    assert "torch 2.14: 1 of 1 whole in both modes." in text
    assert "- torch 2.9, slice-attribute-error: `skew`" in text


def test_suites_say_what_is_whole_and_where_most_functions_break(ecosystem):
    shared, once = site(7), {Outcome.GRAPH_RAN: 1}
    old = record(function("m:a"), function("m:a", mode="fullgraph"), torch="2.14.1")
    new = record(
        function("m:a", sites=[shared], calls=once),
        function("m:b", sites=[shared, site(8)], calls=once),
        function("m:b", mode="fullgraph", calls={Outcome.FRAME_SKIPPED: 1, Outcome.GRAPH_RAN: 1}),
        function("m:c", calls=once),
        torch="2.15.0",
    )
    text = ecosystem.page([old], {"scipy.made.up": [old, new]})
    assert "| `scipy.made.up` | 2.14 | 1 of 1 | 100 % | 0 |" in text
    assert "| `scipy.made.up` | 2.15 | 1 of 3 | 80 % | 2 |" in text
    first, second = [row for row in text.splitlines() if row.startswith("| `mypkg/stats.py:")]
    assert first == "| `mypkg/stats.py:7` | Data-dependent branching | 2 |"
    assert second == "| `mypkg/stats.py:8` | Data-dependent branching | 1 |"


def test_the_page_lists_the_rewrites_that_there_are(ecosystem):
    page = (ROOT / "docs" / "ecosystem.md").read_text()
    assert "\n".join(ecosystem._rewrites()) in page
    broken = {
        row.split("`")[1]
        for row in page.partition("## SciPy")[0].splitlines()
        if row.startswith("| `") and ("🟡" in row or "🔴" in row)
    }
    rewritten = {row.split("`")[1] for row in ecosystem._rewrites() if row.startswith("| `")}
    # a slice in xpx.at meets a bug of torch, whichever way it is written
    assert broken - {"set_at_slice"} == rewritten
