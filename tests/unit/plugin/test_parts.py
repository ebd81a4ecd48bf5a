"""Parts of the plugin that need no test run."""

from __future__ import annotations

import contextlib
import enum
import importlib
import sys
import types

import pytest

from fullgraph.plugin.budgets import Budgets, read_budgets
from fullgraph.plugin.bypass import BypassWatch
from fullgraph.plugin.contexts import Switchboard
from fullgraph.plugin.copies import Copies
from fullgraph.plugin.judge import not_compiled
from fullgraph.plugin.namespaces import backend_of_value
from fullgraph.testing import BreakSite, FunctionRecord, Mode, Outcome, Record
from fullgraph.testing._modes import Budget


class Backend(enum.Enum):
    TORCH_GPU = "torch:gpu"
    JAX = "jax.numpy"
    NUMBER = 3
    TORCH = 4


@pytest.mark.parametrize(
    ("value", "backend"),
    [
        (types.ModuleType("torch"), "torch"),
        (types.ModuleType("jax.numpy"), "jax"),
        (types.ModuleType("array_api_compat.torch"), "torch"),
        (types.ModuleType("scipy._lib.array_api_compat.numpy"), "numpy"),
        (types.ModuleType("scipy._lib.array_api_compat.dask.array"), "dask"),
        (types.ModuleType("my_arrays"), "other"),
        ("torch", "torch"),
        ("jax.numpy", "jax"),
        ("array_api_strict", "array_api_strict"),
        ("float32", None),
        (Backend.TORCH_GPU, "torch"),
        (Backend.JAX, "jax"),
        (Backend.TORCH, "torch"),
        (Backend.NUMBER, None),
        (3, None),
        (None, None),
    ],
)
def test_backend_of_a_parameter(value, backend):
    assert backend_of_value(value) == backend


def test_budgets_by_name_and_by_pattern(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(
        "[tool.fullgraph.budgets]\n"
        '"m:f" = false\n"m:*" = 3\n"*:g" = { recompiles = 2 }\n"n:gone" = true\n'
    )
    budgets = read_budgets(path)
    assert budgets("m:f") == Budget(0, None)
    assert budgets("m:g") == Budget(3, None)
    assert budgets("n:g") == Budget(None, 2)
    assert budgets("n:h") is None
    assert budgets.unused(["m:f", "n:g"]) == ["n:gone"]


def test_no_file_and_no_table_are_no_budgets(tmp_path):
    path = tmp_path / "pyproject.toml"
    assert read_budgets(path)("m:f") is None
    path.write_text("[project]\nname = 'x'\n")
    assert read_budgets(path)("m:f") is None


@pytest.mark.parametrize("text", ["[tool.fullgraph]\nbudgets = 3", "[tool\n"])
def test_a_malformed_file_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    with pytest.raises(pytest.UsageError, match=r"pyproject\.toml"):
        read_budgets(path)


def test_contexts_follow_the_mode_and_close_in_order():
    board, log = Switchboard(), []

    def make(name):
        @contextlib.contextmanager
        def context(mode):
            log.append(f"+{name}:{mode}")
            yield
            log.append(f"-{name}:{mode}")

        return context

    board.switch("eager")
    with board.follow(make("a")), board.follow(make("b")):
        assert board.active
        board.switch("compile")
        board.switch("compile")
    assert not board.active
    assert log == [
        "+a:eager",
        "+b:eager",
        "-b:eager",
        "-a:eager",
        "+a:compile",
        "+b:compile",
        "-b:compile",
        "-a:compile",
    ]


SOURCE = """
import contextlib

def patch_lazy_xp_functions(request, monkeypatch=None, *, xp):
    return ("original", request, monkeypatch, xp)

again = patch_lazy_xp_functions
"""


@pytest.fixture
def vendored(tmp_path, monkeypatch):
    package = tmp_path / "some_vendor_xyz" / "array_api_extra"
    package.mkdir(parents=True)
    (package / "testing.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "some_vendor_xyz.array_api_extra.testing"
    for name in [name for name in sys.modules if name.startswith("some_vendor_xyz")]:
        del sys.modules[name]


def dispatch(original, request, xp, rest):
    return ("ours", original(request, xp=xp, **rest))


@pytest.mark.parametrize("when", ["before", "after"])
def test_copies_are_taken_over_and_given_back(vendored, when):
    copies = Copies(dispatch)
    if when == "before":
        module = importlib.import_module(vendored)
    finders = list(sys.meta_path)
    copies.take_over_all()
    try:
        module = importlib.import_module(vendored)
        assert module.__spec__.loader is module.__loader__
        assert "fullgraph" not in type(module.__loader__).__module__
        for name in ("patch_lazy_xp_functions", "again"):
            function = getattr(module, name)
            assert function("r", xp="x") == ("ours", ("original", "r", None, "x"))
            assert function("r", "m", xp="x") == ("ours", ("original", "r", "m", "x"))
            with pytest.raises(TypeError, match="xp"):
                function("r")
    finally:
        copies.restore()
    assert sys.meta_path == finders
    assert module.again("r", xp="x") == ("original", "r", None, "x")
    assert module.again.__kwdefaults__ is None
    assert module.again.__defaults__ == (None,)


def plain(x):
    return x


def decorated(x):
    return plain(x)


decorated.__wrapped__ = plain


def test_plain_calls_are_seen_with_their_line():
    watch = BypassWatch()
    with watch.watch(decorated, "m:f"), watch.watching():
        with watch.paused():
            plain(1)
        assert watch.seen == {}
        decorated(1)
        line = sys._getframe().f_lineno - 1
    assert list(watch.seen) == ["m:f"]
    assert watch.seen["m:f"].startswith(__file__)
    assert line
    watch.forget_seen()
    assert watch.seen == {}
    assert sys.getprofile() is None


def test_a_profiler_of_the_users_has_priority():
    def profiler(*_):
        return None

    watch = BypassWatch()
    sys.setprofile(profiler)
    try:
        with watch.watch(plain, "m:f"), watch.watching():
            plain(1)
            assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert watch.seen == {}


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ({Outcome.GRAPH_RAN: 1, Outcome.OVER_LIMIT: 1}, None),
        ({Outcome.RAISED: 1}, None),
        ({Outcome.TRACED_EMPTY: 1}, None),
        ({Outcome.TORCH_BUG: 1}, None),
        ({Outcome.FRAME_SKIPPED: 2}, "m:f ran no graph: frame skipped 2x; a.py:3: why"),
        ({Outcome.FAILED: 1, Outcome.OVER_LIMIT: 1}, "m:f ran no graph: compile failed 1x, over"),
    ],
)
def test_what_counts_as_not_compiled(calls, verdict):
    breaks = (BreakSite("a.py", 3, "f", "why", skips_frame=True),)
    record = Record((FunctionRecord("m:f", Mode.COMPILE, "trace", calls, breaks=breaks),))
    text = not_compiled({}, record)
    assert text is None if verdict is None else verdict in text


def test_budgets_object_needs_no_file():
    assert Budgets({"m:f": Budget(1)})("m:f") == Budget(1)
