"""The group: help, exit codes, and that it starts at once."""

from __future__ import annotations

import builtins
import subprocess
import sys

import pytest

START = """
import resource, sys
before = resource.getrusage(resource.RUSAGE_SELF)
from fullgraph.cli.app import cli
cli.main(["--help"], prog_name="fullgraph", standalone_mode=False)
after = resource.getrusage(resource.RUSAGE_SELF)
heavy = {"torch", "numpy", "jax", "dask", "scipy", "array_api_compat", "rich", "jinja2", "optree"}
print("loaded", sorted(heavy & set(sys.modules)))
print("seconds", after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
"""


def test_help_is_quick_and_imports_no_array_library():
    """Processor time, since wall time on a busy machine says nothing."""
    done = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True)
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line[:9])
    assert lines["loaded"] == "[]"
    assert float(lines["seconds"]) < 0.3


def test_help_names_commands_and_exit_codes(fullgraph_command):
    ran = fullgraph_command("--help")
    assert ran.code == 0
    for word in ("audit", "doctor", "explain", "loop", "report", "Exit codes: 0 all is well"):
        assert word in ran.out


@pytest.mark.parametrize("command", ["audit", "doctor", "explain", "loop", "report"])
def test_every_command_has_help(fullgraph_command, command):
    ran = fullgraph_command(command, "--help")
    assert ran.code == 0
    assert "Exits with" in ran.out
    assert "\\b" not in ran.out
    examples = [line for line in ran.out.splitlines() if line.startswith(f"  fullgraph {command} ")]
    assert examples or command == "doctor"  # one a line, not run together


def test_version(fullgraph_command):
    import importlib.metadata

    assert importlib.metadata.version("fullgraph") in fullgraph_command("--version").out


def test_unknown_commands_and_options_exit_with_2(fullgraph_command):
    assert fullgraph_command("nothing").code == 2
    ran = fullgraph_command("doctor", "--nothing")
    assert (ran.code, "No such option" in ran.err) == (2, True)


def test_without_click_the_error_says_what_to_install(fullgraph_command, monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "click":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    ran = fullgraph_command("--help")
    assert ran.code == 3
    assert "pip install 'fullgraph[cli]'" in ran.err


def test_a_missing_library_exits_with_3(fullgraph_command, monkeypatch):
    from fullgraph.errors import MissingBackendError
    from fullgraph.testing._dynamo import versions

    def missing():
        raise MissingBackendError("torch is not installed: pip install torch")

    monkeypatch.setattr(versions, "torch_release", missing)
    ran = fullgraph_command("explain", "math:sin")
    assert (ran.code, ran.err) == (3, "fullgraph: torch is not installed: pip install torch\n")


def test_an_interrupt_exits_with_130(fullgraph_command, monkeypatch):
    from fullgraph.testing._dynamo import versions

    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(versions, "torch_release", stop)
    assert fullgraph_command("explain", "math:sin").code == 130
