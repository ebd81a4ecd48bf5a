"""The tutorial, from its first line to its last: files are written, commands are run."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
STEP = re.compile(
    r"^<!-- file: (?P<name>\S+) -->\n```py\n(?P<content>.*?)^```$"
    r"|^```console\n\$ (?P<command>[^\n]+)\n(?P<output>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROGRAMS = {"pytest": ["-m", "pytest"], "fullgraph": ["-m", "fullgraph"]}


def run(command: str, folder: Path) -> str:
    program, *arguments = shlex.split(command)
    if program == "cat":
        return (folder / arguments[0]).read_text()
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}
    done = subprocess.run(
        [sys.executable, *PROGRAMS[program], *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout + (f"[exit code {done.returncode}]\n" if done.returncode else "")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tutorial(tmp_path):
    text = PAGE.read_text()
    steps = list(STEP.finditer(text))
    assert len(steps) == text.count("```") / 2, "every block is a file or a command"
    checker = doctest.OutputChecker()
    for step in steps:
        if step["name"]:
            (tmp_path / step["name"]).write_text(step["content"])
            continue
        said = run(step["command"], tmp_path)
        line = text[: step.start()].count("\n") + 1
        assert checker.check_output(step["output"], said, FLAGS), (
            f"{PAGE.name}:{line}: {step['command']}\nexpected\n{step['output']}\ngot\n{said}"
        )
    assert "relax" in (tmp_path / "report.html").read_text()
