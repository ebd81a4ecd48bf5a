"""What the plain driver costs over the loop that one writes by hand."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "loops.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_loops", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.nightly  # a ratio of times means nothing beside another worker
@pytest.mark.parametrize("width", [1, 1000])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_overhead_of_scan(benchmark, library, width):
    """At most a tenth over the hand-written loop, by the minimum of many turns."""
    xp = pytest.importorskip(library)
    y0 = benchmark.start(xp, width)
    steps = xp.full((benchmark.STEPS,), 0.1, dtype=y0.dtype)
    found = benchmark.in_turns(
        {
            "hand-written": benchmark.hand_written(xp, y0, steps),
            "scan": benchmark.scanned(xp, y0, steps),
        },
        25,
    )
    assert found["scan"][0] <= 1.10 * found["hand-written"][0]
