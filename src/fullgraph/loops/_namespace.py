"""Which library a loop call runs on, told from its leaves and from ``xp=``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend, backend_of
from fullgraph.errors import LoopTypeError, UsageError
from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._tree import flatten, leaf_path, type_name

if TYPE_CHECKING:
    from fullgraph.loops._ops import ArrayOps, LeafOps

__all__ = ["Namespace", "eager_ops", "leaf_ops", "resolve"]

PyTree = Any


class Namespace:
    """A library, by the name under which its adapter is found.

    Parameters
    ----------
    name : str
        Namespace name as the user spells it, or the canonical one.
    backend : Backend or None
        None for a library that fullgraph does not know by name.
    xp : namespace or None
        The namespace itself, for the libraries that need it.
    """

    def __init__(self, name: str, backend: Backend | None, xp: Any) -> None:
        self.name = name
        self.backend = backend
        self.xp = xp


def resolve(trees: dict[str, PyTree], xp: Any) -> Namespace:
    """Return the one library that all arrays of a call belong to.

    Parameters
    ----------
    trees : dict of str to PyTree
        The arguments, by the name that messages give them.
    xp : namespace or None
        What the caller says; needed when there is no array.

    Raises
    ------
    UsageError
        If there is no array and no `xp`, or `xp` is no namespace.
    LoopTypeError
        If two libraries meet.
    """
    found: Backend | None = None
    stranger: Any = None
    where = ""
    for root, tree in trees.items():
        for index, leaf in enumerate(flatten(tree)[0]):
            if type(leaf) in SCALAR_KINDS:
                continue
            backend = backend_of(leaf)
            if found is None and stranger is None:
                found, where = backend, leaf_path(tree, index, root) if backend is None else ""
                stranger = leaf if backend is None else None
            elif backend is not found:
                raise _mixed(trees)
    if xp is not None:
        if not isinstance(getattr(xp, "__name__", None), str):
            raise UsageError(
                f"xp must be an array namespace, such as the module numpy, and is {xp!r}."
            )
        given = Backend.from_name(xp.__name__)
        if (found is not None and given is not found) or (stranger is not None and given):
            raise _mixed(trees, xp)
        return Namespace(xp.__name__, given, xp)
    if found is not None:
        return Namespace(found.value, found, None)
    if stranger is None:
        raise UsageError(
            "this loop has no array among its arguments, only Python numbers: say where it runs "
            "with xp=, such as xp=numpy."
        )
    return _unknown(stranger, where)


def _unknown(leaf: Any, where: str) -> Namespace:
    import array_api_compat

    try:
        xp = array_api_compat.array_namespace(leaf)
    except TypeError as error:
        kind = type_name(leaf)
        raise LoopTypeError(
            f"{where} is {kind}, which is no array. Leaves are arrays, Python numbers and None, "
            f"in tuples, lists, dicts and namedtuples; convert it with xp.asarray."
        ) from error
    return Namespace(xp.__name__, None, xp)


def _mixed(trees: dict[str, PyTree], xp: Any = None) -> LoopTypeError:
    """Return the error for leaves of several libraries, or for an `xp` that is another one."""
    seen: dict[str, str] = {} if xp is None else {xp.__name__: "xp"}
    for root, tree in trees.items():
        for index, leaf in enumerate(flatten(tree)[0]):
            if type(leaf) in SCALAR_KINDS:
                continue
            backend = backend_of(leaf)
            kind = type_name(leaf)
            if backend is None:
                _unknown(leaf, leaf_path(tree, index, root))  # raises for what is no array
            name = kind if backend is None else backend.value
            seen.setdefault(name, leaf_path(tree, index, root))
    parts = [f"{where} is {name}" for name, where in seen.items()]
    return LoopTypeError(
        f"a loop runs on one array library, and here {', '.join(parts)}. Convert with xp.asarray "
        f"before the loop."
    )


def eager_ops(namespace: Namespace) -> ArrayOps:
    """Return the operations with which the plain driver runs on a library."""
    if namespace.backend is Backend.TORCH:
        from fullgraph.loops._eager_torch import ops_for_this_call

        return ops_for_this_call()
    if namespace.backend is Backend.NUMPY:
        from fullgraph.loops._eager_numpy import NumpyOps

        return NumpyOps()
    from fullgraph.loops._eager_generic import GenericOps

    return GenericOps(_compat_namespace(namespace))


def leaf_ops(namespace: Namespace) -> LeafOps:
    """Return the operations with which leaves of a library are looked at and made."""
    if namespace.backend is Backend.JAX:
        from fullgraph.loops._jax import JAX

        return JAX
    return eager_ops(namespace)


def _compat_namespace(namespace: Namespace) -> Any:
    """Return the array-API namespace of CuPy, Dask, JAX or a stranger."""
    import importlib

    if namespace.backend in (Backend.CUPY, Backend.DASK):
        return importlib.import_module(f"array_api_compat.{namespace.backend.value}")
    if namespace.xp is not None:
        return namespace.xp
    return importlib.import_module(namespace.name)
