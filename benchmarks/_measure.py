"""Timing for benchmarks: interleaved repetitions, minimum and median, one JSON file per script."""

from __future__ import annotations

import json
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results"


def interleaved(
    peers: dict[str, Callable[[], float]], repetitions: int
) -> dict[str, tuple[float, float]]:
    """Run each peer in turn, `repetitions` times; return the (minimum, median) that each gave."""
    times: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(repetitions):
        for name, measure in peers.items():
            times[name].append(measure())
    return {name: (min(all_), statistics.median(all_)) for name, all_ in times.items()}


def per_call(func: Callable[[], Any], calls: int) -> float:
    """Return the seconds of one of `calls` calls."""
    start = time.perf_counter()
    for _ in range(calls):
        func()
    return (time.perf_counter() - start) / calls


def store(name: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows, and what they were measured on, to ``results/NAME.json``."""
    about = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "machine": platform.machine(),
        "command": " ".join(["python", *sys.argv]),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"about": about, "rows": rows}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
