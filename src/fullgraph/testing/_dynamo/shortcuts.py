"""Work that Dynamo does needlessly for array-API code, left out while it traces for us.

Measured on torch 2.14.1 by ``benchmarks/testing_overhead.py``: together they take first calls of
SciPy's `variation` and `logsumexp` to about 0.45 times the bare ones. None changes what is
captured (a test compares records with and without them).

Tried and left out: marking the helpers of array-api-compat one level up (`is_torch_array`, ...)
gains nothing more, and marking the cached wrapper instead of the function below it does nothing,
since Dynamo looks through `functools.lru_cache`.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from fullgraph.testing._dynamo.versions import internals_known

if TYPE_CHECKING:
    from collections.abc import Iterator

_HELPERS = "array_api_compat.common._helpers"

_known: tuple[int, list[Any]] = (0, [])
"""How many modules were loaded when the functions were looked for, and those found."""

enabled = True
"""Tests set this to False to compare."""


def _helper_functions() -> list[Any]:
    """Return `_issubclass_fast` of array-api-compat and of every vendored copy that is loaded."""
    global _known
    if _known[0] != len(sys.modules):  # looking through thousands of names takes milliseconds
        found = []
        for name, module in list(sys.modules.items()):
            if name.endswith(_HELPERS):
                function = getattr(getattr(module, "_issubclass_fast", None), "__wrapped__", None)
                if function is not None:
                    found.append(function)
        _known = len(sys.modules), found
    return _known[1]


@contextlib.contextmanager
def constant_helpers() -> Iterator[None]:
    """Let Dynamo call `_issubclass_fast` instead of tracing it.

    It reads ``sys.modules``, for which Dynamo builds one variable per loaded module, in each frame.
    The function is cached by its arguments for the life of the process, so its result is a constant
    already. A public mark of torch, taken off again after the frame.
    """
    marked = []
    if enabled and (functions := _helper_functions()):
        import torch

        for function in functions:
            if not hasattr(function, "_dynamo_marked_constant"):
                torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
                marked.append(function)
    try:
        yield
    finally:
        for function in marked:
            del function._dynamo_marked_constant  # noqa: SLF001


@contextlib.contextmanager
def no_guard_profiling() -> Iterator[None]:
    """Skip the measurement of guard latency, for which Dynamo flushes the CPU's cache each time."""
    if not (enabled and internals_known()):
        yield
        return
    from torch._dynamo import guards as module

    guards: Any = module
    measure = guards.profile_guard_manager
    guards.profile_guard_manager = lambda *_: 0.0
    try:
        yield
    finally:
        guards.profile_guard_manager = measure


_SETTINGS = (
    "_get_dynamo_config_for_logging",
    "_scrubbed_inductor_config_for_logging",
    "_compiler_config_for_logging",
    "_functorch_config_for_logging",
)


@contextlib.contextmanager
def no_metrics_of_settings() -> Iterator[None]:
    """Leave the settings of torch out of each frame's metrics, for which they are made JSON."""
    from torch._dynamo import utils as module

    utils: Any = module
    found = [name for name in _SETTINGS if hasattr(utils, name)]
    if not (enabled and internals_known() and found):
        yield
        return
    saved = {name: getattr(utils, name) for name in found}
    for name in found:
        setattr(utils, name, lambda: None)
    try:
        yield
    finally:
        for name, function in saved.items():
            setattr(utils, name, function)
