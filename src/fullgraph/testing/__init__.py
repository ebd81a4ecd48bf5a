"""Testing under torch.compile: what was captured, what broke, what recompiled, where and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.errors import MissingBackendError
from fullgraph.testing._check import check_compiled
from fullgraph.testing._compiled import CompiledFunction, compiled
from fullgraph.testing._modes import Budget, Mode
from fullgraph.testing._patch import patch_lazy_xp_functions
from fullgraph.testing._recording import Recording, record
from fullgraph.testing._records import BreakSite, FunctionRecord, Outcome, Record, Specialisation
from fullgraph.testing._tags import lazy_xp_function

if TYPE_CHECKING:
    from array_api_extra.testing import (
        assert_close,
        assert_close_nulp,
        assert_equal,
        assert_less,
    )

__all__ = [
    "BreakSite",
    "Budget",
    "CompiledFunction",
    "FunctionRecord",
    "Mode",
    "Outcome",
    "Record",
    "Recording",
    "Specialisation",
    "assert_close",
    "assert_close_nulp",
    "assert_equal",
    "assert_less",
    "check_compiled",
    "compiled",
    "lazy_xp_function",
    "patch_lazy_xp_functions",
    "record",
]

_UPSTREAM = ("assert_close", "assert_close_nulp", "assert_equal", "assert_less")


def __getattr__(name: str) -> Any:
    """Hand array-api-extra's assertions on, importing it only when one is asked for."""
    if name not in _UPSTREAM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from array_api_extra import testing as upstream
    except ImportError as error:
        raise MissingBackendError(
            f"{name} comes from array-api-extra, which is not installed: "
            "pip install 'fullgraph[testing]'"
        ) from error
    return getattr(upstream, name)
