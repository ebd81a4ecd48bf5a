"""The ratchet end to end: a suite, its baseline, and what changes fail it."""

from __future__ import annotations

import array_api_compat.torch
import array_api_extra.testing
import pytest
import torch._dynamo
import torch._inductor

import fullgraph.plugin.ending
import fullgraph.plugin.session
import fullgraph.testing
import fullgraph.testing._torch_call
from fullgraph.report.ratchet_file import from_text

pytest_plugins = ["pytester"]
# pytester puts sys.modules back after each run; what cannot be imported twice is imported before
_KEEP = (array_api_compat.torch, array_api_extra.testing, torch._dynamo, torch._inductor, fullgraph)

CONFTEST = """
import pytest, torch
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture(params=[torch], ids=["torch"])
def xp(request):
    with patch_lazy_xp_functions(request, xp=request.param):
        yield request.param
"""
TESTS = """
from array_api_extra.testing import lazy_xp_function
from LIB import scale, shift

lazy_xp_function(scale)
lazy_xp_function(shift)

def test_scale(xp):
    assert scale(xp.ones(3)).sum() == 6

def test_shift(xp):
    assert shift(xp.ones(3)).sum() == 6
"""
WHOLE = """
def scale(x):
    return x * 2

def shift(x):
    return x + 1
"""
BREAKS = WHOLE.replace(
    "    return x * 2", "    if x.sum() > 0:\n        return x * 2\n    return x"
)
MODES = "--fg-modes=compile,fullgraph"


class Project:
    """A library whose code changes from run to run."""

    def __init__(self, pytester, monkeypatch):
        self.path, self._pytester = pytester.path, pytester
        self._library = f"lib_{pytester._name}"
        monkeypatch.syspath_prepend(pytester.path)
        monkeypatch.setattr("sys.dont_write_bytecode", True)
        pytester.makeconftest(CONFTEST)
        self.write()

    def write(self, library=WHOLE, tests=TESTS):
        self._pytester.makepyfile(
            **{self._library: library, "test_it": tests.replace("LIB", self._library)}
        )

    def run(self, *options):
        return self._pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "--fg-baseline=base.toml", *options
        )

    @property
    def baseline(self):
        found = from_text((self.path / "base.toml").read_text()).by_torch
        (entries,) = found.values()
        return {(name.partition(":")[2], mode): entry for (name, mode), entry in entries.items()}


@pytest.fixture(scope="module", autouse=True)
def everything_imported():
    """Compile once, so that torch has imported all that it imports for that."""
    fullgraph.testing.check_compiled(lambda x: x * 2, (torch.ones(1),))


@pytest.fixture
def project(pytester, monkeypatch):
    return Project(pytester, monkeypatch)


def test_adopt_break_mend(project):
    project.write(BREAKS)
    adopted = project.run(MODES, "--fg-update-baseline")
    assert adopted.ret == 0
    adopted.stdout.fnmatch_lines(["*baseline *base.toml updated from the whole suite (torch 2.*)"])
    assert not project.baseline["scale", "compile"].whole
    assert project.baseline["shift", "fullgraph"].whole
    text = (project.path / "base.toml").read_text()

    same = project.run(MODES)
    assert same.ret == 0
    same.stdout.fnmatch_lines(["baseline, functions by mode: 4 compared, 0 worse, 0 better*"])

    project.write(BREAKS.replace("x + 1", "x + float(x.max())"))
    worse = project.run(MODES)
    assert worse.ret == 1
    worse.assert_outcomes(passed=4)
    worse.stdout.fnmatch_lines(
        [
            "worse than the baseline (torch 2.*):",
            "  lib_*:shift (compile)",
            "    + break: lib_*.py shift: *",
            "        lib_*.py:7  return x + float(x.max())",
            "        instead: *",
            "    ! whole: is no longer one whole graph",
            "*1 worse, 0 better*",
        ]
    )
    assert (project.path / "base.toml").read_text() == text

    project.write()
    better = project.run(MODES)
    assert better.ret == 0
    better.stdout.fnmatch_lines(
        ["better than the baseline*", "    - break: *", "    [*] whole: is one whole graph"]
    )
    assert (project.path / "base.toml").read_text() == text
    project.run(MODES, "--fg-update-baseline")
    assert project.baseline["scale", "compile"].whole


def test_a_part_of_the_suite_neither_fails_nor_forgets_the_rest(project):
    project.run(MODES, "--fg-update-baseline")
    part = project.run(MODES, "-k", "shift")
    assert part.ret == 0
    part.stdout.fnmatch_lines(["*2 compared, 0 worse, 0 better, 2 not called in this part*"])
    project.run(MODES, "-k", "shift", "--fg-update-baseline")
    assert ("scale", "compile") in project.baseline


