"""The pytest plugin: any array-API suite in eager and compiled modes, and records of both.

Registered as the entry point ``fullgraph``; where plugins are not loaded by themselves, by
``-p fullgraph.pytest_plugin``. Loaded but unasked it declares its options and markers, imports only
the standard library and pytest, and changes nothing. A run asks by ``--fg-modes`` or
``--fg-report``, by the marker ``fullgraph``, or by the fixture ``compile_record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fullgraph.plugin.options import add_options, add_ratchet_options, ends_with_something

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from fullgraph.plugin.ratchet import RunRatchet
    from fullgraph.plugin.session import RunSession
    from fullgraph.testing import Recording

_SESSION = pytest.StashKey["RunSession"]()
_RATCHET: pytest.StashKey[RunRatchet] = pytest.StashKey()
_MARKERS = (
    "skip_xp_mode(mode, reason=None): skip the test in this mode of --fg-modes",
    "xfail_xp_mode(mode, reason=None, strict=None): expect the test to fail in this mode of "
    "--fg-modes",
    "fullgraph(package=None, graph_breaks=0, recompiles=None): fail the test if what it compiles "
    "breaks the graph inside `package` (anywhere by default), recompiles more often than allowed, "
    "or runs no graph",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)
    add_ratchet_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; begin, if something is asked."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    if config.getoption("--fg-modes") and not config.getoption("--fg-baseline"):
        from fullgraph.plugin.budgets import read_baseline

        named = read_baseline(config.rootpath / "pyproject.toml")
        config.option.fg_baseline = None if named is None else str(named)
    ends = ends_with_something(config)
    if ends and not hasattr(config, "workerinput"):
        from fullgraph.plugin.ratchet import RunRatchet

        config.stash[_RATCHET] = RunRatchet(config)
    if ends or config.getoption("--fg-modes") or config.getoption("--fg-report"):
        _session(config)


def _session(config: pytest.Config) -> RunSession:
    """Return the session of this run, begun at its first use."""
    found = config.stash.get(_SESSION, None)
    if found is None:
        from fullgraph.plugin.session import RunSession

        found = config.stash[_SESSION] = RunSession(config)
        config.pluginmanager.register(found, "fullgraph-session")
        found.open()
    return found


def pytest_unconfigure(config: pytest.Config) -> None:
    """Put everything back."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        del config.stash[_SESSION]
        session.close()
        config.pluginmanager.unregister(session)


@pytest.fixture
def compile_record(request: pytest.FixtureRequest) -> Iterator[Recording]:
    """Record what torch compiles during the test: ``compile_record.record.breaks_in("mypkg")``."""
    from fullgraph.plugin.plain import recorded

    _session(request.config)
    with recorded() as recording:
        yield recording


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Hold a test with the marker ``fullgraph`` to what the marker says."""
    marker = item.get_closest_marker("fullgraph")
    if marker is None:
        return (yield)
    from fullgraph.plugin.plain import check, parse_marker, recorded

    demand = parse_marker(marker)
    _session(item.config)
    with recorded() as recording:
        result = yield
    check(demand, recording.record)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """Settle the records: a worker of pytest-xdist sends them, anyone else writes the report."""
    config = session.config
    run = config.stash.get(_SESSION, None)
    if run is not None:
        run.settle()
        output = getattr(config, "workeroutput", None)
        if output is not None:
            output["fullgraph"] = run.ledger.to_json()
    result = yield
    run = config.stash.get(_SESSION, None)  # a worker's records may have begun it
    if run is not None and not hasattr(config, "workerinput"):
        from fullgraph.plugin.ending import write_report

        write_report(run)
        ratchet = config.stash.get(_RATCHET, None)
        if ratchet is not None:
            ratchet.settle(run, int(session.exitstatus))
            if ratchet.failed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
    return result


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the records of a worker that has ended (pytest-xdist)."""
    sent = (getattr(node, "workeroutput", None) or {}).get("fullgraph")
    if sent is not None:
        from fullgraph.plugin.ledger import Ledger

        _session(node.config).ledger.merge(Ledger.from_json(sent))
    elif (run := node.config.stash.get(_SESSION, None)) is not None:
        run.lost_workers.append(node.gateway.id)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    """Say what was captured."""
    session = config.stash.get(_SESSION, None)
    if session is None:
        return
    from fullgraph.plugin.ending import say_summary

    say_summary(session, terminalreporter)
    ratchet = config.stash.get(_RATCHET, None)
    if ratchet is not None:
        ratchet.settle(session, int(exitstatus))
        ratchet.say(terminalreporter)
