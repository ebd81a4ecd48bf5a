"""NumPy for the plain driver: read-only loans, and one buffer for each output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fullgraph.loops._ops import LeafSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NumpyOps"]

Array = Any


class NumpyOps:
    """`ArrayOps` for NumPy.

    The carry is copied after every step: a body may return a buffer that it writes again in the
    next step, and NumPy cannot tell.
    """

    name = "NumPy"
    runs_plainly = True
    loans_are_frozen = True

    def is_array(self, leaf: Any) -> bool:
        """Accept ndarray, memmap and NumPy scalars; other subclasses would lose their nature."""
        return type(leaf) in (np.ndarray, np.memmap) or isinstance(leaf, np.generic)

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, native dtype and no device."""
        dtype = leaf.dtype  # newbyteorder makes another object of a native dtype: slow to compare
        native = dtype if dtype.isnative else dtype.newbyteorder("=")
        return LeafSpec(leaf.shape, native, None)

    def matcher(self, spec: LeafSpec) -> Callable[[Any], bool]:
        """Compare class, shape and dtype."""
        shape, dtype, array = spec.shape, spec.dtype, np.ndarray

        def matches(leaf: Any) -> bool:
            if type(leaf) is array and leaf.dtype is dtype and leaf.shape == shape:
                return True
            return self.is_array(leaf) and self.spec(leaf) == spec

        return matches

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d array."""
        return np.asarray(value, dtype=dtype)

    def own(self, leaf: Array) -> Array:
        """Copy into a contiguous array in native byte order."""
        return np.array(leaf, dtype=leaf.dtype.newbyteorder("="), order="C")

    def keep(self, leaf: Array) -> Array:
        """Copy, and make the copy read-only."""
        copy = leaf.copy() if type(leaf) is np.ndarray else self.own(leaf)
        copy.setflags(False)  # type: ignore[call-arg]  # by position: a keyword costs 0.2 us
        return copy

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Make the owned carry read-only."""
        for leaf in carry:
            leaf.setflags(write=False)
        return carry, None

    def unwritten(self, token: Any) -> bool:
        """Return True: a write has raised."""
        return True

    def write_was_refused(self, error: Exception) -> bool:
        """Recognise NumPy's words for a read-only array, and for a scalar, which a row may be."""
        text = str(error)
        if isinstance(error, ValueError):
            return "read-only" in text
        return "does not support item assignment" in text or "must be of ArrayType" in text

    def finish(self, leaves: list[Array]) -> list[Array]:
        """Make the owned leaves writable for the caller."""
        for leaf in leaves:
            leaf.setflags(write=True)
        return [leaf if leaf.dtype.isnative else self.own(leaf) for leaf in leaves]

    def rows(self, leaf: Array, *, reverse: bool) -> _Rows:
        """Iterate over a read-only view; a row of a 1-d array is a NumPy scalar."""
        view = leaf.view(np.ndarray)[::-1] if reverse else leaf.view(np.ndarray)
        view.flags.writeable = False
        return _Rows(view)

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

    def zero_dimensional(self, leaf: Array) -> Array:
        """Make an array of a NumPy scalar."""
        return np.asarray(leaf)

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return np.flip(leaf, axis=0)


class _Rows:
    """A read-only view and its rows."""

    def __init__(self, view: Array) -> None:
        self._view = view

    def __iter__(self) -> Iterator[Array]:
        """Iterate over the leading axis."""
        return iter(self._view)

    def unwritten(self) -> bool:
        """Return True: a write has raised."""
        return True


class _Buffer:
    """One preallocated array; each value is copied in at once."""

    def __init__(self, spec: LeafSpec, length: int) -> None:
        self._buffer = np.empty((length, *spec.shape), dtype=spec.dtype)
        #: Copies a value into its place; the array's own method, with no Python call around it.
        self.put: Callable[[int, Array], None] = self._buffer.__setitem__

    def result(self) -> Array:
        """Return the buffer."""
        return self._buffer
