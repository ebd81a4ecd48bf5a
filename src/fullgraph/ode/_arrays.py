"""What solvers need of an array library beyond its namespace.

Solver code is array-API code. Four things are outside of the standard, or too slow through it
inside of a compiled loop: casts, knowing whether values are known, stopping gradients, and a way to
run without them.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import array_api_compat

from fullgraph.backends import Backend, backend_of
from fullgraph.errors import UsageError
from fullgraph.loops._namespace import resolve
from fullgraph.loops._ops import SCALAR_KINDS, dtype_kind, dtype_name
from fullgraph.loops._tree import flatten

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

__all__ = ["Library", "library_of"]

Array = Any
PyTree = Any


@dataclass(frozen=True)
class Library:
    """One array library, as solvers use it.

    Attributes
    ----------
    name : str
        Under which its loop adapter is found.
    backend : Backend or None
        None for a namespace that fullgraph does not know by name.
    xp : namespace
        Array-API namespace, for everything around a loop.
    fast : namespace
        The same without wrappers, for what loop bodies use of it (where, exp, log, sum, clip...).
    """

    name: str
    backend: Backend | None
    xp: Any
    fast: Any

    @property
    def is_jax(self) -> bool:
        """Whether loops are those of ``jax.lax``."""
        return self.backend is Backend.JAX

    @property
    def is_torch(self) -> bool:
        """Whether arrays are torch tensors."""
        return self.backend is Backend.TORCH

    @property
    def integer(self) -> Any:
        """The dtype of counts and indices."""
        return self.xp.asarray(0).dtype if self.is_jax else self.xp.int64

    def cast(self, array: Array, dtype: Any) -> Array:
        """Return `array` in a dtype; itself if it has it."""
        if array.dtype == dtype:
            return array
        return array.to(dtype) if self.is_torch else self.xp.asarray(array, dtype=dtype)

    def array(self, values: Any, dtype: Any, device: Any) -> Array:
        """Make an array; differentiable where `values` is one already."""
        if hasattr(values, "dtype") and hasattr(values, "shape"):
            return self.cast(values, dtype)
        return self.xp.asarray(values, dtype=dtype, device=device)

    def device_of(self, array: Array) -> Any:
        """Return the device of an array, as functions that make arrays take it."""
        if self.is_torch:
            return array.device
        return None if self.is_jax else array_api_compat.device(array)

    def real_dtype(self, dtype: Any) -> Any:
        """Return the dtype of the absolute values of a floating dtype."""
        if dtype_kind(dtype) != "complex":
            return dtype
        return self.xp.float32 if dtype_name(dtype) == "complex64" else self.xp.float64

    def known(self, *arrays: Array) -> bool:
        """Whether the values of arrays are known, that is nothing traces them."""
        if self.is_jax:
            from fullgraph.loops._jax import is_traced

            return not any(is_traced(array) for array in arrays)
        if self.is_torch:
            from fullgraph.ode._torch import is_compiling

            return not is_compiling()
        return True

    def values(self, array: Array) -> list[float]:
        """Return the values of a 1-d array as Python floats."""
        if hasattr(array, "tolist"):
            found: list[float] = array.tolist()
            return found
        return [float(array[i]) for i in range(array.shape[0])]

    def stopped(self, array: Array) -> Array:
        """Return an array that passes no gradient on."""
        if self.is_jax:
            from fullgraph.ode._jax import stop_gradient

            return stop_gradient(array)
        return array.detach() if self.is_torch else array

    def without_gradients(self) -> AbstractContextManager[None]:
        """Return a context in which torch records nothing."""
        if self.is_torch:
            from fullgraph.ode._torch import no_grad

            return no_grad()
        return contextlib.nullcontext()

    def rows(self, array: Array, index: Array) -> Array:
        """Return the rows of an array on its leading axis, by a 1-d array of numbers."""
        if self.is_torch:  # the wrapper of xp.take costs as much as ten of these
            return array.index_select(0, index)
        return self.xp.take(array, index, axis=0)

    def may_record_gradients(self) -> bool:
        """Whether torch would record a graph at all."""
        if not self.is_torch:
            return False
        from fullgraph.ode._torch import grad_enabled

        return grad_enabled()

    def records_gradients(self, arrays: Sequence[Array]) -> bool:
        """Whether torch would differentiate with respect to some of the arrays."""
        if not self.is_torch:
            return False
        from fullgraph.ode._torch import grad_enabled

        return grad_enabled() and any(array.requires_grad for array in arrays)


def library_of(y0: PyTree, ts: Any) -> Library:
    """Return the one library of a problem.

    Raises
    ------
    UsageError
        If there is no array at all.
    LoopTypeError
        If arrays of two libraries meet.
    """
    trees = {"y0": y0}
    if hasattr(ts, "dtype") and hasattr(ts, "shape"):
        trees["ts"] = ts
    leaves = [leaf for tree in trees.values() for leaf in flatten(tree)[0]]
    arrays = [leaf for leaf in leaves if type(leaf) not in SCALAR_KINDS]
    if not arrays:
        raise UsageError(
            "neither y0 nor ts is an array, so there is nothing that says where to solve: give ts "
            "or a leaf of y0 as an array."
        )
    if backend_of(ts) is Backend.NUMPY and any(backend_of(a) is Backend.JAX for a in arrays):
        del trees["ts"]  # times that stay known while jax.jit traces
    namespace = resolve(trees, None)
    if namespace.backend is Backend.TORCH:
        from fullgraph.ode._torch import compat

        return Library(namespace.name, namespace.backend, compat, sys.modules["torch"])
    xp = array_api_compat.array_namespace(arrays[0])
    return Library(namespace.name, namespace.backend, xp, xp)
