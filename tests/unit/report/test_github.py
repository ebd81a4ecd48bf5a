"""Annotations, as GitHub reads them."""

from __future__ import annotations

from made_records import ROOT, function, record, site

from fullgraph.report.github import workflow_commands
from fullgraph.report.ratchet import Baseline, compare, updated


def lines(*functions, **more):
    return workflow_commands(record(*functions), root=ROOT, **more)


def test_a_site_is_a_warning_at_its_line():
    (line,) = lines(function(sites=[site()]))
    assert line.startswith(
        "::warning file=src/mypkg/stats.py,line=41,title=graph break in mode::"
        "Data-dependent branching%0Ainstead: a Python `if`"
    )
    assert line.endswith("%0Amet by mypkg.stats:mode")


def test_what_is_special_to_github_is_escaped():
    (line,) = lines(function(sites=[site(reason="50 %\nof a: b, c", function="a:b,c")]))
    assert "title=graph break in a%3Ab%2Cc::50 %25%0Aof a: b, c%0A" in line
    assert "\n" not in line


def test_a_site_of_two_functions_and_modes_is_one_line():
    found = lines(
        function("m:f", sites=[site()]),
        function("m:g", sites=[site()]),
        function("m:g", mode="fullgraph", sites=[site()]),
        function("m:h", mode="eager", sites=[site(77)]),
    )
    assert len(found) == 1
    assert found[0].endswith("met by m:f, m:g")


def test_more_than_github_shows_and_what_lies_outside_are_counted():
    outside = site(file="/venv/lib/python3.12/site-packages/other/f.py")
    inside = [site(n) for n in range(1, 15)]
    found = lines(function(sites=[*inside, outside]))
    assert len(found) == 11
    assert found[-1] == (
        "::notice title=fullgraph::4 more break sites and 1 break sites in files outside this "
        "repository"
    )


def test_a_vendored_environment_is_outside_the_repository():
    (line,) = lines(function(sites=[site(file=f"{ROOT}/.venv/lib/site-packages/x.py")]))
    assert line.startswith("::notice")


def test_what_is_worse_than_the_baseline_is_an_error():
    before = updated(Baseline(), record(function(sites=[site(50)])), root=ROOT, complete=True)
    now = record(function(sites=[site(50), site(60, "Tensor.item()")]))
    comparison = compare(before, now, root=ROOT, complete=True)
    found = workflow_commands(now, root=ROOT, comparison=comparison)
    kinds = [line.partition(" ")[0] for line in found]
    assert kinds == ["::error", "::warning"]


def test_torch_bugs_are_not_annotated():
    assert lines(function(sites=[site(torch_bug="slice-attribute-error")])) == []
