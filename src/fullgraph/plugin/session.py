"""One run of pytest that asked for something: modes, records, and what is said at the end."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from fullgraph.errors import NothingCompiledError
from fullgraph.plugin.budgets import Budgets, read_budgets
from fullgraph.plugin.bypass import BypassWatch
from fullgraph.plugin.collector import Collector
from fullgraph.plugin.contexts import Switchboard
from fullgraph.plugin.copies import Copies
from fullgraph.plugin.jitted import jitted_argument
from fullgraph.plugin.judge import not_compiled
from fullgraph.plugin.ledger import Ledger, RunRecorder
from fullgraph.plugin.logs import detach_pytest_handlers
from fullgraph.plugin.modes import MODE, MODE_PROPERTY, expand, mode_of, taken_by
from fullgraph.plugin.namespaces import backend_of_value
from fullgraph.plugin.options import Options
from fullgraph.plugin.progress import FOLDER, Progress
from fullgraph.testing import _progress
from fullgraph.testing._discover import tagged_targets
from fullgraph.testing._names import display_name
from fullgraph.testing._options import CallOptions
from fullgraph.testing._patch import (
    budget_for,
    patch_lazy_xp_functions,
    set_call_options,
    wrap_tagged,
)
from fullgraph.testing._tally import close_recorder, open_recorder

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from fullgraph.testing._records import Record

__all__ = ["RunSession"]

_COMPILED = ("compile", "fullgraph")


class RunSession:
    """A pytest plugin for one run; everything that it changes, `close` restores."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.ledger = Ledger()
        self.outcomes: dict[str, Counter[str]] = {}
        """Tests by mode and outcome, from the reports."""
        self.lost_workers: list[str] = []
        self.progress: Progress | None = None
        self.board = Switchboard()
        self._watch = BypassWatch()
        self._recorder = RunRecorder()
        self._collector = Collector()
        self._undo = contextlib.ExitStack()
        self.budgets: Budgets = read_budgets(config.rootpath / "pyproject.toml")

    @property
    def whole_suite(self) -> bool:
        """Whether nothing was deselected, and no part of the suite was asked for."""
        get = self.config.getoption
        return not (get("keyword") or get("markexpr") or get("file_or_dir"))

    # --- begin and end ---

    def open(self) -> None:
        """Begin to record, and take over what patches tagged functions."""
        options = self.options
        open_recorder(self._recorder)
        self._undo.callback(close_recorder, self._recorder)
        if not options.modes:
            return
        before = set_call_options(
            CallOptions(
                backend=options.backend,
                recompile_limit=options.recompile_limit,
                dynamic=options.dynamic,
                strict=options.strict,
                compare=options.compare,
                fail_on_torch_bugs=options.fail_on_torch_bugs,
                budget_of=self.budgets,
            )
        )
        self._undo.callback(set_call_options, before)
        _progress.while_running.append(self._watch.paused)
        self._undo.callback(_progress.while_running.remove, self._watch.paused)
        self._undo.callback(self._collector.unfreeze)
        copies = Copies(self._dispatch)
        self._undo.callback(copies.restore)
        copies.take_over_all()
        self.progress = Progress(self.config)
        self._undo.callback(self.progress.stop)
        self.progress.start()

    def close(self) -> None:
        """Put everything back as it was."""
        self.board.switch(None)
        self._undo.close()

    def settle(self) -> None:
        """Add what this process has recorded to the ledger; once, at the end of its tests."""
        self.ledger.record = self.ledger.record.merge(self._recorder.record())

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where to write how long its calls take."""
        folder = self.progress.folder() if self.progress is not None else None
        if folder is not None:
            node.workerinput[FOLDER] = folder

    # --- collection ---

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makeitem(self) -> Generator[None, Any, Any]:
        """Make one test for each mode."""
        made = yield
        if not self.options.modes or not isinstance(made, list):
            return made
        tests: list[Any] = []
        for item in made:
            if isinstance(item, pytest.Function):
                tests.extend(expand(item, self.options.modes, self.options.fixtures))
            else:
                tests.append(item)
        return tests

    # --- one test ---

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run a test in its mode."""
        self.board.switch(mode_of(item))
        self._watch.forget_seen()
        return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Set up, and skip modes that the namespace turns out not to have."""
        detach_pytest_handlers()
        result = yield
        chosen = item.stash.get(MODE, None)
        if chosen is None or chosen.known:
            return result
        value = getattr(item, "funcargs", {}).get(chosen.fixture)
        backend = backend_of_value(value) or "other"
        taken = taken_by(backend, self.options.modes)
        if chosen.mode not in taken and (taken or not chosen.first):
            pytest.skip(f"{chosen.fixture} yields {backend}, which has no mode {chosen.mode}")
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Run the body of a test, watched."""
        detach_pytest_handlers()
        mode = mode_of(item)
        if mode is None or mode == "eager" or not self.board.active:
            return (yield)
        if mode == "jit":
            with contextlib.ExitStack() as stack:
                self._wrap_arguments(stack, item, mode)
                return (yield)
        recorder = RunRecorder()
        with contextlib.ExitStack() as stack:
            self._wrap_arguments(stack, item, mode)
            open_recorder(recorder)
            stack.callback(close_recorder, recorder)
            try:
                with self._watch.watching():
                    result = yield
            finally:
                reached = recorder.record()
                missed = self._note_bypassed(item, reached)
        if self.options.require_compiled and (text := not_compiled(missed, reached)):
            raise NothingCompiledError(text)
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        """Tear down without structured tracing."""
        detach_pytest_handlers()
        return (yield)

    def _note_bypassed(self, item: pytest.Item, reached: Record) -> dict[str, str]:
        called = {record.name for record in reached.functions}
        missed = {n: where for n, where in self._watch.seen.items() if n not in called}
        for name, where in missed.items():
            self.ledger.bypassed.setdefault(name, {})[item.nodeid] = where
        return missed

    def _wrap_arguments(self, stack: contextlib.ExitStack, item: pytest.Item, mode: str) -> None:
        """Put compiled forms in place of tagged functions among a test's arguments."""
        module = getattr(item, "module", None)

        def wrapped(value: Any) -> Any:
            if mode == "jit":
                return jitted_argument(value, module) if module is not None else value
            return self._wrapped(stack, value, mode)

        arguments = getattr(item, "funcargs", None) or {}
        for name, value in list(arguments.items()):
            if type(value) in (list, tuple):
                replaced: Any = type(value)(wrapped(part) for part in value)
                changed = any(new is not old for new, old in zip(replaced, value, strict=True))
            elif type(value) is dict:
                replaced = {key: wrapped(part) for key, part in value.items()}
                changed = any(replaced[key] is not value[key] for key in value)
            else:
                replaced = wrapped(value)
                changed = replaced is not value
            if changed:
                stack.callback(arguments.__setitem__, name, value)
                arguments[name] = replaced

    def _wrapped(self, stack: contextlib.ExitStack, value: Any, mode: str) -> Any:
        if not callable(value):
            return value
        wrapper = wrap_tagged(value, mode)
        if wrapper is not value:
            self.ledger.tagged.add(display_name(value))
            stack.enter_context(self._watch.watch(value, display_name(value)))
        return wrapper

    # --- patching ---

    def _dispatch(self, original: Any, request: Any, xp: Any, rest: dict[str, Any]) -> Any:
        """Patch in the mode of the running test; called for every copy of the patching function."""
        backend = backend_of_value(xp)
        if backend not in ("torch", "jax") or rest.get("mode") is not None:
            return original(request, xp=xp, **rest)

        def make(mode: str | None) -> contextlib.AbstractContextManager[None]:
            if backend == "torch" and mode in _COMPILED:
                return self._patched(request, xp, str(mode))
            if backend == "jax" and mode == "eager":
                return contextlib.nullcontext()
            plain: contextlib.AbstractContextManager[None] = original(request, xp=xp)
            return plain

        if rest.get("monkeypatch") is None:
            return self.board.follow(make)
        if self.board.mode is None:
            return original(request, xp=xp, **rest)
        # the deprecated form: effective at once, until the test ends
        context = self.board.follow(make)
        context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def _patched(self, request: Any, xp: Any, mode: str) -> Iterator[None]:
        import torch._dynamo  # noqa: F401 - takes seconds, which are no function's own

        self._collector.freeze()
        with contextlib.ExitStack() as stack:
            for target in list(tagged_targets(request.module)):
                if target.tag.torch_compile:
                    name = target.display_name
                    self.ledger.add_budget(name, budget_for(target.tag, name))
                    stack.enter_context(self._watch.watch(target.func, name))
            stack.enter_context(patch_lazy_xp_functions(request, xp=xp, mode=mode))
            yield

    # --- results ---

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count tests by mode and outcome."""
        mode = dict(report.user_properties).get(MODE_PROPERTY)
        if not isinstance(mode, str):
            return
        counts = self.outcomes.setdefault(mode, Counter())
        if report.when == "call" or report.outcome != "passed":
            counts[_outcome(report)] += 1


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.outcome == "skipped" else "xpassed"
    if report.outcome == "failed" and report.when != "call":
        return "error"
    return str(report.outcome)
