"""``fullgraph doctor`` finds what is missing."""

from __future__ import annotations

import importlib.metadata
import json

import pytest

from fullgraph.cli import doctor


def findings(ran):
    return {item["what"]: item for item in json.loads(ran.out)}


def test_here_all_is_well(fullgraph_command):
    ran = fullgraph_command("doctor", "--json")
    found = findings(ran)
    assert ran.code == 0
    assert found["torch.compile"]["state"] == "ok"
    assert "threads of" in found["torch threads"]["found"]


def test_text_names_the_fix(fullgraph_command, monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    ran = fullgraph_command("doctor", "--quick")
    assert ran.code == 0
    assert "none found" in ran.out
    assert "apt install gcc" in ran.out


@pytest.mark.parametrize(
    ("version", "said"), [(None, "not installed"), ("2.12.1", "too old: 2.13")]
)
def test_torch_that_is_missing_or_old(fullgraph_command, monkeypatch, version, said):
    real = importlib.metadata.version

    def fake(name):
        if name != "torch":
            return real(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", fake)
    ran = fullgraph_command("doctor", "--quick", "--json")
    assert ran.code == 3
    assert said in findings(ran)["torch"]["found"]
    assert "pip install 'fullgraph[torch]'" in findings(ran)["torch"]["fix"]


def test_plugins_that_are_not_loaded(fullgraph_command, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    found = findings(fullgraph_command("doctor", "--quick", "--json"))
    assert found["pytest plugin"]["state"] == "note"
    assert "-p fullgraph.pytest_plugin" in found["pytest plugin"]["fix"]


def test_a_compiler_that_cannot_be_asked(fullgraph_command, monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    found = findings(fullgraph_command("doctor", "--quick", "--json"))
    assert found["C compiler"]["found"] == f"{broken}: version unknown"


@pytest.mark.parametrize(
    ("text", "numbers"), [("2.14.1+cu130", (2, 14, 1)), ("0.11.dev3", (0, 11)), ("8", (8,))]
)
def test_versions_are_compared_by_number(text, numbers):
    assert doctor._numbers(text) == numbers
