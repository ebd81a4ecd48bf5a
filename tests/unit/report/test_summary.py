"""The summary is a function of records alone."""

from __future__ import annotations

import pytest

from fullgraph.report.summary import LimitPrice, shorten, summarise
from fullgraph.report.terminal import price_in_words, render
from fullgraph.testing import BreakSite, FunctionRecord, Mode, Outcome, Record, Specialisation


def site(line=3, reason="Data-dependent branching", **fields):
    return BreakSite("/x/site-packages/mod.py", line, "f", reason, **fields)


def function(name="mod:f", mode=Mode.COMPILE, **fields):
    fields.setdefault("calls", {Outcome.GRAPH_RAN: 4})
    return FunctionRecord(name, mode, fields.pop("backend", "trace"), **fields)


def lines(summary, **how):
    return [line.text for line in render(summary, **how)]


def test_a_row_says_what_the_record_says():
    record = function(
        calls={Outcome.GRAPH_RAN: 3, Outcome.RAISED: 1},
        whole=0,
        graphs=9,
        breaks=(site(9, "print", calls=1), site(3, calls=3)),
        specialisations=tuple(Specialisation("mod:f", f"x=float32[{n}]", graphs=2) for n in (1, 2)),
        seconds=1.25,
    )
    (row,) = summarise(Record((record,)), limit=8).rows
    assert (row.function, row.mode, row.calls, row.coverage) == ("mod:f", "compile", 4, 0.75)
    assert (row.graphs, row.recompiles, row.whole, row.seconds) == (4, 1, False, 1.25)
    assert row.first_reason == "mod.py:3: Data-dependent branching"
    assert row.outcomes == {"graph ran": 3, "raised": 1}


@pytest.mark.parametrize(
    ("calls", "whole", "expected"),
    [
        ({Outcome.GRAPH_RAN: 2}, 2, True),
        ({Outcome.GRAPH_RAN: 2, Outcome.RAISED: 3}, 2, True),
        ({Outcome.GRAPH_RAN: 2}, 1, False),
        ({Outcome.RAISED: 2}, 0, False),
        ({Outcome.GRAPH_RAN: 1, Outcome.OVER_LIMIT: 1}, 1, False),
    ],
)
def test_whole_is_every_call_that_answered(calls, whole, expected):
    record = Record((function(calls=calls, whole=whole),))
    assert summarise(record, limit=8).rows[0].whole is expected


def test_became_whole_needs_a_budget_and_every_mode():
    def at(name, mode, whole):
        return function(name, mode, whole=whole, graphs_run=4)

    record = Record(
        (
            at("mod:now", Mode.COMPILE, 4),
            at("mod:now", Mode.FULLGRAPH, 4),
            at("mod:partly", Mode.COMPILE, 4),
            at("mod:partly", Mode.FULLGRAPH, 3),
            at("mod:already", Mode.COMPILE, 4),
            at("mod:free", Mode.COMPILE, 4),
        )
    )
    budgets = {"mod:now": (2, None), "mod:partly": (float("inf"), None), "mod:already": (0, None)}
    assert summarise(record, limit=8, budgets=budgets).became_whole == ("mod:now",)


def test_tagged_but_never_called():
    summary = summarise(Record((function("mod:f"),)), limit=8, tagged=["mod:f", "mod:g"])
    assert summary.unreached == ("mod:g",)
    assert "  mod:g" in lines(summary)


def test_torch_bugs_are_apart_from_break_sites():
    bug = site(5, torch_bug="slice-attribute-error", calls=2)
    record = Record(
        (function("mod:f", breaks=(bug,)), function("mod:g", breaks=(bug,))), (), "2.14.1"
    )
    summary = summarise(record, limit=8)
    assert all(not row.sites for row in summary.rows)
    assert (
        "known torch bug slice-attribute-error: 4 calls of 2 functions, at mod.py:5 (torch 2.14.1)"
        in lines(summary)
    )


def test_price_of_the_limit():
    record = Record(
        (
            function(
                "mod:f", calls={Outcome.GRAPH_RAN: 1, Outcome.OVER_LIMIT: 9}, partly_over_limit=9
            ),
            function("mod:g", calls={Outcome.GRAPH_RAN: 10}, partly_over_limit=3),
            function("mod:u", backend="user", calls={Outcome.GRAPH_RAN: 10}),
        )
    )
    price = summarise(record, limit=2).limit
    assert price == LimitPrice(2, 20, 9, 3, (("mod:f", 9, 10),))
    text = "\n".join(price_in_words(price))
    assert "recompile limit 2: 9 of 20 calls (45 %) ran no graph" in text
    assert "3 more ran some of their frames so" in text
    assert "mod:f: 9 of 10 calls" in text


