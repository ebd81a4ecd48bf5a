"""Which tests run in which modes, under which ids."""

from __future__ import annotations

import sys

import array_api_extra.testing
import pytest

TAGGED = """
import pytest
from fullgraph.testing import CompiledFunction
from array_api_extra.testing import lazy_xp_function
from LIB import double, branch

lazy_xp_function(double)
lazy_xp_function(branch, jax_jit=False)
"""

ONE = (
    TAGGED
    + """
def test_one(xp):
    assert double(xp.ones(3)).sum() == 6
"""
)


def test_each_backend_runs_in_the_modes_that_it_has(suite):
    suite.write(ONE)
    assert suite.ids("--fg-modes=eager,compile,fullgraph,jit") == [
        "test_one[numpy]",
        "test_one[torch-eager]",
        "test_one[torch-compile]",
        "test_one[torch-fullgraph]",
        "test_one[jax-eager]",
        "test_one[jax-jit]",
    ]


def test_order_is_that_of_the_option_and_repeats_count_once(suite):
    suite.write(ONE)
    assert suite.ids("--fg-modes=compile,eager,compile", "-k", "torch") == [
        "test_one[torch-compile]",
        "test_one[torch-eager]",
    ]


def test_a_backend_left_without_a_mode_runs_once_as_without_the_plugin(suite):
    suite.write(ONE)
    assert suite.ids("--fg-modes=compile") == [
        "test_one[numpy]",
        "test_one[torch-compile]",
        "test_one[jax]",
    ]


def test_unasked_nothing_changes(suite):
    suite.write(ONE)
    code = array_api_extra.testing.patch_lazy_xp_functions.__code__
    assert suite.ids() == ["test_one[numpy]", "test_one[torch]", "test_one[jax]"]
    assert array_api_extra.testing.patch_lazy_xp_functions.__code__ is code
    result = suite.run()
    result.assert_outcomes(passed=3)
    result.stdout.no_fnmatch_line("*fullgraph ===*")


def test_a_test_without_the_fixture_is_left_alone(suite):
    suite.write(ONE + "\ndef test_other(): pass\n")
    assert "test_other" in suite.ids("--fg-modes=compile")


def test_parameters_come_before_the_mode(suite):
    suite.write(
        TAGGED
        + """
@pytest.mark.parametrize("n", [1, 2])
def test_sizes(xp, n):
    assert double(xp.ones(n)).sum() == 2 * n
"""
    )
    assert suite.ids("--fg-modes=compile", "-k", "torch") == [
        "test_sizes[torch-1-compile]",
        "test_sizes[torch-2-compile]",
    ]


def test_one_id_can_be_run_alone(suite):
    suite.write(ONE)
    result = suite.run(
        "--fg-modes=eager,compile", f"test_{suite.pytester._name}.py::test_one[torch-compile]"
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("keyword", ["compile", "torch and fullgraph"])
def test_modes_can_be_selected_by_keyword(suite, keyword):
    suite.write(ONE)
    assert len(suite.ids("--fg-modes=eager,compile,fullgraph", "-k", keyword)) == 1


def test_the_name_of_the_fixture_is_a_setting(suite):
    suite.write(
        TAGGED
        + """
def test_one(array_namespace):
    assert double(array_namespace.ones(3)).sum() == 6
""",
        conftest="""
import pytest, torch
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture(params=[torch], ids=["torch"])
def array_namespace(request):
    with patch_lazy_xp_functions(request, xp=request.param):
        yield request.param
""",
    )
    assert suite.ids("--fg-modes=compile") == ["test_one[torch]"]
    suite.pytester.makeini("[pytest]\nfullgraph_fixtures = xp array_namespace")
    assert suite.ids("--fg-modes=compile") == ["test_one[torch-compile]"]


ENUM = """
import enum, pytest
import array_api_compat
from array_api_extra.testing import patch_lazy_xp_functions

class Backend(enum.Enum):
    NUMPY = "numpy"
    TORCH = "torch"
    TORCH_GPU = "torch:gpu"

@pytest.fixture(params=list(Backend), ids=lambda b: b.name.lower())
def library(request):
    return request.param

@pytest.fixture
def xp(library, request):
    if library is Backend.TORCH_GPU:
        pytest.skip("no GPU")
    xp = pytest.importorskip(library.value)
    xp = array_api_compat.array_namespace(xp.empty(0))
    with patch_lazy_xp_functions(request, xp=xp):
        yield xp
"""


def test_the_backend_may_be_a_parameter_of_a_fixture_below(suite):
    suite.write(ONE, conftest=ENUM)
    assert suite.ids("--fg-modes=eager,compile") == [
        "test_one[numpy]",
        "test_one[torch-eager]",
        "test_one[torch-compile]",
        "test_one[torch_gpu-eager]",
        "test_one[torch_gpu-compile]",
    ]
    suite.run("--fg-modes=eager,compile").assert_outcomes(passed=3, skipped=2)


UNPARAMETRISED = """
import pytest, numpy, torch
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture
def xp(request):
    with patch_lazy_xp_functions(request, xp=NAMESPACE):
        yield NAMESPACE
"""


@pytest.mark.parametrize(
    ("namespace", "modes", "outcomes"),
    [
        ("torch", "eager,compile,fullgraph", {"passed": 3}),
        ("torch", "eager,jit", {"passed": 1, "skipped": 1}),
        ("numpy", "eager,compile", {"passed": 1, "skipped": 1}),
    ],
)
def test_a_fixture_without_parameters_is_asked_when_it_has_yielded(
    suite, namespace, modes, outcomes
):
    suite.write(ONE, conftest=UNPARAMETRISED.replace("NAMESPACE", namespace))
    result = suite.run(f"--fg-modes={modes}", "-rs")
    result.assert_outcomes(**outcomes)
    if "skipped" in outcomes:
        result.stdout.fnmatch_lines([f"*xp yields {namespace}, which has no mode*"])


def test_a_fixture_of_a_wider_scope_follows_the_mode_of_each_test(suite):
    suite.write(
        TAGGED
        + """
def test_one(xp, request):
    assert isinstance(double, CompiledFunction) == ("compile" in request.node.name)
    assert double(xp.ones(3)).sum() == 6

def test_two(xp, request):
    assert isinstance(double, CompiledFunction) == ("compile" in request.node.name)
""",
        conftest=UNPARAMETRISED.replace("NAMESPACE", "torch").replace(
            "pytest.fixture", "pytest.fixture(scope='module')"
        ),
    )
    suite.run("--fg-modes=eager,compile").assert_outcomes(passed=4)


def test_torch_runs_compiled_and_jax_jitted(suite):
    suite.write(
        TAGGED
        + """
def test_kinds(xp, request):
    *_, mode = request.node.name.rstrip("]").split("-")
    kind = type(double).__name__
    jitted = kind == "function" and hasattr(double, "__wrapped__")
    assert isinstance(double, CompiledFunction) == (mode in ("compile", "fullgraph"))
    assert jitted == (mode == "jit")
"""
    )
    suite.run("--fg-modes=eager,compile,fullgraph,jit").assert_outcomes(passed=6)


def test_everything_is_as_before_afterwards(suite):
    function = array_api_extra.testing.patch_lazy_xp_functions
    before = (function.__code__, function.__defaults__, function.__kwdefaults__, sys.meta_path[:])
    suite.write(ONE + "\ndef test_fails(xp):\n    assert False\n")
    suite.run("--fg-modes=eager,compile").assert_outcomes(passed=4, failed=4)
    after = (function.__code__, function.__defaults__, function.__kwdefaults__)
    assert after == before[:3]
    assert not [f for f in sys.meta_path if type(f).__module__.startswith("fullgraph")]


def test_a_copy_that_is_loaded_inside_a_fixture_is_taken_over(suite):
    suite.pytester.mkpydir("vendoring")
    package = suite.pytester.path / "vendoring" / "array_api_extra"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "testing.py").write_text(
        "import contextlib\n"
        "def lazy_xp_function(func):\n"
        "    func._lazy_xp_function = {'allow_dask_compute': False, 'jax_jit': True}\n"
        "def patch_lazy_xp_functions(request, monkeypatch=None, *, xp):\n"
        "    return contextlib.nullcontext()\n"
    )
    suite.write(
        """
from fullgraph.testing import CompiledFunction
from LIB import double
double._lazy_xp_function = {"jax_jit": True}

def test_one(xp):
    assert isinstance(double, CompiledFunction)
""",
        conftest="""
import pytest, torch

@pytest.fixture(params=[torch], ids=["torch"])
def xp(request):
    from vendoring.array_api_extra.testing import patch_lazy_xp_functions
    with patch_lazy_xp_functions(request=request, xp=request.param):
        yield request.param
""",
    )
    suite.run("--fg-modes=compile").assert_outcomes(passed=1)