def test_a_function_that_no_test_calls_any_more_fails(project):
    project.run(MODES, "--fg-update-baseline")
    project.write(tests=TESTS.replace("assert scale(xp.ones(3)).sum() == 6", "pass"))
    gone = project.run(MODES)
    assert gone.ret == 1
    gone.stdout.fnmatch_lines(
        ["*:scale (compile)", "    ! gone: no test calls it compiled any more"]
    )


def test_a_failing_test_stays_a_failure_and_is_compared(project):
    project.run(MODES, "--fg-update-baseline")
    project.write(tests=TESTS.replace("== 6", "== 7"))
    failed = project.run(MODES)
    assert failed.ret == 1
    failed.stdout.fnmatch_lines(["baseline, functions by mode: *"])


def test_nothing_recorded_is_a_failure(project):
    project.run(MODES, "--fg-update-baseline")
    nothing = project.run("--fg-modes=eager")
    assert nothing.ret == 1
    nothing.stdout.fnmatch_lines(["nothing was recorded to hold against the baseline*"])


@pytest.mark.slow
def test_workers_are_merged_before_the_comparison(project):
    project.run(MODES, "--fg-update-baseline")
    workers = project.run(MODES, "-n", "2")
    assert workers.ret == 0
    workers.stdout.fnmatch_lines(["*4 compared, 0 worse, 0 better*"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fg-baseline=none.toml"], "*there is no such file; write it with --fg-update-baseline"),
        (["--fg-update-baseline"], "*--fg-update-baseline needs --fg-baseline=FILE*"),
        (["--fg-html=no/where.html"], "*--fg-html=no/where.html: there is no folder *"),
        (["--fg-baseline=bad.toml"], "*bad.toml is no baseline*conflict markers*"),
    ],
)
def test_options_that_cannot_be_followed_stop_the_run(pytester, options, message):
    (pytester.path / "bad.toml").write_text("<<<<<<< ours\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])


def test_html_and_github_with_a_new_break(project, monkeypatch):
    project.run(MODES, "--fg-update-baseline")
    summary = project.path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    project.write(BREAKS)
    ran = project.run(MODES, "--fg-html=report.html", "--fg-github")
    assert ran.ret == 1
    ran.stdout.fnmatch_lines(
        [
            "HTML report written to *report.html",
            "::error file=lib_*.py,line=2,title=new graph break in scale::Data-dependent *",
        ]
    )
    assert "if x.sum() &gt; 0:" in (project.path / "report.html").read_text()
    assert "+ break: lib_" in summary.read_text()


def test_another_torch_series_fails_until_it_is_added(project):
    project.run(MODES, "--fg-update-baseline")
    path = project.path / "base.toml"
    series = ".".join(torch.__version__.split(".")[:2])
    path.write_text(path.read_text().replace(series, "2.1"))
    other = project.run(MODES)
    assert other.ret == 1
    other.stdout.fnmatch_lines([f"the baseline has no entries for torch {series}, only for 2.1*"])
    added = project.run(MODES, "--fg-update-baseline")
    assert added.ret == 0
    assert set(from_text(path.read_text()).by_torch) == {"2.1", series}


@pytest.mark.slow
def test_interrupted_runs_are_not_compared(project):
    project.run(MODES, "--fg-update-baseline")
    before = (project.path / "base.toml").read_text()
    project.write(tests=TESTS + "\ndef test_stop():\n    raise KeyboardInterrupt\n")
    stopped = project._pytester.runpytest_subprocess(
        "-p", "no:cacheprovider", MODES, "--fg-baseline=base.toml", "--fg-update-baseline"
    )
    assert stopped.ret == pytest.ExitCode.INTERRUPTED
    stopped.stdout.fnmatch_lines(["the run was not finished: it was not compared*"])
    assert (project.path / "base.toml").read_text() == before


def test_the_baseline_may_be_named_in_pyproject(project):
    project.write(BREAKS)
    project.run(MODES, "--fg-update-baseline")
    (project.path / "pyproject.toml").write_text('[tool.fullgraph]\nbaseline = "base.toml"\n')
    plain = project._pytester.runpytest_inprocess
    same = plain("-p", "no:cacheprovider", MODES)
    assert same.ret == 0
    same.stdout.fnmatch_lines(["baseline, functions by mode: 4 compared, 0 worse, 0 better*"])
    project.write(BREAKS.replace("x + 1", "x + float(x.max())"))
    assert plain("-p", "no:cacheprovider", MODES).ret == 1
    unasked = plain("-p", "no:cacheprovider")
    assert unasked.ret == 0
    unasked.stdout.no_fnmatch_line("baseline, functions*")
