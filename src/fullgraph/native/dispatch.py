"""From a call to its compiled loop, under Dynamo's guards.

Dynamo captures one step of a body and writes down what that capture depends on: closures, globals,
dtypes, grad mode. Every call checks those guards; if none of the captures so far fits, the body is
captured again. A plain ``torch.compile`` call spends most of its time outside the guards, so where
torch is a version whose private cache API is known, its entries are read and checked directly.
This is the only file that touches that API; on other versions the plain call is made.
"""

from __future__ import annotations

import itertools
import threading
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from fullgraph.native.capture import Captured, lower
from fullgraph.native.lanes import make_plan
from fullgraph.native.runtime import CompiledLoop, compile_loop

__all__ = ["Invocation", "Site", "Specialisation", "cache_entries_known"]

RECOMPILE_LIMIT: Final = 64
# Versions whose `_debug_get_cache_entry_list` is known to give live entries with guard managers.
KNOWN_TORCH: Final = ((2, 14), (2, 15))

_numbers = itertools.count()


def cache_entries_known() -> bool:
    """Whether this torch is a version whose cache entries can be read."""
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) not in KNOWN_TORCH:
        return False
    return hasattr(torch._dynamo.eval_frame, "_debug_get_cache_entry_list")  # noqa: SLF001


@dataclass
class Invocation(threading.local):
    """What one call tells the compiled loop beside the tensors that Dynamo passes on."""

    xs: Sequence[torch.Tensor] = ()
    steps: int = 0
    reverse: bool = False


@dataclass(frozen=True)
class Specialisation:
    """One capture of a body, compiled."""

    captured: Captured
    compiled: CompiledLoop
    seconds: float = 0.0


@dataclass(eq=False)
class Site:
    """All captures of one function, which Dynamo keeps apart by its code object.

    Parameters
    ----------
    function : callable
        ``function(body, init, x)``, to be captured; its code is copied, so that each site has its
        own cache.
    vector_math, threads
        As for the adapter.
    """

    function: Callable[[Any, Any, Any], Any]
    vector_math: str = "sleef"
    threads: int = 1
    specialisations: list[Specialisation] = field(default_factory=list)
    fast: bool = field(default_factory=cache_entries_known)

    def __post_init__(self) -> None:
        source = self.function
        code = source.__code__
        name = f"{code.co_name}_{next(_numbers)}"
        self._code = code.replace(co_name=name)
        self._globals = source.__globals__
        own = types.FunctionType(self._code, self._globals, name, None, source.__closure__)
        self._closure = source.__closure__
        self._names = self._code.co_varnames[: self._code.co_argcount]
        self._slow = torch.compile(own, fullgraph=True, dynamic=False, backend=self._backend)
        self._entries = (
            torch._dynamo.eval_frame._debug_get_cache_entry_list if self.fast else None  # noqa: SLF001
        )

    def find(self, body: Any, init: Any, x: Any) -> Callable[[Any, Any, Any], Any] | None:
        """Return the capture whose guards hold, as a function of the same arguments."""
        if self._entries is None:
            return None
        frame = {"body": body, "init": init, "x": x}
        for entry in self._entries(self._code):
            if entry.guard_manager.check(frame):
                return types.FunctionType(entry.code, self._globals, "native_loop", None, self._closure)
        return None

    def call(self, body: Any, init: Any, x: Any) -> Any:
        """Run the loop of `INVOCATION`, captured before or now."""
        found = self.find(body, init, x)
        if found is not None:
            return found(body, init, x)
        with torch._dynamo.config.patch(  # noqa: SLF001
            specialize_float=True, recompile_limit=RECOMPILE_LIMIT, suppress_errors=False
        ):
            return self._slow(body, init, x)

    def _backend(
        self, gm: torch.fx.GraphModule, examples: list[torch.Tensor]
    ) -> Callable[..., list[torch.Tensor]]:
        del examples
        captured = lower(gm)
        compiled = compile_loop(
            captured.loop, make_plan(captured.loop), vector_math=self.vector_math
        )
        self.specialisations.append(Specialisation(captured, compiled))
        return _runner(captured, compiled, self.threads)


INVOCATION: Final = Invocation()


def _runner(
    captured: Captured, compiled: CompiledLoop, threads: int
) -> Callable[..., list[torch.Tensor]]:
    """Return what Dynamo calls in the place of the captured step."""
    carry, consts, constants = captured.carry, captured.consts, captured.constants
    outputs = captured.outputs

    def run(*args: torch.Tensor) -> list[torch.Tensor]:
        results = compiled(
            [args[i] for i in carry],
            INVOCATION.xs,
            [*(args[i] for i in consts), *constants],
            INVOCATION.steps,
            reverse=INVOCATION.reverse,
            threads=threads,
        )
        return [results[i] for i in outputs]

    return run