def test_the_deprecated_monkeypatch_form_is_effective_until_the_test_ends(suite):
    suite.write(
        TAGGED
        + """
def test_one(xp, request):
    assert isinstance(double, CompiledFunction) == ("compile" in request.node.name)
    assert double(xp.ones(3)).sum() == 6
""",
        conftest="""
import pytest, torch
from array_api_extra.testing import patch_lazy_xp_functions

@pytest.fixture(params=[torch], ids=["torch"])
def xp(request, monkeypatch):
    patch_lazy_xp_functions(request, monkeypatch, xp=request.param)
    return request.param
""",
    )
    suite.run("--fg-modes=compile,eager").assert_outcomes(passed=2)


def test_parametrised_functions_run_compiled_and_compare_equal(suite):
    suite.write(
        TAGGED
        + """
import LIB

@pytest.mark.parametrize("f", [double, branch])
@pytest.mark.parametrize("pair", [(double, 1)])
def test_each(xp, f, pair, request):
    compiled = "compile" in request.node.name
    for func in (f, pair[0]):
        assert isinstance(func, CompiledFunction) == compiled
    assert f == LIB.double or f == LIB.branch
    assert f in (LIB.double, LIB.branch) and {f: 1}
    assert f is not LIB.double or f == double
    f(xp.ones(2))
    pair[0](xp.ones(2))
"""
    )
    suite.run("--fg-modes=eager,compile", "-k", "torch").assert_outcomes(passed=4)
    report = suite.report("--fg-modes=compile", "-k", "torch")
    assert {f["name"].rpartition(":")[2] for f in report["functions"]} == {"double", "branch"}


def test_parametrised_functions_run_jitted_and_compare_equal(suite):
    suite.write(
        TAGGED
        + """
import jax
import LIB

traced = []

def kind(x):
    traced.append(isinstance(x, jax.core.Tracer))
    return x
lazy_xp_function(kind)

@pytest.mark.parametrize("f", [double, kind])
@pytest.mark.parametrize("pair", [(double, 1)])
def test_each(xp, f, pair, request):
    original = {"double": LIB.double, "kind": kind.__wrapped__ if JIT else kind}[f.__name__]
    assert f == original and original == f and {f: 1}[original]
    assert f == (double if f.__name__ == "double" else kind)
    assert (f == double) == (f.__name__ == "double")
    assert pair[0] in (LIB.double,)
    f(xp.ones(2))
    assert traced in ([], [JIT])
    traced.clear()
""".replace("JIT", "request.node.name.endswith('jit]')")
    )
    suite.run("--fg-modes=eager,jit", "-k", "jax").assert_outcomes(passed=4)
