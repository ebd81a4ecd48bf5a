"""The Markdown summary."""

from __future__ import annotations

from made_records import ROOT, function, record, site
from markdown_it import MarkdownIt

from fullgraph.report.markdown import render_markdown
from fullgraph.report.ratchet import Baseline, compare, updated
from fullgraph.testing import Outcome


def text(*functions, **more):
    return render_markdown(record(*functions), root=ROOT, **more)


def test_totals_breaks_and_what_to_write():
    found = text(
        function(sites=[site()]), function("m:g"), function("m:g", mode="fullgraph", compiles=3)
    )
    assert "| compile | 2 | 1 | 1 | 0 | 8 | 0.0 |" in found
    assert "| fullgraph | 1 | 1 | 0 | 2 | 4 | 0.0 |" in found
    assert "| `mypkg.stats:mode` | compile | 🟡 1 break | 4 | 100 % | 0 |" in found
    assert "| `mypkg/stats.py:41` | Data-dependent branching | 1 | a Python `if`" in found


def test_cells_survive_hostile_names():
    found = text(function("m:<a|b>`c`", sites=[site(reason="a|b <script> *x*\n_y_")]))
    html = MarkdownIt("commonmark").enable("table").render(found)
    assert "<script>" not in html
    assert "<em>" not in html
    assert html.count("<table>") == 3
    rows = [row for row in html.split("<tr>") if "<td>" in row]
    assert {row.count("<td>") for row in rows} == {4, 6, 7}


def test_long_tables_say_what_they_leave_out():
    found = text(*[function(f"m:f{n}", sites=[site(n + 1)]) for n in range(60)], most=20)
    assert found.count("and 40 more") == 2
    assert len(text(*[function(f"m:f{n}", sites=[site(n + 1)]) for n in range(3000)])) < 65_000


def test_torch_bugs_stand_apart():
    found = text(function(sites=[site(torch_bug="slice-bug")], calls={Outcome.TORCH_BUG: 4}))
    assert "### Known bugs of torch\n\n- slice-bug, at `mypkg/stats.py:41`: 1 calls" in found
    assert "### Break sites" not in found


def test_a_comparison_comes_first():
    before = updated(Baseline(), record(function()), root=ROOT, complete=True)
    now = record(function(sites=[site()]))
    comparison = compare(before, now, root=ROOT, complete=True)
    found = render_markdown(now, root=ROOT, comparison=comparison, notes=["half a run"])
    assert found.startswith("## fullgraph\n\n> half a run\n\n```diff\nworse than the baseline")


def test_an_empty_record_says_so():
    assert "No function was called in a compiled mode (torch 2.14.1)." in text()


def test_code_in_advice_stays_code():
    text = render_markdown(record(function(sites=[site(reason="Data-dependent branching")])))
    assert "with `fullgraph.while_loop`" in text
    assert "while\\_loop" not in text