def test_price_where_every_call_ran_some_graph():
    record = Record((function("mod:g", calls={Outcome.GRAPH_RAN: 10}, partly_over_limit=3),))
    text = "\n".join(price_in_words(summarise(record, limit=2).limit))
    assert "recompile limit 2: 3 of 10 calls (30 %) ran some of their frames eagerly" in text


def test_no_price_is_said_to_be_none():
    price = summarise(Record((function(),)), limit=256).limit
    assert list(price_in_words(price)) == ["recompile limit 256: no call was over it"]
    assert summarise(Record(), limit=256).limit is None


def test_all_and_nothing_are_never_rounded_to():
    record = Record(
        (
            function("mod:f", calls={Outcome.GRAPH_RAN: 999, Outcome.RAISED: 1}),
            function("mod:g", calls={Outcome.GRAPH_RAN: 1, Outcome.RAISED: 999}),
        )
    )
    text = "\n".join(lines(summarise(record, limit=8)))
    assert " 99 %" in text
    assert " 1 %" in text
    assert "100 %" not in text


@pytest.mark.parametrize(
    ("verbosity", "rows", "reasons"), [(-2, 0, 0), (-1, 1, 1), (0, 1, 1), (1, 1, 2)]
)
def test_verbosity(verbosity, rows, reasons):
    record = Record((function(breaks=(site(3), site(4))),))
    said = lines(summarise(record, limit=8), verbosity=verbosity)
    assert sum(line.startswith("mod:f") for line in said) == rows
    assert sum("Data-dependent" in line for line in said) == reasons
    assert any(
        line.startswith("compile: 4 calls of 1 function, 100 % ran a graph") for line in said
    )


def test_long_names_are_cut_at_their_front():
    name = "a_package." * 20 + "mod:f"
    said = lines(summarise(Record((function(name),)), limit=8), width=80)
    assert said[1].startswith("...")
    assert said[1].split()[0].endswith(".mod:f")
    assert len(said[1]) <= 80


def test_rows_are_coloured_by_what_they_say():
    record = Record(
        (
            function("mod:broken", calls={Outcome.FRAME_SKIPPED: 1}),
            function("mod:parts", breaks=(site(),)),
            function("mod:whole", whole=4),
        )
    )
    colours = {
        line.text.split()[0]: line.markup
        for line in render(summarise(record, limit=8))
        if line.markup
    }
    assert colours["mod:broken"] == ("red",)
    assert colours["mod:parts"] == ("yellow",)
    assert colours["mod:whole"] == ("green",)


def test_paths_start_at_their_import_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shorten("/env/lib/site-packages/pkg/a.py:3") == "pkg/a.py:3"
    assert shorten(f"{tmp_path}/tests/a.py:3") == "tests/a.py:3"
    assert shorten("/elsewhere/a.py:3") == "/elsewhere/a.py:3"


@pytest.mark.parametrize(
    ("width", "headings", "name"),
    [
        (160, "coverage", "scipy.stats._axis_nan_policy:variation"),
        (98, "coverage", "...stats._axis_nan_policy:variation"),
        (80, "cover ", "..._axis_nan_policy:variation"),
        (70, "cover ", "..._policy:variation"),
    ],
)
def test_names_keep_their_end_where_the_terminal_is_narrow(width, headings, name):
    record = function("scipy.stats._axis_nan_policy:variation", calls={Outcome.GRAPH_RAN: 4})
    table = lines(summarise(Record((record,)), limit=8), width=width)[:2]
    assert headings in table[0]
    assert table[1].startswith(name + " ")
    assert all(len(line) <= width for line in table)


@pytest.mark.parametrize(("verbosity", "rows"), [(1, True), (0, True), (-1, True), (-2, False)])
def test_the_table_is_left_out_when_very_quiet(verbosity, rows):
    said = lines(summarise(Record((function(),)), limit=8), verbosity=verbosity)
    assert ("mod:f" in "".join(said)) is rows


@pytest.mark.parametrize(
    ("calls", "raised", "said"),
    [
        (1, 0, "(1 call)"),
        (1, 1, "(1 call, which raised)"),
        (3, 3, "(3 calls, all of which raised)"),
        (3, 2, "(3 calls)"),
    ],
)
def test_sites_that_only_raising_calls_met_are_marked(calls, raised, said):
    record = function(
        calls={Outcome.GRAPH_RAN: 4, Outcome.RAISED: 3}, breaks=(site(calls=calls, raised=raised),)
    )
    found = lines(summarise(Record((record,)), limit=8))
    assert f"    mod.py:3: Data-dependent branching {said}" in found
