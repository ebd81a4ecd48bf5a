"""Examples of solvers, and the code of their guide, run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs/how-to-solve-odes.md").read_text(), re.DOTALL
)


def test_solve_an_ode(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples/solve_an_ode.py"), run_name="__main__")
    assert "gradient:" in capsys.readouterr().out


def test_the_guide_runs_from_top_to_bottom() -> None:
    assert len(BLOCKS) >= 6
    namespace: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, namespace)
