"""The command line: what is accepted, what is said, and how the plugin is loaded."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys

import pytest

from fullgraph.testing import Record

TESTS = """
from array_api_extra.testing import lazy_xp_function
from LIB import double, branch, sized

lazy_xp_function(double)
lazy_xp_function(branch, jax_jit=False)
lazy_xp_function(sized, jax_jit=False)

def test_double(xp):
    assert double(xp.ones(3)).sum() == 6

def test_branch(xp):
    assert branch(xp.ones(3)).sum() == 6

def test_sizes(xp):
    for n in (2, 3, 4):
        for size in (2, 3, 4):
            assert sized(xp.ones(size), n).sum() == n * size
"""


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (
            "--fg-modes=eager,whole",
            "*unknown mode whole: accepted are eager, compile, fullgraph, jit*",
        ),
        ("--fg-modes=", "*unknown mode*"),
        ("--fg-backend=cudagraphs", "*invalid choice: 'cudagraphs'*"),
        ("--fg-recompile-limit=0", "*'0' is not accepted: give a whole number >= 1"),
        ("--fg-recompile-limit=many", "*'many' is not accepted*"),
        ("--fg-dynamic=sometimes", "*invalid choice: 'sometimes'*"),
        ("--fg-torch-bugs=ignore", "*invalid choice: 'ignore'*"),
        (
            "--fg-report=no/such/folder/r.json",
            "*--fg-report=no/such/folder/r.json: there is no folder*",
        ),
    ],
)
def test_wrong_values_are_refused(suite, option, problem):
    suite.write(TESTS)
    result = suite.run(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([problem])


def test_recompile_limit_and_its_price(suite):
    suite.write(TESTS)
    result = suite.run("--fg-modes=compile", "--fg-recompile-limit=4", "-k", "torch")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        [
            "recompile limit 4: 5 of 11 calls (46 %) ran no graph, because their function had *",
            f"  {suite.library}:sized: 5 of 9 calls",
            "  a higher --fg-recompile-limit tests them too, and takes longer",
        ]
    )
    result = suite.run("--fg-modes=compile", "-k", "torch")
    result.stdout.fnmatch_lines(["recompile limit 256: no call was over it"])


@pytest.mark.parametrize(
    ("dynamic", "recompiles"), [("", 8), ("=no", 8), ("=yes", 0), ("=auto", 1)]
)
def test_dynamic_shapes_cut_recompiles(suite, dynamic, recompiles):
    suite.write(TESTS)
    options = [f"--fg-dynamic{dynamic}"] if dynamic else []
    report = suite.report("--fg-modes=compile", "-k", "torch and sizes", *options)
    (function,) = Record.from_json(json.dumps(report)).functions
    assert (
        function.recompiles <= recompiles
        if dynamic in ("=yes", "=auto")
        else (function.recompiles == recompiles)
    )


def test_dynamic_alone_means_yes(suite):
    suite.write(TESTS)
    report = suite.report("--fg-modes=compile", "-k", "torch and double", "--fg-dynamic")
    assert report["run"]["dynamic"] is True


@pytest.mark.parametrize("backend", ["aot_eager", "trace"])
def test_backend(suite, backend):
    suite.write(TESTS)
    report = suite.report("--fg-modes=compile", "-k", "torch and double", f"--fg-backend={backend}")
    assert [function["backend"] for function in report["functions"]] == [backend]


def test_report_is_a_record_with_the_run_beside_it(suite):
    suite.write(TESTS)
    report = suite.report("--fg-modes=eager,compile,fullgraph", "-k", "torch")
    record = Record.from_json(json.dumps(report))
    names = {(f.name.rpartition(":")[2], str(f.mode)) for f in record.functions}
    assert names == {
        (name, mode) for name in ("double", "branch", "sized") for mode in ("compile", "fullgraph")
    }
    assert report["run"]["tests"] == {m: {"passed": 3} for m in ("eager", "compile", "fullgraph")}
    assert report["run"]["recompile_limit"] == 256
    assert report["run"]["versions"]["torch"]


def test_quiet_keeps_the_table_and_says_less_below_it(suite):
    suite.write(TESTS)
    result = suite.run("-q", "--fg-modes=compile", "-k", "torch")
    result.stdout.fnmatch_lines(
        ["function * mode * calls *", "*:branch * compile *", "    lib_*.py:5: Data-dependent *"]
    )
    result.stdout.no_fnmatch_line("recompile limit*")


def test_very_quiet_says_totals_and_what_needs_attention(suite):
    suite.write(TESTS)
    lines = suite.run("-qq", "--fg-modes=compile", "-k", "torch").outlines
    assert not [line for line in lines if line.startswith("function ")]
    assert [line for line in lines if line.startswith("compile: 3 passed; 11 calls of 3 functions")]
    assert not [line for line in lines if line.startswith("recompile limit")]
    lines = suite.run("-qq", "--fg-modes=compile", "-k", "torch", "--fg-recompile-limit=2").outlines
    assert [line for line in lines if line.startswith("recompile limit 2: 7 of 11 calls")]


def test_a_row_for_each_function_with_its_first_reason(suite):
    suite.write(TESTS)
    result = suite.run("--fg-modes=compile,fullgraph", "-k", "torch")
    result.stdout.fnmatch_lines(
        [
            "function * mode * calls  coverage  graphs  sites  recompiles  seconds",
            "*:branch * compile * 1 * 100 % * 2 * 1 * 0 *",
            "    lib_*.py:5: Data-dependent *",
            "*:double * compile * 1 * 100 % * 1 * whole * 0 *",
        ]
    )


def test_verbose_says_what_the_calls_came_to(suite):
    suite.write(TESTS)
    result = suite.run("-v", "--fg-modes=compile", "-k", "torch")
    result.stdout.fnmatch_lines(["*:sized * 9 * 100 %*", "    graph ran 9"])


PRELUDE = """
import sys, pytest
before = set(sys.modules)
"""


def in_new_process(suite, *args, env=None, code=None):
    command = [sys.executable, *(("-c", code) if code else ("-m", "pytest")), *args]
    return subprocess.run(
        command,
        cwd=suite.pytester.path,
        capture_output=True,
        text=True,
        timeout=280,
        env=env,
        check=False,
    )


def test_loaded_but_unasked_it_imports_little_and_changes_nothing(suite):
    suite.pytester.makepyfile(
        """
        import logging, sys

        def test_loaded(request):
            assert request.config.pluginmanager.has_plugin("fullgraph")
            loaded = [name for name in sys.modules if name.startswith("fullgraph")]
            assert sorted(loaded) == [
                "fullgraph", "fullgraph.plugin", "fullgraph.plugin.options",
                "fullgraph.pytest_plugin",
            ]
            for name in ("numpy", "torch", "array_api_compat", "optree", "jax", "rich"):
                assert name not in sys.modules, name
            assert "torch.__trace" not in logging.root.manager.loggerDict
        """
    )
    done = in_new_process(suite, "-p", "no:hypothesispytest", "-W", "error")
    assert done.returncode == 0, done.stdout


def test_without_the_plugin_its_options_are_unknown(suite):
    suite.write(TESTS)
    result = suite.run("-p", "no:fullgraph", "-k", "torch")
    result.assert_outcomes(passed=3)
    result = suite.run("-p", "no:fullgraph", "--fg-modes=compile")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*unrecognized arguments: --fg-modes=compile*"])


@pytest.mark.slow
def test_where_plugins_are_not_loaded_by_themselves(suite, monkeypatch):
    suite.write(TESTS)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    done = in_new_process(
        suite, "-p", "fullgraph.pytest_plugin", "--fg-modes=compile", "-k", "torch and double", "-q"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compile: 1 passed; 1 call of 1 function" in done.stdout


@pytest.mark.slow
def test_warnings_as_errors_in_a_new_process(suite):
    suite.write(TESTS)
    done = in_new_process(
        suite, "-W", "error", "--fg-modes=eager,compile,fullgraph", "-k", "torch", "-q"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


def test_warnings_as_errors(suite):
    suite.write(TESTS)
    suite.run("-W", "error", "--fg-modes=eager,compile,fullgraph", "-k", "torch").assert_outcomes(
        passed=9
    )


def test_log_capture_leaves_structured_tracing_off(suite):
    suite.write(
        """
