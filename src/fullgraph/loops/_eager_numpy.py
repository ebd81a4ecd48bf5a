"""NumPy for the plain driver: read-only loans, and one buffer for each output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fullgraph.loops._ops import LeafSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["NumpyOps"]

Array = Any


class NumpyOps:
    """`ArrayOps` for NumPy.

    The carry is copied after every step: a body may return a buffer that it writes again in the
    next step, and NumPy cannot tell.
    """

    name = "NumPy"

    def is_array(self, leaf: Any) -> bool:
        """Accept ndarray, memmap and NumPy scalars; other subclasses would lose their nature."""
        return type(leaf) in (np.ndarray, np.memmap) or isinstance(leaf, np.generic)

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, native dtype and no device."""
        return LeafSpec(leaf.shape, leaf.dtype.newbyteorder("="), None)

    def matches(self, leaf: Any, spec: LeafSpec) -> bool:
        """Compare class, shape and dtype."""
        return (
            (type(leaf) is np.ndarray or self.is_array(leaf))
            and leaf.shape == spec.shape
            and (leaf.dtype is spec.dtype or leaf.dtype.newbyteorder("=") == spec.dtype)
        )

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d array."""
        return np.asarray(value, dtype=dtype)

    def own(self, leaf: Array) -> Array:
        """Copy into a contiguous array in native byte order."""
        return np.array(leaf, dtype=leaf.dtype.newbyteorder("="), order="C")

    def lend(
        self, carry: Sequence[Array], row: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Any]:
        """Make the owned carry read-only; rows are read-only already."""
        for leaf in carry:
            leaf.flags.writeable = False
        return list(carry), list(row), None

    def check_unwritten(self, token: Any) -> bool:
        """Return True: a write has raised."""
        return True

    def write_was_refused(self, error: Exception) -> bool:
        """Recognise NumPy's ValueError about a read-only array."""
        return isinstance(error, ValueError) and "read-only" in str(error)

    def keep(self, leaves: Sequence[Array]) -> list[Array]:
        """Copy each leaf."""
        return [
            np.array(leaf, order="C") if leaf.dtype.isnative else self.own(leaf) for leaf in leaves
        ]

    def finish(self, leaves: Sequence[Array]) -> list[Array]:
        """Make the owned leaves writable for the caller."""
        for leaf in leaves:
            leaf.flags.writeable = True
        return list(leaves)

    def rows(self, leaf: Array) -> Callable[[int], Array]:
        """Index a read-only view; a row of a 1-d array is a 0-d array."""
        view = leaf.view(np.ndarray)
        view.flags.writeable = False
        return lambda step: view[step, ...]

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return ones."""
        ones = np.ones(spec.shape, dtype=spec.dtype)
        ones.flags.writeable = False
        return ones

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call with floating-point warnings off."""
        with np.errstate(all="ignore"):
            return thunk()

    def sink(self, spec: LeafSpec, length: int) -> _Buffer:
        """Return a preallocated buffer."""
        return _Buffer(spec, length)

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Count in NumPy's default integer."""
        return np.arange(lower, upper)

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return np.flip(leaf, axis=0)


class _Buffer:
    """One preallocated array; each value is copied in at once."""

    def __init__(self, spec: LeafSpec, length: int) -> None:
        self._buffer = np.empty((length, *spec.shape), dtype=spec.dtype)

    def put(self, step: int, value: Array) -> None:
        """Copy a value into its place."""
        self._buffer[step] = value

    def result(self) -> Array:
        """Return the buffer."""
        return self._buffer
