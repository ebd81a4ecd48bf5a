"""``fullgraph report`` on record files."""

from __future__ import annotations

import json

import pytest
from made_records import ROOT, function, record, site

from fullgraph.report.ratchet_file import from_text
from fullgraph.testing import Record


@pytest.fixture
def report(fullgraph_command, tmp_path):
    def run(*options, **files):
        for name, made in files.items():
            (tmp_path / f"{name}.json").write_text(made.to_json())
        return fullgraph_command("report", *options, "--root", ROOT)

    return run


WHOLE = record(function(), function("m:g"))
BREAKS = record(function(sites=[site()]), function("m:g"))


def test_the_table_of_a_run(report):
    ran = report("a.json", a=BREAKS)
    assert ran.code == 0
    assert "mypkg.stats:mode" in ran.out
    assert "Data-dependent branching" in ran.out


def test_files_are_merged(report, tmp_path):
    ran = report("a.json", "b.json", "--merge", "all.json", a=WHOLE, b=BREAKS)
    assert ran.code == 0
    merged = Record.from_json((tmp_path / "all.json").read_text())
    assert merged == WHOLE.merge(BREAKS)


def test_html_and_markdown_are_written(report, tmp_path):
    ran = report("a.json", "--html", "a.html", "--markdown", "a.md", a=BREAKS)
    assert ran.code == 0
    assert ran.out == ""
    assert "wrote a.html" in ran.err
    assert "Data-dependent branching" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.md").read_text().startswith("## fullgraph")


def test_markdown_github_and_capabilities_on_the_terminal(report):
    assert report("a.json", "--markdown", "-", a=BREAKS).out.startswith("## fullgraph")
    assert report("a.json", "--github", a=BREAKS).out.startswith("::warning file=src/mypkg/stats")
    table = report("a.json", "--capabilities", "rst", a=BREAKS).out
    assert table.startswith(".. list-table::")


def test_tags_of_a_module_add_columns(report, tmp_path):
    (tmp_path / "fg_tagged_module.py").write_text(
        "from fullgraph.testing import lazy_xp_function\n"
        "def f(x): return x\n"
        "lazy_xp_function(f, jax_jit=False, allow_dask_compute=1)\n"
    )
    ran = report("a.json", "--capabilities", "markdown", "--tags", "fg_tagged_module", a=WHOLE)
    assert "| `fg_tagged_module:f` |  |  | ⛔ | ✅ computes 1x |" in ran.out


def test_comparison_with_an_older_record(report):
    worse = report("new.json", "--compare", "old.json", old=WHOLE, new=BREAKS)
    assert worse.code == 1
    assert "+ break: mypkg/stats.py mode: Data-dependent branching" in worse.out
    better = report("old.json", "--compare", "new.json")
    assert better.code == 0
    assert "- break: mypkg/stats.py mode" in better.out


def test_comparison_across_torch_releases(report):
    other = record(function(sites=[site()]), function("m:g"), torch="2.15.0")
    ran = report("new.json", "--compare", "old.json", old=WHOLE, new=other)
    assert (ran.code, "worse than the baseline (torch 2.15.0)" in ran.out) == (1, True)


def test_comparison_as_json(report):
    ran = report("new.json", "--compare", "old.json", "--json", old=WHOLE, new=BREAKS)
    data = json.loads(ran.out)
    assert ran.code == 1
    assert data["failed"] is True
    assert {change["kind"] for change in data["worse"]} == {"break", "whole"}


def test_baseline_is_written_and_held(report, tmp_path):
    ran = report("a.json", "--baseline", "base.toml", "--update-baseline", a=WHOLE)
    assert ran.code == 0
    assert set(from_text((tmp_path / "base.toml").read_text()).by_torch) == {"2.14"}
    assert report("a.json", "--baseline", "base.toml").code == 0
    assert report("b.json", "--baseline", "base.toml", b=BREAKS).code == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["none.json"], "none.json cannot be read"),
        (["bad.json"], "bad.json: not a fullgraph record"),
        (["a.json", "--baseline", "none.toml"], "there is no file none.toml"),
        (["a.json", "--update-baseline"], "--update-baseline needs --baseline"),
        (["a.json", "--baseline", "x", "--compare", "a.json"], "ask for one"),
        (["a.json", "other.json"], "records of torch 2.14.1 and torch 2.15.0 cannot be merged"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_followed_exits_with_2(report, tmp_path, options, message):
    (tmp_path / "bad.json").write_text("[]")
    ran = report(*options, a=WHOLE, other=record(function(), torch="2.15.0"))
    assert (ran.code, message in ran.err) == (2, True)
