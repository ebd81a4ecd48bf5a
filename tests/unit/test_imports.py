"""What importing does, and does not, load."""

import subprocess
import sys

import pytest

import fullgraph

LIBRARIES = "('numpy', 'torch', 'jax', 'dask', 'array_api_strict', 'cupy')"


def loaded_after(code: str) -> str:
    program = f"import sys\n{code}\nprint([m for m in {LIBRARIES} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    "code",
    [
        "import fullgraph",
        "import fullgraph; fullgraph.scan; fullgraph.LoopAdapter",
        "import fullgraph.loops",
        "import fullgraph.backends, fullgraph.errors",
        "import fullgraph.torch_loop",
        "from fullgraph.torch_loop import torch_compile_loop_adapter",
        "from fullgraph.torch_loop import numpy_native_loop_adapter",
        "import fullgraph; assert fullgraph.get_loop_adapter('array_api_compat.torch') is None",
    ],
)
def test_no_array_library_is_imported(code):
    assert loaded_after(code) == "[]"


def test_a_numpy_loop_imports_numpy_only():
    code = (
        "import numpy as np, fullgraph\n"
        "fullgraph.scan(lambda c, x: (c + x, c), np.asarray(0.0), np.arange(3.0))\n"
        "fullgraph.while_loop(lambda c: c < 3, lambda c: c + 1, np.asarray(0.0))\n"
        "fullgraph.fori_loop(0, 2, lambda i, c: c, np.asarray(0.0))\n"
        "fullgraph.cond(np.asarray(True), abs, abs, np.asarray(0.0))"
    )
    assert loaded_after(code) == "['numpy']"


def test_public_names_are_the_defining_modules_own():
    import fullgraph.loops

    assert set(fullgraph.__all__) <= set(dir(fullgraph))
    for name in fullgraph.__all__:
        if hasattr(fullgraph.loops, name):
            assert getattr(fullgraph, name) is getattr(fullgraph.loops, name)


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'frobnicate'"):
        fullgraph.frobnicate


def test_every_exception_has_one_base():
    from fullgraph import errors

    for name in errors.__all__:
        kind = getattr(errors, name)
        assert issubclass(kind, Warning if name.endswith("Warning") else errors.FullgraphException)
