"""What is offered to other projects still fits them, and still fits the plugin."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ADOPT = ROOT / "docs" / "adopt"


def test_the_patch_for_scipy_applies_to_the_installed_release(tmp_path):
    home = Path(importlib.util.find_spec("scipy").origin).parent
    for name in ("_lib/_array_api.py", "conftest.py"):
        target = tmp_path / "scipy" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / name, target)
    patch = ADOPT / "scipy-xp-capabilities.patch"
    done = subprocess.run(
        ["git", "apply", "--unsafe-paths", f"--directory={tmp_path}", str(patch)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "scipy" / "_lib" / "_array_api.py").read_text()
    compile(text, "_array_api.py", "exec")
    assert "allow_graph_breaks=None" in text


def test_a_tag_of_array_api_extra_may_carry_a_budget(suite):
    """What the patched `xp_capabilities` does, in a line."""
    suite.write(
        """
from array_api_extra.testing import lazy_xp_function
from LIB import double, branch

for f in (double, branch):
    lazy_xp_function(f, jax_jit=False)
    f._lazy_xp_function.update(torch_compile=True, allow_graph_breaks=0, allow_recompiles=None)

def test_double(xp):
    double(xp.ones(3))

def test_branch(xp):
    branch(xp.ones(3))
"""
    )
    result = suite.run("--fg-modes=eager,compile,fullgraph")
    result.assert_outcomes(passed=8, failed=2)


def test_the_workflow_runs_what_the_plugin_takes(suite):
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load((ADOPT / "array-api-extra-torch-modes.yml").read_text())
    job = workflow["jobs"]["torch"]
    modes = job["strategy"]["matrix"]["mode"]
    assert modes == ["eager", "compile", "fullgraph"]
    (step,) = [step for step in job["steps"] if step.get("name") == "Test"]
    words = shlex.split(step["run"].replace("${{ matrix.mode }}", "compile"))
    assert words[:3] == ["python", "-m", "pytest"]
    options = [word for word in words if word.startswith("--fg-")]
    assert options == ["--fg-modes=compile", "--fg-report=torch-compile.json"]
    suite.write("def test_nothing(): pass")
    suite.run(*options).assert_outcomes(passed=1)


def test_the_how_to_for_plain_projects_is_a_suite_that_passes(suite):
    _, _, page = (ROOT / "docs" / "how-to-adopt.md").read_text().partition("## A PyTorch project")
    blocks = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    suite.pytester.makepyfile("\n".join(blocks))
    suite.run("--strict-markers").assert_outcomes(passed=3)
