"""The array libraries that fullgraph knows by name, asked about without importing them.

A library is looked at only when the user has loaded it: an array of a library that is not in
``sys.modules`` cannot exist. Everything here can be traced by Dynamo, so nothing is locked or
cached.
"""

from __future__ import annotations

import enum
import importlib.util
import sys
from typing import Any

__all__ = ["Backend", "backend_of", "canonical_namespace"]


class Backend(enum.Enum):
    """One array library; the value is the canonical name of its namespace.

    Attributes
    ----------
    value : str
        Canonical namespace name, the key under which loop adapters are found.
    """

    NUMPY = "numpy"
    TORCH = "torch"
    JAX = "jax.numpy"
    CUPY = "cupy"
    DASK = "dask.array"
    STRICT = "array_api_strict"

    @property
    def package(self) -> str:
        """Top-level module of the library, ``"jax"`` for ``jax.numpy``."""
        return self.value.partition(".")[0]

    @property
    def installed(self) -> bool:
        """Whether the library can be imported; it is not imported to find out."""
        return self.package in sys.modules or importlib.util.find_spec(self.package) is not None

    @property
    def loaded(self) -> bool:
        """Whether something in this process has imported the library already."""
        return self.value in sys.modules

    @classmethod
    def from_name(cls, name: str) -> Backend | None:
        """Return the backend whose namespace has this name or alias, or None."""
        canonical = canonical_namespace(name)
        for backend in cls:
            if backend.value == canonical:
                return backend
        return None


_COMPAT = "array_api_compat."
_ALIASES = {"jax.experimental.array_api": "jax.numpy", "jax": "jax.numpy", "dask": "dask.array"}


def canonical_namespace(name: str) -> str:
    """Return the one name under which all spellings of a namespace are known.

    ``torch``, ``array_api_compat.torch`` and any vendored ``....array_api_compat.torch`` are one
    namespace; likewise numpy, cupy, dask.array and jax.numpy. Other names stand for themselves.

    Parameters
    ----------
    name : str
        ``__name__`` of a namespace.

    Returns
    -------
    str

    Examples
    --------
    >>> canonical_namespace("scipy._lib.array_api_compat.torch")
    'torch'
    >>> canonical_namespace("array_api_strict")
    'array_api_strict'
    """
    head, compat, tail = name.rpartition(_COMPAT)
    if compat and (not head or head.endswith(".")):
        name = tail
    return _ALIASES.get(name, name)


def backend_of(leaf: Any) -> Backend | None:
    """Return the backend that an array belongs to, or None for anything else.

    NumPy scalars count as NumPy arrays, JAX tracers as JAX arrays; Python scalars are no arrays.

    Examples
    --------
    >>> import numpy as np
    >>> backend_of(np.zeros(3))
    <Backend.NUMPY: 'numpy'>
    >>> backend_of(1.0) is None
    True
    """
    modules = sys.modules
    torch = modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return Backend.TORCH
    numpy = modules.get("numpy")
    if numpy is not None and isinstance(leaf, (numpy.ndarray, numpy.generic)):
        return Backend.NUMPY
    jax = modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array):
        return Backend.JAX
    return _rarer_backend_of(leaf)


def _rarer_backend_of(leaf: Any) -> Backend | None:
    """Go on with `backend_of` for the libraries whose arrays are told by class and module."""
    for cls in type(leaf).__mro__:
        root = cls.__module__.partition(".")[0]
        if root == "array_api_strict" and cls.__name__ == "Array":
            return Backend.STRICT
        if root == "cupy" and cls.__name__ == "ndarray":
            return Backend.CUPY
        if root == "dask" and cls.__name__ == "Array":
            return Backend.DASK
    return None
