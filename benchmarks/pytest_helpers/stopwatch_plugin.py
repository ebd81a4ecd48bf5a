"""Write how long the tests of a run took, wall and CPU, and how they ended: for `suites.py`."""

from __future__ import annotations

import collections
import json
import os
import resource
import time

import pytest

_outcomes = collections.Counter()
_tests = {}
_MODES = ("-eager]", "-compile]", "-fullgraph]")


def _cpu():
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtestloop(session):
    wall, cpu = time.perf_counter(), _cpu()
    try:
        return (yield)
    finally:
        path = os.environ.get("STOPWATCH")
        if path and not hasattr(session.config, "workerinput"):
            with open(path, "w") as file:
                json.dump(
                    {
                        "wall": time.perf_counter() - wall,
                        "cpu": _cpu() - cpu,
                        "outcomes": dict(_outcomes),
                        "tests": _tests,
                    },
                    file,
                )


def _test(nodeid):
    """Return the name of a test, the same in every mode."""
    for mode in _MODES:
        nodeid = nodeid.removesuffix(mode) + "]" if nodeid.endswith(mode) else nodeid
    return nodeid


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    cpu = _cpu()
    try:
        return (yield)
    finally:
        name = _test(item.nodeid)
        if _tests.get(name) == "passed":
            _tests[name] = round(_cpu() - cpu, 4)


def pytest_runtest_logreport(report):
    if report.when == "call":
        _tests[_test(report.nodeid)] = report.outcome
    if report.when == "call" or report.outcome != "passed":
        _outcomes["xfailed" if hasattr(report, "wasxfail") else report.outcome] += 1


def pytest_configure(config):
    # Imported by every mode but eager: not a cost of any test
    import torch._dynamo  # noqa: F401