import logging
from array_api_extra.testing import lazy_xp_function
from LIB import double

lazy_xp_function(double)

def test_double(xp, caplog):
    logger = logging.getLogger("torch.__trace")
    assert logger.handlers == OWN
    with caplog.at_level("INFO"):
        logging.getLogger("any").info("still captured")
    double(xp.ones(3))
    assert "still captured" in caplog.text
""".replace("OWN", "[]")
    )
    suite.run("--fg-modes=compile", "-k", "torch").assert_outcomes(passed=1)
    own = logging.NullHandler()
    logger = logging.getLogger("torch.__trace")
    logger.addHandler(own)
    try:
        suite.run("--fg-modes=compile", "-k", "torch").assert_outcomes(failed=1)
        assert logger.handlers == [own]
    finally:
        logger.removeHandler(own)


def test_junit_says_the_mode(suite):
    suite.write(TESTS)
    suite.run("--fg-modes=compile", "-k", "torch and double", "--junit-xml=j.xml")
    text = (suite.pytester.path / "j.xml").read_text()
    assert '<property name="fullgraph_mode" value="compile"' in text


def run_slow(suite, *options, env=None):
    """Run a test that waits for two seconds, with a line after 0.2."""
    code = f"""
import sys, pytest
sys.path.insert(0, {str(suite.pytester.path)!r})
import fullgraph.plugin.progress as progress
progress.FIRST_LINE = 0.2
options = ["--fg-modes=compile", "-k", "torch", "-p", "no:cacheprovider", *{options!r}]
sys.exit(pytest.main(options))
"""
    suite.write(
        """
from array_api_extra.testing import lazy_xp_function
from LIB import slow

lazy_xp_function(slow)

def test_slow(xp):
    slow(xp.ones(3))
""",
        library="""
import time, torch

@torch.compiler.disable
def wait():
    time.sleep(2)

def slow(x):
    wait()
    return x + 1
""",
    )
    done = in_new_process(suite, code=code, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_long_call_is_named_while_it_runs(suite):
    assert f"fullgraph: in {suite.library}:slow for " in run_slow(suite)
    assert "fullgraph: in" not in run_slow(suite, "-q")


@pytest.mark.slow
def test_a_long_call_of_a_worker_is_named_with_it(suite):
    (suite.pytester.path / "sitecustomize.py").write_text(
        "import fullgraph.plugin.progress as progress\nprogress.FIRST_LINE = 0.2\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(suite.pytester.path)}
    said = run_slow(suite, "-n", "1", env=environment)
    assert f"fullgraph: gw0 in {suite.library}:slow for " in said
