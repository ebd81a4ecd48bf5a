"""What each mode and budget makes of a function, and the options that change it."""

from __future__ import annotations

import pytest

TESTS = """
import pytest
TAG
from LIB import *

lazy_xp_function(double)
lazy_xp_function(branchBUDGET)
lazy_xp_function(bentBUDGET)

def test_double(xp):
    assert double(xp.ones(3)).sum() == 6

def test_branch(xp):
    assert branch(xp.ones(3)).sum() == 6

def test_bent(xp):
    assert bent(xp.ones(3)).sum() == 3
"""
THEIRS = "from array_api_extra.testing import lazy_xp_function"
OURS = "from fullgraph.testing import lazy_xp_function"
ALL = "--fg-modes=eager,compile,fullgraph"


def write(suite, tag=THEIRS, budget=""):
    suite.write(TESTS.replace("TAG", tag).replace("BUDGET", budget))


@pytest.mark.parametrize(
    ("tag", "budget", "options", "failures"),
    [
        (THEIRS, "", (), ()),
        (THEIRS, "", ("--fg-strict",), ("branch-fullgraph", "bent-fullgraph")),
        (
            OURS,
            "",
            (),
            ("branch-compile", "branch-fullgraph", "bent-compile", "bent-fullgraph"),
        ),
        (OURS, ", allow_graph_breaks=1", (), ("bent-compile",)),
        (OURS, ", allow_graph_breaks=1", ("--fg-strict",), ("bent-compile",)),
        (OURS, ", allow_graph_breaks=True", (), ()),
    ],
)
def test_mode_and_budget(suite, tag, budget, options, failures):
    write(suite, tag, budget)
    result = suite.run(ALL, "-k", "torch", "-rf", *options)
    result.assert_outcomes(passed=9 - len(failures), failed=len(failures))
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    for failure in failures:
        name, mode = failure.split("-")
        assert any(f"test_{name}[torch-{mode}]" in line for line in failed), failed


def test_budgets_of_a_file(suite):
    write(suite)
    suite.pytester.makepyprojecttoml(
        f"""
        [tool.fullgraph.budgets]
        "{suite.library}:branch" = 0
        "{suite.library}:be*" = {{ graph_breaks = true, recompiles = 0 }}
        "{suite.library}:absent" = 0
        """
    )
    result = suite.run(ALL, "-rf")
    result.assert_outcomes(passed=13, failed=2)
    text = result.stdout.str()
    assert "GraphBreakError" in text
    assert "FullGraphError" in text
    # a run of the whole suite says which entries fit nothing
    result.stdout.fnmatch_lines(["budgets that fit no tagged function (1):", "*:absent"])


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('"mod:f" = -1', "*'mod:f': graph_breaks=-1 is not accepted*"),
        ('"mod:f" = "none"', "*'mod:f': graph_breaks='none' is not accepted*"),
        ('"mod:f" = { recompiles = 1.5 }', "*'mod:f': recompiles=1.5 is not accepted*"),
        ('"mod:f" = { breaks = 1 }', "*'mod:f': unknown key breaks; accepted are graph_breaks*"),
        ('"f" = 0', "*'f': write 'module:qualname'*"),
        ("[tool.fullgraph.budget]", "*[[]tool.fullgraph[]] has budget; known are baseline, bud*"),
        ("[tool.fullgraph]\nbaseline = 3", "*[[]tool.fullgraph[]] baseline=3 is no name of a file"),
        ("[tool.fullgraph]\nbaseline = 'none.toml'", "*none.toml: there is no such file; *"),
        ("[tool", "*pyproject.toml: *"),
    ],
)
def test_malformed_budgets_are_errors(suite, entry, problem):
    write(suite)
    table = "" if entry.startswith("[") else "[tool.fullgraph.budgets]\n"
    (suite.pytester.path / "pyproject.toml").write_text(f"{table}{entry}\n")
    result = suite.run(ALL)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([problem])


