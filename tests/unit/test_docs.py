"""The Python blocks of the documentation run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_run(page: Path) -> None:
    source = page.read_text()
    namespace: dict[str, object] = {"__name__": "documentation"}
    for match in BLOCK.finditer(source):
        line = source[: match.start(1)].count("\n")
        # padded, so that an error names the line of the page
        exec(compile("\n" * line + match[1], str(page), "exec"), namespace)
