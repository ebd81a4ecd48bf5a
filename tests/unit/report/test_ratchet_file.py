"""The baseline file: round trip, errors, size, and real merges by git."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import ROOT, function, record, site

from fullgraph.errors import UsageError
from fullgraph.report.ratchet import Baseline, Entry, updated
from fullgraph.report.ratchet_file import from_text, to_text
from fullgraph.testing import Outcome

NAMES = st.text(min_size=1, max_size=12).filter(lambda text: text.isprintable() or "\x7f" in text)
ENTRIES = st.builds(
    Entry,
    whole=st.booleans(),
    coverage=st.integers(0, 100),
    recompiles=st.integers(0, 9),
    breaks=st.dictionaries(st.text(max_size=20), st.integers(1, 3), max_size=3),
)
MODES = st.sampled_from(["compile", "fullgraph", "own"])


@given(
    st.dictionaries(
        st.sampled_from(["2.14", "2.15", "2.9"]),
        st.dictionaries(st.tuples(NAMES, MODES), ENTRIES, max_size=4),
    )
)
def test_round_trip(by_torch):
    baseline = Baseline(by_torch)
    assert from_text(to_text(baseline)) == baseline


def test_the_text_is_sorted_and_short():
    items = [
        function("mypkg:b", sites=[site(), site(50), site(reason="Tensor.item()")]),
        function("mypkg:a", mode="fullgraph"),
        function(
            "mypkg:a", compiles=3, whole=0, calls={Outcome.OVER_LIMIT: 1, Outcome.GRAPH_RAN: 3}
        ),
    ]
    made = updated(Baseline(), record(*items), root=ROOT, complete=True)
    made = updated(made, record(function("mypkg:a"), torch="2.9.0"), root=ROOT, complete=True)
    assert (
        to_text(made).partition("format = 1\n")[2]
        == """
["2.9"."mypkg:a"]
compile.whole = true

# end of torch 2.9

["2.14"."mypkg:a"]
compile.whole = false
compile.coverage = 75
compile.recompiles = 2
fullgraph.whole = true

["2.14"."mypkg:b"]
compile.whole = false
compile.breaks = [
    "mypkg/stats.py mode: Data-dependent branching",
    "mypkg/stats.py mode: Data-dependent branching",
    "mypkg/stats.py mode: Tensor.item()",
]

# end of torch 2.14
"""
    )


def test_two_thousand_functions_are_small():
    items = [function(f"mypkg.module{n % 40}:function{n}") for n in range(2000)]
    text = to_text(updated(Baseline(), record(*items), complete=True))
    assert len(text) < 150_000


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("format = 1\n<<<<<<< ours\n", "conflict markers of a merge; keep both sides"),
        ("format = 2\n", "has format 2, and this version of fullgraph reads format 1"),
        ("[x]\n", "has format None"),
        ('format = 1\n"2.14" = 3\n', r"x.toml: \[2.14\] is not a table"),
        ('format = 1\n["2.14"]\n"m:f" = 3\n', r"\[2.14.m:f\] is not a table"),
        ('format = 1\n["2.14"."m:f"]\ncompile = 3\n', r"m:f\] compile is not a table"),
        ('format = 1\n["2.14"."m:f"]\ncompile.hole = true\n', "hole is not known"),
        ('format = 1\n["2.14"."m:f"]\ncompile.whole = 1\n', "whole = 1 is no bool"),
    ],
)
def test_what_is_no_baseline_is_refused(text, match):
    with pytest.raises(UsageError, match=match):
        from_text(text, "x.toml")


def git(folder, *command):
    flags = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *flags, *command], cwd=folder, capture_output=True, text=True)


def test_changes_to_neighbouring_functions_merge_in_git(tmp_path):
    """Two branches: one function becomes whole, the next one gains a break, a torch is added."""

    def text(*functions, other=()):
        made = updated(Baseline(), record(*functions), root=ROOT, complete=True)
        if other:
            made = updated(made, record(*other, torch="2.15.0"), root=ROOT, complete=True)
        return to_text(made)

    a, b, c = (function(f"mypkg:{n}", sites=[site()], compiles=2) for n in "abc")
    file = tmp_path / "baseline.toml"
    git(tmp_path, "init", "-b", "main")

    def commit(content, branch=None):
        if branch:
            git(tmp_path, "checkout", "-b", branch, "main")
        file.write_text(content)
        git(tmp_path, "add", "."), git(tmp_path, "commit", "-m", "x")

    commit(text(a, b, c))
    commit(text(function("mypkg:a"), b, c), "one")
    commit(text(a, function("mypkg:b", sites=[site(), site(reason="x")]), c), "two")
    commit(text(a, b, c, other=[a]), "three")
    commit(text(a, b, function("mypkg:c")), "four")
    for branch in ("two", "three"):
        merged = git(tmp_path, "merge", branch, "-m", "x")
        assert merged.returncode == 0, merged.stdout
    merged = git(tmp_path, "merge", "one", "-m", "x")
    assert merged.returncode == 0, merged.stdout
    found = from_text(file.read_text()).by_torch
    assert found["2.14"]["mypkg:a", "compile"].whole
    assert len(found["2.14"]["mypkg:b", "compile"].breaks) == 2
    assert found["2.14"]["mypkg:c", "compile"].whole
    assert set(found) == {"2.14", "2.15"}
