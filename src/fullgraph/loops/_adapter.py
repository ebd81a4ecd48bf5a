"""The adapter seam: who runs the loops of a namespace."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend, canonical_namespace
from fullgraph.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "LoopAdapter",
    "get_loop_adapter",
    "register_loop_adapter",
    "use_loop_adapter",
]


@dataclass(frozen=True, slots=True)
class LoopAdapter:
    """The loops of one array namespace.

    Parameters
    ----------
    scan : callable
        ``scan(body, init, xs, *, length=None, reverse=False) -> (carry, ys)``. A function that
        takes three positional arguments only works too: `fullgraph.scan` then flips for `reverse`
        and counts for `length` outside it.
    checkpoint : callable, optional
        ``checkpoint(body) -> body`` that recomputes the body in the backward pass.
    while_loop : callable, optional
        ``while_loop(cond, body, init, *, max_steps=None)`` with the results of
        `fullgraph.while_loop`. Without one, while loops of the namespace stay eager.

    Notes
    -----
    An adapter owns the semantics of its loops. The adapters of this package keep all rules that
    `fullgraph.scan` states; for a foreign one fullgraph checks the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from fullgraph import scan
    >>> def traced(body, init, xs):
    ...     ys = []
    ...     for x in xs:
    ...         init, y = body(init, x)
    ...         print(init)
    ...         ys.append(y)
    ...     return init, np.stack(ys)
    >>> with use_loop_adapter("numpy", LoopAdapter(scan=traced)):
    ...     carry, ys = scan(lambda c, x: (c + x, c), np.float64(0), np.ones(2))
    1.0
    2.0
    """

    scan: Callable[..., Any]
    checkpoint: Callable[..., Any] | None = None
    while_loop: Callable[..., Any] | None = None


# Written by registration, which is set-up; read without a lock, which Dynamo could not trace.
_BY_NAME: dict[str, LoopAdapter] = {}
_BY_CANONICAL: dict[str, LoopAdapter] = {}
_OVERRIDES: ContextVar[tuple[tuple[str, LoopAdapter | None], ...]] = ContextVar(
    "fullgraph_loop_adapters", default=()
)


def _name_of(namespace: Any) -> str:
    name = namespace if isinstance(namespace, str) else getattr(namespace, "__name__", "")
    return name if isinstance(name, str) else ""


def _check(namespace: Any, adapter: Any) -> str:
    name = _name_of(namespace)
    if not name:
        raise UsageError(
            "the namespace of a loop adapter must have a name, such as "
            f'"array_api_compat.torch", and is {namespace!r}.'
        )
    if adapter is not None and not isinstance(adapter, LoopAdapter):
        raise _wrong_type(adapter)
    if isinstance(namespace, str) and Backend.from_name(name) is None:
        _check_stranger(name)
    return name


_NICKNAMES = {"np": "numpy", "jnp": "jax.numpy", "da": "dask.array", "cp": "cupy"}


def _check_stranger(name: str) -> None:
    """Refuse the name of a library that is not known, where no array could ever answer to it."""
    import difflib
    import importlib.util
    import sys

    known = [backend.value for backend in Backend]
    root, tail = name.partition(".")[0], name.rpartition(".")[2]
    near = _NICKNAMES.get(name) or next(
        (backend.value for backend in Backend if backend.package == root), ""
    )
    near = near or next(iter(difflib.get_close_matches(tail.lower(), known, 1, 0.7)), "")
    importable = root in sys.modules or importlib.util.find_spec(root) is not None
    if not near and importable and root != "array_api_compat":
        return
    meant = f"Did you mean {near!r}?" if near else f"Known are {', '.join(known)}."
    raise UsageError(
        f"no array has the namespace {name!r}, so an adapter for it would never run. {meant} For "
        "a library of your own, give the module, or the name of one that can be imported."
    )


def _wrong_type(adapter: Any) -> Exception:
    from fullgraph.errors import LoopTypeError

    return LoopTypeError(
        f"a loop adapter must be a fullgraph.LoopAdapter, and is {type(adapter).__name__}. Wrap "
        f"the function: LoopAdapter(scan=...)."
    )


def register_loop_adapter(namespace: Any, adapter: LoopAdapter) -> None:
    """Let an adapter run the loops of a namespace from now on, in every thread.

    Parameters
    ----------
    namespace : str or namespace
        Name such as ``"array_api_compat.torch"``, or the module. All spellings of one library
        (``torch``, ``array_api_compat.torch``, a vendored ``....array_api_compat.torch``) are one
        key; where two spellings are registered apart, the exact one wins.
    adapter : LoopAdapter
        Replaces what was registered before.

    Raises
    ------
    UsageError
        (a ValueError) if the name is empty, or is that of no library and no module here: an
        adapter for a misspelt name would never run.
    LoopTypeError
        (a TypeError) if `adapter` is not a LoopAdapter.

    See Also
    --------
    use_loop_adapter : The same for the length of a ``with`` block.
    """
    name = _check(namespace, adapter)
    if adapter is None:
        raise _wrong_type(adapter)
    _BY_NAME[name] = adapter
    _BY_CANONICAL[canonical_namespace(name)] = adapter


def get_loop_adapter(namespace: Any) -> LoopAdapter | None:
    """Return the adapter that runs the loops of a namespace, or None where they are eager.

    Parameters
    ----------
    namespace : str or namespace
        As for `register_loop_adapter`.

    Returns
    -------
    LoopAdapter or None
        For ``jax.numpy``, an adapter around ``jax.lax``, registered when it is first asked for;
        JAX is imported for that name only.

    Examples
    --------
    >>> get_loop_adapter("numpy") is None
    True
    """
    name = _name_of(namespace)
    if not name:
        return None
    canonical = canonical_namespace(name)
    for key, adapter in reversed(_OVERRIDES.get()):
        if key in (name, canonical) or canonical_namespace(key) == canonical:
            return adapter
    found = _BY_NAME.get(name)
    if found is None:
        found = _BY_CANONICAL.get(canonical)
    if found is None and canonical == "jax.numpy":
        found = _jax_adapter()
    return found


def _jax_adapter() -> LoopAdapter | None:
    try:
        from fullgraph.loops._jax import jax_loop_adapter
    except ImportError:
        return None
    adapter = jax_loop_adapter()
    _BY_CANONICAL["jax.numpy"] = adapter
    return adapter


@contextlib.contextmanager
def use_loop_adapter(namespace: Any, adapter: LoopAdapter | None) -> Iterator[None]:
    """Let an adapter run the loops of a namespace inside a ``with`` block, in this context only.

    Parameters
    ----------
    namespace : str or namespace
        As for `register_loop_adapter`.
    adapter : LoopAdapter or None
        None makes the loops eager, whatever is registered.

    Yields
    ------
    None

    Raises
    ------
    UsageError
        (a ValueError) if the name is empty, or is that of no library and no module here: an
        adapter for a misspelt name would never run.
    LoopTypeError
        (a TypeError) if `adapter` is neither a LoopAdapter nor None.

    Notes
    -----
    The choice lives in a ``ContextVar``: other threads and other asyncio tasks do not see it.

    Examples
    --------
    >>> with use_loop_adapter("numpy", None):
    ...     get_loop_adapter("numpy") is None
    True
    """
    name = _check(namespace, adapter)
    token = _OVERRIDES.set((*_OVERRIDES.get(), (name, adapter)))
    try:
        yield
    finally:
        _OVERRIDES.reset(token)
