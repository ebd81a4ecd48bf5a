"""What a recorded call costs over a bare torch.compile call, warm and at the first call.

Both in one process, in turn; ratios of minima and of medians. Measures: warm at most 3.0, snapshots
of arguments and random state included; first calls at most 1.0.

Run: ``python benchmarks/testing_overhead.py`` (stores ``results/testing_overhead.json``).
"""

from __future__ import annotations

import os
import time
import warnings
from typing import TYPE_CHECKING, Any

os.environ["SCIPY_ARRAY_API"] = "1"

import array_api_extra as xpx
import torch
from scipy.special import logsumexp
from scipy.stats import variation

from _measure import interleaved, per_call, store
from fullgraph.testing import compiled

if TYPE_CHECKING:
    from collections.abc import Callable


def poly(x: torch.Tensor) -> torch.Tensor:
    """Stand for a small function: four operations."""
    return x * x + 2 * x - 1


def mean_of(xs: list[torch.Tensor], *, scale: float) -> dict[str, torch.Tensor]:
    """Stand for a call with containers and keywords."""
    return {"mean": sum(xs) * (scale / len(xs))}


def warm(name: str, func: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
    """Compare warm calls."""
    bare = torch.compile(func, backend="eager", dynamic=False)
    recorded = compiled(func)
    for call in (bare, recorded):
        for _ in range(50):
            call(*args, **kwargs)
    times = interleaved(
        {
            "bare": lambda: per_call(lambda: bare(*args, **kwargs), 500),
            "recorded": lambda: per_call(lambda: recorded(*args, **kwargs), 500),
        },
        repetitions=9,
    )
    return row(f"warm {name}", times, unit=1e6, unit_name="us", limit=3.0)


def first(name: str, func: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Compare first calls, each after a reset of Dynamo."""

    def bare() -> float:
        torch._dynamo.reset()
        start = time.perf_counter()
        torch.compile(func, backend="eager", dynamic=False)(*args)
        return time.perf_counter() - start

    def recorded() -> float:
        torch._dynamo.reset()
        start = time.perf_counter()
        compiled(func)(*args)
        return time.perf_counter() - start

    bare(), recorded()
    times = interleaved({"bare": bare, "recorded": recorded}, repetitions=5)
    return row(f"first {name}", times, unit=1.0, unit_name="s", limit=1.0)


def row(
    name: str,
    times: dict[str, tuple[float, float]],
    *,
    unit: float,
    unit_name: str,
    limit: float,
) -> dict[str, Any]:
    """Make and print one line."""
    (bare_min, bare_median), (own_min, own_median) = times["bare"], times["recorded"]
    made = {
        "case": name,
        "unit": unit_name,
        "bare": bare_min * unit,
        "recorded": own_min * unit,
        "ratio_min": own_min / bare_min,
        "ratio_median": own_median / bare_median,
        "limit": limit,
    }
    verdict = "ok" if made["ratio_min"] <= limit else "MISSED"
    print(
        f"{name:24} bare {made['bare']:8.2f} {unit_name}  recorded {made['recorded']:8.2f} "
        f"{unit_name}  ratio {made['ratio_min']:.2f} (median {made['ratio_median']:.2f}), "
        f"limit {limit}: {verdict}"
    )
    return made


def main() -> None:
    """Print all rows and store them."""
    warnings.simplefilter("ignore")
    small = torch.rand(4)
    x = torch.rand(4, 5, dtype=torch.float64)
    rows = [
        warm("poly(4)", poly, small),
        warm("mean_of(3 x 4)", mean_of, [small, small, small], scale=2.0),
        warm("isclose(4)", xpx.isclose, small, small),
        first("xpx.isclose", xpx.isclose, small, small),
        first("logsumexp", logsumexp, x),
        first("variation", variation, x),
    ]
    store("testing_overhead", rows)


if __name__ == "__main__":
    main()
