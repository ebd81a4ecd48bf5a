"""Runs in several processes say what one process says."""

from __future__ import annotations

import dataclasses
import json

import pytest

from fullgraph.plugin.ledger import Ledger
from fullgraph.report.summary import summarise
from fullgraph.testing import Record

TESTS = """
import pytest
from array_api_extra.testing import lazy_xp_function
from LIB import double, branch, bent, sized
import LIB as lib

for f in (double, branch, bent, sized):
    lazy_xp_function(f)

@pytest.mark.parametrize("size", range(2, 8))
def test_double(xp, size):
    assert double(xp.ones(size)).sum() == 2 * size
    lib.sized(xp.ones(2), 1)

@pytest.mark.parametrize("size", range(2, 5))
def test_branch(xp, size):
    assert branch(xp.ones(size)).sum() == 2 * size

def test_bent(xp):
    bent(xp.ones(3))
"""


def summary_of(report):
    """The summary without what is a matter of chance: seconds."""
    run = report["run"]
    summary = summarise(
        Record.from_json(json.dumps(report)),
        limit=run["recompile_limit"],
        tagged=run["tagged"],
        bypassed=run["bypassed"],
        tests=run["tests"],
    )
    return dataclasses.replace(
        summary, rows=tuple(dataclasses.replace(row, seconds=0.0) for row in summary.rows)
    )


@pytest.mark.slow
def test_workers_say_what_one_process_says(suite):
    suite.write(TESTS)
    path = suite.pytester.path / "r.json"
    options = (
        "-p",
        "no:hypothesispytest",
        "--fg-modes=compile,fullgraph",
        "-k",
        "torch",
        f"--fg-report={path}",
    )
    suite.pytester.runpytest_subprocess(*options).assert_outcomes(passed=20)
    serial = summary_of(json.loads(path.read_text()))
    path.unlink()
    result = suite.pytester.runpytest_subprocess(*options, "-n", "2", "--dist=load")
    result.assert_outcomes(passed=20)
    parallel = summary_of(json.loads(path.read_text()))
    assert parallel == serial
    assert {row.mode for row in serial.rows} == {"compile", "fullgraph"}
    assert serial.unreached == (f"{suite.library}:sized",)
    assert serial.bypassed[0].tests == 12
    assert any(row.recompiles == 5 for row in serial.rows)
    result.stdout.fnmatch_lines(["compile: 10 passed; 10 calls of 3 functions*"])


@pytest.mark.slow
def test_a_crashed_worker_is_named(suite):
    suite.write(TESTS + "\n\ndef test_crash(xp, request):\n    import os\n    os._exit(3)\n")
    result = suite.pytester.runpytest_subprocess(
        "-p",
        "no:hypothesispytest",
        "--fg-modes=compile",
        "-k",
        "crash and torch or bent and torch",
        "-n",
        "1",
    )
    result.stdout.fnmatch_lines(["no records from workers that crashed: gw*"])


def test_ledgers_survive_json_and_add_up():
    one = Ledger(tagged={"m:f"}, budgets={"m:f": (float("inf"), None)})
    one.bypassed = {"m:f": {"t1": "a.py:1"}}
    two = Ledger(tagged={"m:g"}, bypassed={"m:f": {"t2": "a.py:2"}})
    merged = Ledger.from_json(one.to_json())
    merged.merge(Ledger.from_json(two.to_json()))
    assert merged.tagged == {"m:f", "m:g"}
    assert merged.budgets == {"m:f": (float("inf"), None)}
    assert merged.bypassed == {"m:f": {"t1": "a.py:1", "t2": "a.py:2"}}
