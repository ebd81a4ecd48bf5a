"""The ratchet's rules, each in both directions."""

from __future__ import annotations

import pytest
from made_records import ROOT, function, record, site

from fullgraph.report.ratchet import Baseline, Kind, compare, entries_of, updated
from fullgraph.report.ratchet_text import describe, verdict
from fullgraph.testing import Outcome


def baseline(*functions, torch="2.14.0"):
    return updated(Baseline(), record(*functions, torch=torch), root=ROOT, complete=True)


def held(before, now, complete=True):
    return compare(baseline(*before), record(*now), root=ROOT, complete=complete)


def kinds(comparison):
    return {(change.kind, change.worse) for change in comparison.changes}


def test_an_unchanged_run_has_no_changes():
    items = [function(sites=[site()], compiles=3), function("mypkg.stats:mean")]
    found = held(items, items)
    assert found.changes == ()
    assert not found.failed
    assert found.compared == 2


@pytest.mark.parametrize(
    ("better", "worse", "kind"),
    [
        (function(whole=0), function(sites=[site()]), Kind.BREAK),
        (function(sites=[site()]), function(sites=[site(), site(77)]), Kind.BREAK),
        (function(), function(whole=3), Kind.WHOLE),
        (function(compiles=1), function(compiles=2), Kind.RECOMPILES),
        (
            function(whole=0),
            function(whole=0, calls={Outcome.GRAPH_RAN: 3, Outcome.OVER_LIMIT: 1}),
            Kind.COVERAGE,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, Kind) else "",
)
def test_each_rule_fails_one_way_and_improves_the_other(better, worse, kind):
    assert kinds(held([better], [worse])) == {(kind, True)}
    assert held([better], [worse]).failed
    assert kinds(held([worse], [better])) == {(kind, False)}
    assert not held([worse], [better]).failed


def test_code_that_moves_is_no_change():
    before = function(sites=[site(41), site(60, "Tensor.item()")])
    after = function(sites=[site(141), site(160, "Tensor.item()")])
    assert held([before], [after]).changes == ()


def test_a_checkout_and_an_installed_package_agree():
    here = function(sites=[site()])
    installed = function(sites=[site(file="/venv/lib/python3.12/site-packages/mypkg/stats.py")])
    assert held([here], [installed]).changes == ()


def test_known_torch_bugs_are_not_held_against_a_function():
    spoiled = function(
        sites=[site(torch_bug="slice-attribute-error")],
        calls={Outcome.GRAPH_RAN: 3, Outcome.TORCH_BUG: 1},
        whole=3,
    )
    assert held([function()], [spoiled]).changes == ()


def test_calls_that_raise_change_neither_coverage_nor_wholeness():
    more = function(calls={Outcome.GRAPH_RAN: 4, Outcome.RAISED: 9}, whole=4)
    assert held([function()], [more]).changes == ()


def test_an_exception_that_leaves_the_graph_is_no_break():
    raising = site(7, "Observed exception", calls=2)
    for others in ([], [site()]):
        before = function(sites=others)
        after = function(
            sites=[*others, raising],
            calls={Outcome.GRAPH_RAN: 4, Outcome.RAISED: 2},
            whole=0 if others else 4,
        )
        assert held([before], [after]).changes == ()


def test_an_exception_in_a_call_that_returns_is_a_break():
    after = function(sites=[site(7, "Observed exception")], whole=3)
    assert (Kind.BREAK, True) in kinds(held([function()], [after]))


def test_eager_calls_are_not_kept():
    assert entries_of(record(function(mode="eager"))) == {}


def test_a_new_function_has_to_be_whole():
    found = held([function("mypkg:a")], [function("mypkg:a"), function("mypkg:b")])
    assert kinds(found) == {(Kind.NEW, False)}
    found = held([function("mypkg:a")], [function("mypkg:a"), function("mypkg:b", sites=[site()])])
    assert kinds(found) == {(Kind.NEW, True)}
    assert found.worse[0].sites


def test_a_function_that_is_not_called_any_more_fails_a_whole_run_only():
    before, now = [function("mypkg:a"), function("mypkg:b")], [function("mypkg:a")]
    assert kinds(held(before, now)) == {(Kind.GONE, True)}
    part = held(before, now, complete=False)
    assert part.changes == ()
    assert part.not_called == (("mypkg:b", "compile"),)
    assert "1 not called in this part of the suite" in verdict(part)


def test_a_mode_that_did_not_run_is_left_alone():
    before = [function(), function(mode="fullgraph")]
    assert held(before, [function()]).changes == ()


def test_another_torch_is_refused_not_passed():
    found = compare(baseline(function()), record(function(), torch="2.15.0"), complete=True)
    assert found.failed
    assert "no entries for torch 2.15, only for 2.14" in verdict(found)
    assert "--fg-update-baseline" in verdict(found)


def test_update_keeps_other_torch_series_and_what_a_part_of_the_suite_did_not_call():
    first = baseline(function("mypkg:a"), function("mypkg:b"))
    both = updated(first, record(function("mypkg:a"), torch="2.15.0"), complete=True)
    assert set(both.by_torch) == {"2.14", "2.15"}
    assert both.by_torch["2.14"] == first.by_torch["2.14"]
    part = updated(first, record(function("mypkg:a", compiles=5)), complete=False)
    assert part.by_torch["2.14"]["mypkg:a", "compile"].recompiles == 4
    assert ("mypkg:b", "compile") in part.by_torch["2.14"]
    whole = updated(first, record(function("mypkg:a")), complete=True)
    assert set(whole.by_torch["2.14"]) == {("mypkg:a", "compile")}


def test_two_backends_of_one_function_are_held_by_the_worse():
    entry = entries_of(
        record(function(compiles=3), function(backend="inductor", sites=[site()])), ROOT
    )["mypkg.stats:mode", "compile"]
    assert entry.recompiles == 2
    assert len(entry.breaks) == 1
    assert not entry.whole


def test_the_diff_names_what_where_and_which_torch():
    lines = describe(
        held([function()], [function(sites=[site()], compiles=2)]),
        root=ROOT,
        source=lambda file, line: f"    if v.max() > 1:  # {line}",
    )
    text = "\n".join(lines)
    assert "worse than the baseline (torch 2.14.1):" in lines[0]
    assert "mypkg.stats:mode (compile)" in text
    assert "+ break: mypkg/stats.py mode: Data-dependent branching" in text
    assert "mypkg/stats.py:41  if v.max() > 1:  # 41" in text
    assert "instead: a Python `if` or `while` on a tensor's value" in text
    assert "! whole: is no longer one whole graph" in text
    assert "! recompiles: 0 -> 1" in text
    assert "failed guard: L['x'].size()[0] == 1" in text
    assert lines[-1].startswith("baseline, functions by mode: 1 compared, 1 worse, 0 better")


def test_improvements_are_listed_and_long_lists_cut():
    many = [function(f"mypkg:f{n:02}", compiles=3) for n in range(15)]
    fewer = [function(f"mypkg:f{n:02}") for n in range(15)]
    found = held(many, fewer)
    assert "  ... and 5 more" in describe(found)
    assert "  ... and 5 more" not in describe(found, every=True)
    assert "* recompiles: 2 -> 0" in "\n".join(describe(found))
