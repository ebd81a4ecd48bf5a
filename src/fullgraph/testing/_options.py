"""How tagged functions are called in a whole test run: one frozen value, set by the plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.testing._modes import Budget

__all__ = ["DEFAULT_RECOMPILE_LIMIT", "CallOptions"]

DEFAULT_RECOMPILE_LIMIT = 256
"""High enough that a parametrised test is held to its code and not to the limit; see the docs."""


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What the calls of `patch_lazy_xp_functions` in a compiled mode have in common."""

    backend: str = "trace"
    recompile_limit: int = DEFAULT_RECOMPILE_LIMIT
    dynamic: bool | None = False
    config: tuple[tuple[str, Any], ...] = ()
    """Settings of ``torch._dynamo.config``."""
    strict: bool = False
    """Whether a function without a budget must be whole in fullgraph mode."""
    compare: bool = False
    """Whether every compiled call is made eagerly too, and the results compared."""
    fail_on_torch_bugs: bool = False
    budget_of: Callable[[str], Budget | None] | None = None
    """Budget, by ``module:qualname``, of a function whose tag carries none."""
