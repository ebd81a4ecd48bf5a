"""The ``loop=`` argument: who runs the loops of a solve."""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend
from fullgraph.errors import UsageError
from fullgraph.loops import scan, while_loop
from fullgraph.loops._adapter import get_loop_adapter, use_loop_adapter
from fullgraph.loops._foreign import keeps_all_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from fullgraph.loops._adapter import LoopAdapter
    from fullgraph.ode._arrays import Library

__all__ = ["Loops", "choose_loops", "plain_loops", "torch_adapter_that_nests"]

CHOICES = ("eager", "auto", "scan", "native")
_NATIVE: dict[str, LoopAdapter] = {}
_TORCH = "torch"
_REMEMBERED = 256
#: Copies of body code, by the body's code and the right-hand side's; see `Loops.own_code`.
_CODES: OrderedDict[tuple[Any, ...], tuple[types.CodeType, tuple[Any, ...]]] = OrderedDict()


class Loops:
    """The loops of one solve.

    Parameters
    ----------
    library : Library
        The arrays.
    adapter : LoopAdapter or None
        Who runs them; None for plain loops.
    """

    def __init__(self, library: Library, adapter: LoopAdapter | None) -> None:
        self._library = library
        self.adapter = adapter

    @property
    def traced(self) -> bool:
        """Whether a body is traced once, without values, and runs many times."""
        return self._library.is_jax or self.adapter is not None

    @property
    def compiled(self) -> bool:
        """Whether an adapter of torch or NumPy compiles bodies, and keeps them for later calls."""
        return self.adapter is not None and not self._library.is_jax

    @property
    def any_length(self) -> bool:
        """Whether a compiled loop is the same for all lengths; else each one is compiled."""
        return hasattr(getattr(self.adapter, "scan", None), "engine")

    @property
    def nests(self) -> bool:
        """Whether a compiled body may contain a while loop."""
        return self.any_length and getattr(self.adapter, "while_loop", None) is not None

    @property
    def while_loop(self) -> Callable[..., Any]:
        """A while loop for the inside of a compiled body."""
        own = None if self.adapter is None else self.adapter.while_loop
        found: Callable[..., Any] = getattr(own, "inner", while_loop)
        return found

    def scan(self, body: Callable[[Any, Any], Any], init: Any, xs: Any, length: int | None) -> Any:
        """Run a scan; inside of `running`."""
        adapter = self.adapter
        if adapter is not None and xs is not None and keeps_all_rules(adapter.scan):
            return adapter.scan(body, init, xs)  # it is known already which library this is
        return scan(body, init, xs, length=length if xs is None else None)

    def running(self) -> AbstractContextManager[None]:
        """Return a context in which `fullgraph.scan` uses these loops."""
        if get_loop_adapter(self._library.name) is self.adapter:
            return contextlib.nullcontext()
        return use_loop_adapter(self._library.name, self.adapter)

    def checkpointed(self, body: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Return a body that is computed again in the backward pass."""
        if self.adapter is None:
            if not self._library.is_torch:
                return body  # a library that does not differentiate keeps nothing
            from fullgraph.ode._torch import checkpointed

            return checkpointed(body)
        if self.adapter.checkpoint is None:
            raise UsageError(
                "checkpoint=True needs a loop adapter with a checkpoint, and this one has none: "
                'use loop="eager", or checkpoint=False.'
            )
        made: Callable[[Any, Any], Any] = self.adapter.checkpoint(body)
        return made

    def own_code(self, body: Callable[[Any, Any], Any], *keys: Any) -> Callable[[Any, Any], Any]:
        """Return `body` with a code object of its own for each combination of keys.

        Compiling adapters tell bodies apart by their code, and this package's bodies are few: with
        one code all right-hand sides of a program would be specialisations of one body, searched
        one after the other and bounded in number.
        """
        if not self.compiled or not isinstance(body, types.FunctionType):
            return body
        named = tuple(id(getattr(key, "__code__", None) or type(key)) for key in keys)
        key = (id(body.__code__), *named)
        known = _CODES.get(key)
        if known is None:
            known = body.__code__.replace(co_name=body.__code__.co_name), (body.__code__, keys)
            _CODES[key] = known
            if len(_CODES) > _REMEMBERED:
                _CODES.popitem(last=False)
        _CODES.move_to_end(key)
        made = types.FunctionType(
            known[0], body.__globals__, body.__name__, body.__defaults__, body.__closure__
        )
        made.__kwdefaults__ = body.__kwdefaults__
        return made


def plain_loops(library: Library) -> Loops:
    """Return the loops that a library runs without an adapter being asked for."""
    # Those of JAX are the ones of jax.lax: Python loops would be unrolled under jit.
    return Loops(library, get_loop_adapter(library.name) if library.is_jax else None)


def choose_loops(library: Library, loop: Any) -> Loops:
    """Return the loops that ``loop=`` names.

    Raises
    ------
    UsageError
        If the name is unknown, if ``"scan"`` finds no adapter, or if there are no native loops for
        the library.
    """
    if not isinstance(loop, str) or loop not in CHOICES:
        raise UsageError(f'loop must be "eager", "auto", "scan" or "native", and is {loop!r}.')
    found = get_loop_adapter(library.name)
    if loop == "native":
        return Loops(library, _native(library))
    if loop == "scan" and found is None:
        raise UsageError(
            f'loop="scan" needs a loop adapter for {library.name}, and none is registered. '
            f"Register one, such as fullgraph.register_loop_adapter({library.name!r}, "
            f'fullgraph.torch_loop.{_native_name(library)}()), or use loop="eager".'
        )
    return plain_loops(library) if loop == "eager" else Loops(library, found)


def torch_adapter_that_nests(loop: str) -> LoopAdapter | None:
    """Return the adapter that `loop` names for torch, if it is one of native loops and known."""
    if loop == "native":
        return _NATIVE.get(_TORCH)
    found = get_loop_adapter(_TORCH) if loop in ("auto", "scan") else None
    return found if hasattr(getattr(found, "scan", None), "try_short") else None


def _native_name(library: Library) -> str:
    if library.backend is Backend.NUMPY:
        return "numpy_native_loop_adapter"
    return "torch_native_loop_adapter"


def _native(library: Library) -> LoopAdapter:
    known = _NATIVE.get(library.name)
    if known is not None:
        return known
    if library.backend not in (Backend.TORCH, Backend.NUMPY):
        raise UsageError(
            f'loop="native" is for torch and NumPy arrays, and these are {library.name} ones. '
            f'Use loop="eager", or loop="auto" with an adapter of your own.'
        )
    from fullgraph import torch_loop

    make = getattr(torch_loop, _native_name(library), None)
    if make is None:
        raise UsageError(
            f'loop="native" is not available for {library.name} arrays in this version: convert '
            f"them with torch.from_numpy, which shares their memory."
        )
    adapter: LoopAdapter = make()
    _NATIVE[library.name] = adapter
    return adapter