def test_a_function_that_became_whole_is_named(suite):
    suite.write(
        OURS
        + """
from LIB import *
lazy_xp_function(double, allow_graph_breaks=2)
lazy_xp_function(branch, allow_graph_breaks=2)

def test_both(xp):
    double(xp.ones(3)), branch(xp.ones(3))
"""
    )
    result = suite.run(ALL)
    result.stdout.fnmatch_lines(["became whole: * (1):", f"  {suite.library}:double"])


BYPASS = """
from array_api_extra.testing import lazy_xp_function
import functools
import LIB as lib
from LIB import double, branch

lazy_xp_function(double)
lazy_xp_function(branch)
stored = functools.partial(double)

def test_module(xp):
    lib.double(xp.ones(3))

def test_partial_and_dict(xp, table={"f": branch}):
    stored(xp.ones(3))
    table["f"](xp.ones(3))

def test_compiled(xp):
    double(xp.ones(3))

def test_none_at_all(xp):
    pass
"""


def test_functions_that_are_called_plainly_are_listed(suite):
    suite.write(BYPASS)
    result = suite.run("--fg-modes=compile")
    result.assert_outcomes(passed=12)
    result.stdout.fnmatch_lines(
        [
            "tagged, but never called compiled by any test (1):",
            f"  {suite.library}:branch",
            "called plainly, past their compiled form:",
            f"  {suite.library}:branch in 1 test, at test_*.py:15",
            f"  {suite.library}:double in 2 tests, at test_*.py:11",
        ]
    )


def test_require_compiled_fails_those_tests_alone(suite):
    suite.write(BYPASS)
    result = suite.run("--fg-modes=compile", "--fg-require-compiled", "-rf")
    result.assert_outcomes(passed=10, failed=2)
    result.stdout.fnmatch_lines(
        ["*double was called plainly at *test_*.py:11: call it by its name in the test module*"]
    )


def test_require_compiled_fails_where_no_graph_ran(suite):
    suite.write(
        """
from array_api_extra.testing import lazy_xp_function
from LIB import sized

lazy_xp_function(sized)

def test_over(xp):
    for n in (2, 3, 4):
        sized(xp.ones(1), n)

def test_only_over(xp):
    sized(xp.ones(1), 5)
"""
    )
    options = (
        "--fg-modes=compile",
        "--fg-require-compiled",
        "--fg-recompile-limit=2",
        "-k",
        "torch",
    )
    result = suite.run(*options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*:sized ran no graph: over the limit 1x*",
            "recompile limit 2: 2 of 4 calls (50 %) ran no graph, because *",
        ]
    )


WRONG = """
def wrong(x):
    import torch
    return x + (1 if torch.compiler.is_compiling() else 0)

def scale(x):
    x *= 2
    return x
"""


def test_compare_fails_where_compiled_is_not_eager(suite):
    suite.write(
        """
from array_api_extra.testing import lazy_xp_function
from LIB import wrong, scale

lazy_xp_function(wrong, jax_jit=False)
lazy_xp_function(scale, jax_jit=False)

def test_wrong(xp):
    wrong(xp.ones(3))

def test_in_place(xp):
    x = xp.ones(3)
    assert scale(x) is x
    assert x.sum() == 6
""",
        library=WRONG,
    )
    suite.run("--fg-modes=compile,fullgraph", "-k", "torch").assert_outcomes(passed=4)
    result = suite.run("--fg-modes=compile,fullgraph", "--fg-compare", "-k", "torch")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*MismatchError: *:wrong: compiled and eager differ in result*"])


BUGGY = """
import array_api_extra as xpx

def first_two(x):
    return xpx.at(x)[0:2].add(1)
"""


def test_known_bugs_pass_or_fail(suite):
    suite.write(
        """
from array_api_extra.testing import lazy_xp_function
from LIB import first_two

lazy_xp_function(first_two)

def test_one(xp):
    assert first_two(xp.ones(3)).sum() == 5
""",
        library=BUGGY,
    )
    result = suite.run("--fg-modes=compile,fullgraph", "-k", "torch")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["known torch bug slice-*: 2 calls of 1 function*"])
    result = suite.run("--fg-modes=compile,fullgraph", "--fg-torch-bugs=fail", "-k", "torch")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*TorchBugError: *meets a known bug of torch (slice-*"])
