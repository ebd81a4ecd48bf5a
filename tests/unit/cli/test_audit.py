"""``fullgraph audit`` on a small suite; its pytest runs in another process."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fullgraph.cli.audit import Settings, command_for
from fullgraph.errors import MissingBackendError, UsageError
from fullgraph.testing import Record

SUITE = {
    "conftest.py": """
import numpy, pytest, torch
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture(params=[numpy, torch], ids=["numpy", "torch"])
def xp(request):
    with patch_lazy_xp_functions(request, xp=request.param):
        yield request.param
""",
    "fg_audited.py": """
def double(x):
    return x * 2

def branch(x):
    if x.sum() > 0:
        return x + 1
    return x
""",
    "test_audited.py": """
import time
from array_api_extra.testing import lazy_xp_function
from fg_audited import branch, double

lazy_xp_function(double)
lazy_xp_function(branch)

def test_double(xp):
    assert double(xp.ones(3)).sum() == 6

def test_branch(xp):
    assert branch(xp.ones(3)).sum() == 6
""",
}


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    for name, text in SUITE.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_records_of_all_modes_of_torch_tests(fullgraph_command, suite):
    ran = fullgraph_command("audit", "test_audited.py", "--html", "a.html")
    assert ran.code == 0
    found = {
        (item.name.partition(":")[2], str(item.mode)): item
        for item in Record.from_json((suite / "fullgraph-audit.json").read_text()).functions
    }
    assert {mode for _, mode in found} == {"compile", "fullgraph"}
    assert found["double", "fullgraph"].whole == 1
    assert len(found["branch", "compile"].breaks) == 1
    assert "fg_audited:branch" in ran.out
    assert "6 passed, 2 deselected" in ran.err
    assert "of processor time" in ran.err
    assert "fg_audited:branch" in (suite / "a.html").read_text()


def test_failing_tests_exit_with_1_and_json_is_printed(fullgraph_command, suite):
    text = SUITE["test_audited.py"].replace("== 6", "== 7", 1)
    (suite / "test_audited.py").write_text(text)
    ran = fullgraph_command("audit", ".", "--modes", "compile", "--json")
    assert ran.code == 1
    data = json.loads(ran.out)
    assert data["run"]["tests"]["compile"] == {"failed": 1, "passed": 1}


def test_no_tests_exit_with_2(fullgraph_command, suite):
    (suite / "test_audited.py").unlink()
    (suite / "test_none.py").write_text("")
    ran = fullgraph_command("audit", ".")
    assert (ran.code, "pytest found no tests of . (exit code 5)" in ran.err) == (2, True)


def test_what_is_neither_a_path_nor_a_package_is_refused(tmp_path):
    with pytest.raises(UsageError, match="'no_such_package' is no path and no installed package"):
        command_for(Settings("no_such_package"), tmp_path / "r.json")


def test_workers_need_xdist(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingBackendError, match="pip install pytest-xdist"):
        command_for(Settings(str(tmp_path), workers=2), tmp_path / "r.json")


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    settings = Settings("fullgraph", ("-k", "x"), 3, "compile", 8)
    command = command_for(settings, tmp_path / "r.json")
    assert command[3:5] == ["--pyargs", "fullgraph"]
    assert command[-2:] == ["-k", "x"]
    assert {"--fg-modes=compile", "--fg-recompile-limit=8", "-n", "3"} <= set(command)
    assert "fullgraph.pytest_plugin" in command


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no process groups to interrupt")
@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupted_run_keeps_what_it_had(suite, workers):
    """Ctrl-C goes to the whole group of processes, as from a terminal."""
    (suite / "test_audited.py").write_text(
        SUITE["test_audited.py"]
        + "\ndef test_hang(xp):\n    open('hangs', 'w').close()\n    time.sleep(120)\n"
    )
    command = [sys.executable, "-m", "fullgraph", "audit", "test_audited.py", "-n", str(workers)]
    environment = {**os.environ, "FULLGRAPH_KEEP_EVERY": "0"}
    process = subprocess.Popen(
        command,
        cwd=suite,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 200
    while not (suite / "hangs").exists() and time.monotonic() < deadline:
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130, out
    assert "The run was interrupted" in out
    record = Record.from_json((suite / "fullgraph-audit.json").read_text())
    assert {item.name for item in record.functions} == {"fg_audited:double", "fg_audited:branch"}
