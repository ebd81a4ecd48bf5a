"""The markers about modes, and what a malformed one leads to."""

from __future__ import annotations

import pytest

TESTS = """
import pytest
from array_api_extra.testing import lazy_xp_function
from LIB import double

lazy_xp_function(double)

@pytest.mark.MARKER
def test_one(xp, request):
    double(xp.ones(3))
    FAIL
"""


def write(suite, marker, fail="pass"):
    suite.write(TESTS.replace("MARKER", marker).replace("FAIL", fail))


def test_skip_one_mode_with_its_reason(suite):
    write(suite, "skip_xp_mode('compile', reason='too slow')")
    result = suite.run("--fg-modes=eager,compile,fullgraph", "-k", "torch", "-rs")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*mode compile: too slow"])


def test_skip_does_not_touch_a_run_without_modes(suite):
    write(suite, "skip_xp_mode('compile')")
    suite.run("-k", "torch", "--strict-markers").assert_outcomes(passed=1)


FAILS_COMPILED = "assert 'compile' not in request.node.name"


@pytest.mark.parametrize(
    ("marker", "fail", "outcomes"),
    [
        ("xfail_xp_mode('compile')", FAILS_COMPILED, {"passed": 1, "xfailed": 1}),
        ("xfail_xp_mode('compile', reason='known')", "pass", {"passed": 1, "xpassed": 1}),
        ("xfail_xp_mode('compile', strict=True)", "pass", {"passed": 1, "failed": 1}),
        ("xfail_xp_mode('eager')", FAILS_COMPILED, {"xpassed": 1, "failed": 1}),
    ],
)
def test_xfail_one_mode(suite, marker, fail, outcomes):
    write(suite, marker, fail)
    suite.run("--fg-modes=eager,compile", "-k", "torch").assert_outcomes(**outcomes)


@pytest.mark.parametrize(
    ("marker", "problem"),
    [
        ("skip_xp_mode", "it takes one mode, not 0"),
        ("skip_xp_mode('compile', 'eager')", "it takes one mode, not 2"),
        ("skip_xp_mode('compiled')", "'compiled' is not a mode; these are eager, compile"),
        ("skip_xp_mode('compile', strict=True)", "unknown argument strict"),
        ("skip_xp_mode('compile', reason=1)", "reason=1 is not a text"),
        ("xfail_xp_mode('compile', raises=ValueError)", "unknown argument raises"),
        ("xfail_xp_mode('compile', strict='yes')", "strict='yes' is not True or False"),
    ],
)
def test_malformed_markers_are_errors(suite, marker, problem):
    write(suite, marker)
    result = suite.run("--fg-modes=eager,compile")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*malformed marker *: {problem}*"])


PLAIN = """
import pytest, torch

def f(x):
    return x * 2

def g(x):
    print("hello")
    return x * 2

def call(func, *shapes):
    compiled = torch.compile(func, backend="eager", dynamic=False)
    for shape in shapes or (2,):
        compiled(torch.ones(shape))

@pytest.mark.MARKER
def test_one():
    BODY
"""


@pytest.mark.parametrize(
    ("marker", "body", "problem"),
    [
        ("fullgraph", "call(f)", None),
        ("fullgraph", "call(g)", "*the test breaks the graph at 1 place, none is allowed*"),
        ("fullgraph(graph_breaks=True)", "call(g); call(f)", None),
        ("fullgraph(package='json')", "call(g); call(f)", None),
        ("fullgraph('json')", "call(g); call(f)", None),
        ("fullgraph(recompiles=1)", "call(f, 2, 3)", None),
        ("fullgraph(recompiles=0)", "call(f, 2, 3)", "*was compiled again 1 time*"),
        ("fullgraph", "pass", "*ran no compiled graph*"),
        ("fullgraph(graph_brakes=1)", "call(f)", "*malformed marker fullgraph*graph_brakes*"),
        ("fullgraph(graph_breaks=-1)", "call(f)", "*malformed marker fullgraph*-1*"),
        ("fullgraph(package=3)", "call(f)", "*malformed marker fullgraph: package=3*"),
    ],
)
def test_marker_of_plain_projects(suite, marker, body, problem):
    suite.pytester.makepyfile(PLAIN.replace("MARKER", marker).replace("BODY", body))
    result = suite.run()
    result.assert_outcomes(**({"failed": 1} if problem else {"passed": 1}))
    if problem:
        result.stdout.fnmatch_lines([problem])


def test_fixture_of_plain_projects(suite):
    suite.pytester.makepyfile(
        PLAIN.replace(
            "@pytest.mark.MARKER\ndef test_one()", "def test_one(compile_record)"
        ).replace(
            "BODY",
            """call(g)
    here = compile_record.record.breaks_in(__file__)
    assert [site.reason for site in here] == ["Failed to trace builtin operator"]
    assert compile_record.record.breaks_in("json") == []
""",
        )
    )
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["own: 1 call of 1 function*"])
