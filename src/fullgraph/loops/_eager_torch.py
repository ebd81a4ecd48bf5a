"""torch for the plain driver: writes by the body show in version counters.

Under a user's own ``torch.compile`` version counters cannot be read. There the body is lent fresh
clones, which the compiler drops where nothing writes into them, so that a body that writes changes
nothing but its own copy.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.loops._carry import in_place_error
from fullgraph.loops._ops import LeafSpec
from fullgraph.loops._torch_cond import is_traced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fullgraph.loops._ops import Rows

__all__ = ["TorchOps", "ops_for_this_call"]

Array = Any
# Counts the writes into a tensor and all its views: the one way to notice a write by a body.
_version = operator.attrgetter("_version")


def _with_version(leaf: Array) -> Array:
    """Return a copy of a tensor that was made in inference mode, else the tensor."""
    return leaf.clone() if leaf.is_inference() else leaf


def ops_for_this_call() -> TorchOps:
    """Return the operations that suit how this call runs: plain, traced or in inference mode."""
    if is_traced():
        return TracedTorchOps()
    if torch.is_inference_mode_enabled():
        return InferenceTorchOps()
    return TorchOps()


class TorchOps:
    """`ArrayOps` for torch run eagerly."""

    name = "torch"
    runs_plainly = True
    loans_are_frozen = False

    def is_array(self, leaf: Any) -> bool:
        """Accept every tensor."""
        return isinstance(leaf, torch.Tensor)

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, dtype and device."""
        return LeafSpec(tuple(leaf.shape), leaf.dtype, leaf.device)

    def matcher(self, spec: LeafSpec) -> Callable[[Any], bool]:
        """Compare class, shape, dtype and device."""
        shape, dtype, device = spec
        size, tensor = torch.Size(shape), torch.Tensor
        if device.type == "cpu":
            return lambda leaf: (
                isinstance(leaf, tensor)
                and leaf.dtype is dtype
                and leaf.shape == size
                and leaf.is_cpu
            )
        return lambda leaf: isinstance(leaf, tensor) and self.spec(leaf) == spec

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d tensor."""
        return torch.tensor(value, dtype=dtype, device=device)

    def own(self, leaf: Array) -> Array:
        """Clone; gradients flow through."""
        return leaf.clone()

    def keep(self, leaf: Array) -> Array:
        """Take the tensor as it is: its version says when somebody else writes."""
        return leaf

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Lend the tensors themselves and note their versions."""
        try:
            return carry, (carry, tuple(map(_version, carry)))
        except RuntimeError:  # made in inference mode, and without a version
            carry = list(map(_with_version, carry))
            return carry, (carry, tuple(map(_version, carry)))

    def unwritten(self, token: Any) -> bool:
        """Compare the versions."""
        carry, versions = token
        return bool(tuple(map(_version, carry)) == versions)

    def write_was_refused(self, error: Exception) -> bool:
        """Recognise autograd's refusal to write into a row, which is one view of several."""
        return isinstance(error, RuntimeError) and "modified inplace" in str(error)

    def finish(self, leaves: list[Array]) -> list[Array]:
        """Clone: a leaf may be a view, another leaf, an output or a tensor closed over."""
        return [leaf.clone() for leaf in leaves]

    def rows(self, leaf: Array, *, reverse: bool) -> Rows:
        """Unbind a private clone: one node in the backward graph, whatever the length."""
        return _Rows(leaf.clone(), reverse=reverse)

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return ones."""
        return torch.ones(spec.shape, dtype=spec.dtype, device=spec.device)

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call, and give the random generators their states back."""
        on_gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        devices = [torch.cuda.current_device()] if on_gpu else []
        with torch.random.fork_rng(devices=devices):
            return thunk()

    def sink(self, spec: LeafSpec, length: int) -> _Stack:
        """Return a list to be stacked."""
        return _Stack(spec, length)

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Count in int64."""
        return torch.arange(lower, upper, device=device)

    def zero_dimensional(self, leaf: Array) -> Array:
        """Return the row, which is a tensor."""
        return leaf

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return torch.flip(leaf, dims=(0,))


class _Rows:
    """The rows of a private tensor, which share one version counter with it."""

    def __init__(self, private: Array, *, reverse: bool) -> None:
        self._private = private
        self._version = _version(private)
        self._reverse = reverse

    def __iter__(self) -> Iterator[Array]:
        """Iterate over the leading axis."""
        rows = self._private.unbind(0)
        return iter(rows[::-1] if self._reverse else rows)

    def unwritten(self) -> bool:
        """Compare the version."""
        return bool(_version(self._private) == self._version)


class _Stack:
    """Tensors kept with their versions and stacked at the end, for autograd's sake."""

    def __init__(self, spec: LeafSpec, length: int) -> None:
        self._spec = spec
        self._values: list[Any] = [None] * length
        self._versions = [0] * length

    def put(self, step: int, value: Array) -> None:
        """Keep a tensor."""
        try:
            self._versions[step] = value._version  # noqa: SLF001 - as _version, and faster
        except RuntimeError:  # made in inference mode
            value = value.clone()
            self._versions[step] = _version(value)
        self._values[step] = value

    def result(self) -> Array:
        """Stack, unless a value was written into after its step."""
        if not self._values:
            spec = self._spec
            return torch.empty((0, *spec.shape), dtype=spec.dtype, device=spec.device)
        if list(map(_version, self._values)) != self._versions:
            raise in_place_error()
        return torch.stack(self._values)


