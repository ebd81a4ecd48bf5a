"""Any other array-API namespace for the plain driver: the body is lent copies, which are compared.

The comparison costs a few array operations per step and leaf (on a GPU, a synchronisation). A lazy
array is never computed for it: such arrays are told apart by the graph that they stand for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_compat

from fullgraph.loops._ops import LeafSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["GenericOps"]

Array = Any


class GenericOps:
    """`ArrayOps` for a namespace that array-api-compat knows.

    Parameters
    ----------
    xp : namespace
        The array-API namespace of the arrays.
    """

    runs_plainly = True
    loans_are_frozen = False

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.name = xp.__name__.removeprefix("array_api_compat.")

    def is_array(self, leaf: Any) -> bool:
        """Accept what array-api-compat finds in this namespace."""
        try:
            found: str = array_api_compat.array_namespace(leaf).__name__
        except TypeError:
            return False
        return bool(found == self.xp.__name__)

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, dtype and device."""
        return LeafSpec(tuple(leaf.shape), leaf.dtype, array_api_compat.device(leaf))

    def matcher(self, spec: LeafSpec) -> Callable[[Any], bool]:
        """Compare class, shape, dtype and device."""
        return lambda leaf: self.is_array(leaf) and self.spec(leaf) == spec

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d array."""
        return self.xp.asarray(value, dtype=dtype, device=device)

    def own(self, leaf: Array) -> Array:
        """Copy."""
        return self.xp.asarray(leaf, copy=True)

    def keep(self, leaf: Array) -> Array:
        """Copy."""
        return self.own(leaf)

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Lend copies and remember what they must equal."""
        lent = [self.own(leaf) for leaf in carry]
        return lent, [(a, b, _graph_name(a)) for a, b in zip(lent, carry, strict=True)]

    def unwritten(self, token: Any) -> bool:
        """Compare the loans with the originals."""
        return all(self.same(*pair) for pair in token)

    def same(self, lent: Array, owned: Array, name: str | None) -> bool:
        """Whether a loan still equals what it was copied from."""
        if array_api_compat.is_lazy_array(lent):
            return _graph_name(lent) == name
        if lent is owned or array_api_compat.size(lent) == 0:
            return True
        both_nan = (lent != lent) & (owned != owned)
        return bool(self.xp.all((lent == owned) | both_nan))

    def write_was_refused(self, error: Exception) -> bool:
        """Return False: copies may be written."""
        return False

    def finish(self, leaves: list[Array]) -> list[Array]:
        """Return the owned leaves."""
        return leaves

    def rows(self, leaf: Array, *, reverse: bool) -> _Rows:
        """Lend copies of the rows, compared after the step."""
        return _Rows(self, leaf, reverse=reverse)

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return ones."""
        return self.xp.ones(spec.shape, dtype=spec.dtype, device=spec.device)

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call."""
        return thunk()

    def sink(self, spec: LeafSpec, length: int) -> _Stack:
        """Return a list to be stacked."""
        return _Stack(self, spec, length)

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Count in the namespace's default integer."""
        return self.xp.arange(lower, upper, device=device)

    def zero_dimensional(self, leaf: Array) -> Array:
        """Return the row, which is an array."""
        return leaf

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return self.xp.flip(leaf, axis=0)


def _graph_name(leaf: Array) -> str | None:
    name = getattr(leaf, "name", None)
    return name if isinstance(name, str) else None


class _Rows:
    """Copies of rows, each compared with the original before the next is made."""

    def __init__(self, ops: GenericOps, leaf: Array, *, reverse: bool) -> None:
        self._ops = ops
        self._leaf = leaf
        length = leaf.shape[0]
        self._order = range(length - 1, -1, -1) if reverse else range(length)
        self._clean = True
        self._last: tuple[Array, Array, str | None] | None = None

    def __iter__(self) -> Iterator[Array]:
        """Copy row after row."""
        for step in self._order:
            self._compare()
            original = self._leaf[step, ...]
            lent = self._ops.own(original)
            self._last = (lent, original, _graph_name(lent))
            yield lent

    def _compare(self) -> None:
        if self._last is not None:
            self._clean = self._clean and self._ops.same(*self._last)

    def unwritten(self) -> bool:
        """Say whether all rows were left alone, the last one too."""
        self._compare()
        return self._clean


class _Stack:
    """Copies, stacked at the end."""

    def __init__(self, ops: GenericOps, spec: LeafSpec, length: int) -> None:
        self._ops = ops
        self._spec = spec
        self._values: list[Any] = [None] * length

    def put(self, step: int, value: Array) -> None:
        """Keep a copy."""
        self._values[step] = self._ops.own(value)

    def result(self) -> Array:
        """Stack."""
        if self._values:
            return self._ops.xp.stack(self._values)
        spec = self._spec
        return self._ops.xp.empty((0, *spec.shape), dtype=spec.dtype, device=spec.device)
