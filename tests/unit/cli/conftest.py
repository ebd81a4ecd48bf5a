"""Run the command line in this process."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def fullgraph_command(monkeypatch, capfd, tmp_path):
    """Run ``fullgraph ...`` in an empty folder, and return what it said."""
    import sys

    from fullgraph.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fullgraph", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run
