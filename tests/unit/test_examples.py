"""The scripts in examples/ run."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("script", ["write_a_loop_once.py"])
def test_example(script):
    done = subprocess.run(
        [sys.executable, EXAMPLES / script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "numpy" in done.stdout
