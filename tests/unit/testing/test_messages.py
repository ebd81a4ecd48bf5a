from __future__ import annotations

import math

import pytest

from fullgraph.testing import BreakSite
from fullgraph.testing._advice import advice
from fullgraph.testing._messages import (
    describe_site,
    graph_break_message,
    not_whole_message,
    recompile_message,
)

SITE = BreakSite(
    "/src/a.py",
    3,
    "f",
    "Data-dependent branching",
    explanation="It depends.",
    hints=("one", "two", "three"),
    callers=("/src/b.py:1 g",),
)


def test_a_site_has_all_that_is_known():
    text = describe_site(SITE)
    for part in (
        "/src/a.py:3 in f: Data-dependent branching",
        "torch: It depends.",
        "hint: one",
        "hint: two",
        "called from: /src/b.py:1 g",
        "instead: a Python `if` or `while` on a tensor's value",
    ):
        assert part in text
    assert "three" not in text


def test_number_of_sites_is_bounded_and_said():
    sites = [BreakSite("/a.py", n, "f", "r") for n in range(11)]
    text = graph_break_message("m:f", sites, 2)
    assert "m:f breaks the graph at 11 places, 2 allowed" in text
    assert "... and 3 more" in text
    assert "allow_graph_breaks=11" in text


def test_a_skip_asks_for_true():
    site = BreakSite("/a.py", 1, "f", "r", skips_frame=True)
    text = graph_break_message("m:f", [site], 0)
    assert "at 1 place, none is allowed" in text
    assert "allow_graph_breaks=True (a function given up exceeds every finite budget)" in text
    assert "the whole function runs eagerly here" in text


def test_not_whole():
    assert "m:f is not one whole graph" in not_whole_message("m:f", [SITE])


def test_recompiles():
    text = recompile_message("m:f", 2, 1, ["s == 1", "s == 2"])
    assert "compiled again 2 times, 1 allowed" in text
    assert "s == 2" in text
    assert "allow_recompiles=2" in text
    assert "again 1 time, none is allowed" in recompile_message("m:f", 1, 0, [])
    assert "(no guard reported)" in recompile_message("m:f", 1, 0, [])
    with pytest.raises(AssertionError, match="cannot be exceeded"):
        recompile_message("m:f", 1, math.inf, [])


@pytest.mark.parametrize(
    ("reason", "what"),
    [
        ("Data-dependent branching", "xp.where"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False", "0-d tensor"),
        ("Dynamic shape operator", "fixed shape"),
        ("call to warnings.warn", "a warning is emitted"),
        ("Failed to trace builtin operator `print`", "output is written"),
        ("Attempt to trace generator", "compile the function that consumes it"),
        ("Higher order ops do not support aliasing", "copy one of them before"),
        ("numpy function cannot be traced", "array namespace"),
        ("recompile limit exceeded", "raise recompile_limit"),
        ("Observed exception", "check the arguments"),
    ],
)
def test_advice(reason, what):
    assert what in advice(reason)


def test_no_advice_where_nothing_better_is_known():
    assert advice("something new") is None
