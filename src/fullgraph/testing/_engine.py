"""One torch.compile object, the settings it is made with, and what it has learnt."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import (
    UsageError,
)
from fullgraph.testing._dynamo.backends import check_backend, counting_backend
from fullgraph.testing._dynamo.calls import CallLog, CompiledMeanwhile, pop, push
from fullgraph.testing._dynamo.device import has_redundant_default, plain_default_device
from fullgraph.testing._dynamo.watch import watching
from fullgraph.testing._options import DEFAULT_RECOMPILE_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Engine", "Settings"]

DEFAULT_CONFIG: dict[str, Any] = {
    # NumPy tracing turns NumPy scalars into 0-d arrays, which changes the dtype of results
    "trace_numpy": False,
    # no budget of ours is kept by this limit, which counts over all functions that share a callee
    "accumulated_recompile_limit": 1 << 20,
}


class Settings:
    """How to compile: backend, recompile limit, dynamic shapes, Dynamo settings."""

    __slots__ = ("backend", "config", "dynamic", "recompile_limit")

    def __init__(
        self,
        *,
        backend: str = "trace",
        recompile_limit: int = DEFAULT_RECOMPILE_LIMIT,
        dynamic: bool | None = False,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.backend = check_backend(backend)
        self.recompile_limit = recompile_limit
        self.dynamic = dynamic
        self.config = {**DEFAULT_CONFIG, **_checked(config or {})}


def _checked(config: Mapping[str, Any]) -> Mapping[str, Any]:
    from torch._dynamo import config as known

    for name in config:
        if not hasattr(known, name):
            raise UsageError(
                f"config has {name!r}, which is no setting of torch._dynamo.config in torch "
                f"{torch.__version__}: leave it out, or correct its name"
            )
    return config


@contextlib.contextmanager
def _dynamic_settings_kept() -> Iterator[None]:
    """Put back what torch sets for ``dynamic=False`` while it compiles.

    torch 2.14 and 2.15 forget to where fullgraph finds nothing compiled (raised from a ``finally``
    in ``eval_frame.py``), and all later captures of the process would be without dynamic shapes.
    """
    from torch._dynamo import config as dynamo

    before = dynamo.automatic_dynamic_shapes, dynamo.assume_static_by_default
    try:
        yield
    except RuntimeError:
        if before != (dynamo.automatic_dynamic_shapes, dynamo.assume_static_by_default):
            dynamo.automatic_dynamic_shapes, dynamo.assume_static_by_default = before
        raise


class Engine:
    """One torch.compile object, and what it has learnt about frames that cannot be compiled."""

    def __init__(
        self, func: Callable[..., Any], name: str, settings: Settings, *, fullgraph: bool
    ) -> None:
        self.func, self._name, self._settings, self._fullgraph = func, name, settings, fullgraph
        self._lock = threading.Lock()
        self._compiled: Callable[..., Any] | None = None
        self._skips: dict[Any, Any] = {}
        self._limits: dict[Any, Any] = {}
        self._made: list[Any] = []

    def new_log(self) -> CallLog:
        return CallLog(
            config=self._settings.config,
            skips=self._skips,
            limits=self._limits,
            made=self._made,
            known=len(self._made),
        )

    def __call__(self, log: CallLog, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        __tracebackhide__ = True
        compiled = self._compiled or self._compile()
        push(log)
        try:
            with watching(log, self._name, (args, kwargs)), _dynamic_settings_kept():
                while True:
                    try:
                        if has_redundant_default():
                            with plain_default_device():
                                return compiled(*args, **kwargs)
                        return compiled(*args, **kwargs)
                    except CompiledMeanwhile:  # nothing of the function has run yet
                        log.known = len(self._made)
        finally:
            pop(log)

    def _compile(self) -> Callable[..., Any]:
        with self._lock:
            if self._compiled is None:
                settings = self._settings
                self._compiled = torch.compile(  # type: ignore[call-overload]
                    self.func,
                    backend=counting_backend(settings.backend),
                    fullgraph=self._fullgraph,
                    dynamic=settings.dynamic,
                    # closures made from one piece of code would share one limit otherwise
                    isolate_recompiles=True,
                    recompile_limit=settings.recompile_limit,
                )
            return self._compiled