class _TracedRows:
    """Rows where versions cannot be read: each is lent as a clone."""

    def __init__(self, leaf: Array, *, reverse: bool) -> None:
        rows = [row.clone() for row in leaf.unbind(0)]
        self._rows = rows[::-1] if reverse else rows

    def __iter__(self) -> Iterator[Array]:
        """Iterate over the clones."""
        return iter(self._rows)

    def unwritten(self) -> bool:
        """Return True: a write reaches nothing but the clone."""
        return True


class _ComparedRows(_TracedRows):
    """Clones, compared with the rows that they were made from."""

    def __init__(self, leaf: Array, *, reverse: bool) -> None:
        super().__init__(leaf, reverse=reverse)
        rows = leaf.unbind(0)
        self._originals = rows[::-1] if reverse else rows

    def unwritten(self) -> bool:
        """Compare all rows."""
        return all(map(_same_bits, self._rows, self._originals))


class _CopyingStack(_Stack):
    """Copies, where versions cannot be read."""

    def put(self, step: int, value: Array) -> None:
        """Keep a clone."""
        self._values[step] = value.clone()

    def result(self) -> Array:
        """Stack."""
        if not self._values:
            return super().result()
        return torch.stack(self._values)


class TracedTorchOps(TorchOps):
    """torch inside somebody's ``torch.compile``."""

    runs_plainly = False

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Lend clones."""
        return [leaf.clone() for leaf in carry], None

    def unwritten(self, token: Any) -> bool:
        """Return True: a write cannot be seen here, and reaches nothing but the clone."""
        return True

    def keep(self, leaf: Array) -> Array:
        """Clone, for the same reason."""
        return leaf.clone()

    def rows(self, leaf: Array, *, reverse: bool) -> Rows:
        """Unbind and clone."""
        return _TracedRows(leaf, reverse=reverse)

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call; what is not used is dropped by the compiler."""
        return thunk()

    def sink(self, spec: LeafSpec, length: int) -> _Stack:
        """Return a list to be stacked."""
        return _CopyingStack(spec, length)


class InferenceTorchOps(TracedTorchOps):
    """torch in inference mode, whose tensors have no versions: lent clones are compared."""

    runs_plainly = True

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Lend clones and remember what they must equal."""
        lent = [leaf.clone() for leaf in carry]
        return lent, (lent, carry)

    def unwritten(self, token: Any) -> bool:
        """Compare bits, so that a NaN equals itself."""
        return all(map(_same_bits, *token))

    def rows(self, leaf: Array, *, reverse: bool) -> Rows:
        """Unbind, clone and compare at the end."""
        return _ComparedRows(leaf, reverse=reverse)

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call, and give the random generators their states back."""
        return TorchOps.evaluate(self, thunk)


def _same_bits(first: Array, second: Array) -> bool:
    return first.numel() == 0 or torch.equal(_bits(first), _bits(second))


def _bits(leaf: Array) -> Array:
    flat = leaf.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8)
