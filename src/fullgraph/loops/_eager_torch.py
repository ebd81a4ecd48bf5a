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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["TorchOps", "ops_for_this_call"]

Array = Any
# Counts the writes into a tensor and all its views: the one way to notice a write by a body.
_version = operator.attrgetter("_version")


def ops_for_this_call() -> TorchOps:
    """Return the operations that suit how this call runs: plain, traced or in inference mode."""
    if torch.compiler.is_compiling():
        return TracedTorchOps()
    if torch.is_inference_mode_enabled():
        return InferenceTorchOps()
    return TorchOps()


class TorchOps:
    """`ArrayOps` for torch run eagerly."""

    name = "torch"

    def is_array(self, leaf: Any) -> bool:
        """Accept every tensor."""
        return isinstance(leaf, torch.Tensor)

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, dtype and device."""
        return LeafSpec(tuple(leaf.shape), leaf.dtype, leaf.device)

    def matches(self, leaf: Any, spec: LeafSpec) -> bool:
        """Compare class, shape, dtype and device."""
        return (
            isinstance(leaf, torch.Tensor)
            and leaf.dtype == spec.dtype
            and tuple(leaf.shape) == spec.shape
            and leaf.device == spec.device
        )

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d tensor."""
        return torch.tensor(value, dtype=dtype, device=device)

    def own(self, leaf: Array) -> Array:
        """Clone; gradients flow through."""
        return leaf.clone()

    def lend(
        self, carry: Sequence[Array], row: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Any]:
        """Lend the tensors themselves and note their versions."""
        lent = [*carry, *row]
        return list(carry), list(row), [(leaf, _version(leaf)) for leaf in lent]

    def check_unwritten(self, token: Any) -> bool:
        """Compare the versions."""
        return all(_version(leaf) == version for leaf, version in token)

    def write_was_refused(self, error: Exception) -> bool:
        """Recognise autograd's refusal to write into a row, which is one view of several."""
        return isinstance(error, RuntimeError) and "modified inplace" in str(error)

    def keep(self, leaves: Sequence[Array]) -> list[Array]:
        """Take the tensors as they are: the versions say when somebody else writes."""
        return list(leaves)

    def finish(self, leaves: Sequence[Array]) -> list[Array]:
        """Clone: a leaf may be a view, another leaf, an output or a tensor closed over."""
        return [leaf.clone() for leaf in leaves]

    def rows(self, leaf: Array) -> Callable[[int], Array]:
        """Unbind a private clone: one node in the backward graph, whatever the length."""
        rows = leaf.clone().unbind(0)
        return lambda step: rows[step]

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return ones."""
        return torch.ones(spec.shape, dtype=spec.dtype, device=spec.device)

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call without gradients, and give the CPU generator its state back."""
        state = torch.get_rng_state()
        try:
            with torch.no_grad():
                return thunk()
        finally:
            torch.set_rng_state(state)

    def sink(self, spec: LeafSpec, length: int) -> _Stack:
        """Return a list to be stacked."""
        return _Stack(spec, length)

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Count in int64."""
        return torch.arange(lower, upper, device=device)

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return torch.flip(leaf, dims=(0,))


class _Stack:
    """Tensors kept with their versions and stacked at the end, for autograd's sake."""

    def __init__(self, spec: LeafSpec, length: int) -> None:
        self._spec = spec
        self._values: list[Any] = [None] * length
        self._versions = [0] * length

    def put(self, step: int, value: Array) -> None:
        """Keep a tensor."""
        self._values[step] = value
        self._versions[step] = _version(value)

    def result(self) -> Array:
        """Stack, unless a value was written into after its step."""
        if not self._values:
            spec = self._spec
            return torch.empty((0, *spec.shape), dtype=spec.dtype, device=spec.device)
        pairs = zip(self._values, self._versions, strict=True)
        if not all(_version(value) == version for value, version in pairs):
            raise in_place_error()
        return torch.stack(self._values)


class _PlainStack(_Stack):
    """Copies, where versions cannot be read."""

    def put(self, step: int, value: Array) -> None:
        """Keep a clone."""
        self._values[step] = value.clone()

    def result(self) -> Array:
        """Stack."""
        if not self._values:
            spec = self._spec
            return torch.empty((0, *spec.shape), dtype=spec.dtype, device=spec.device)
        return torch.stack(self._values)


class TracedTorchOps(TorchOps):
    """torch inside somebody's ``torch.compile``."""

    def lend(
        self, carry: Sequence[Array], row: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Any]:
        """Lend clones."""
        return [leaf.clone() for leaf in carry], [leaf.clone() for leaf in row], None

    def check_unwritten(self, token: Any) -> bool:
        """Return True: a write cannot be seen here, and reaches nothing but the clone."""
        return True

    def keep(self, leaves: Sequence[Array]) -> list[Array]:
        """Clone, for the same reason."""
        return [leaf.clone() for leaf in leaves]

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call without gradients; what is not used is dropped by the compiler."""
        with torch.no_grad():
            return thunk()

    def sink(self, spec: LeafSpec, length: int) -> _Stack:
        """Return a list to be stacked."""
        return _PlainStack(spec, length)


class InferenceTorchOps(TracedTorchOps):
    """torch in inference mode, whose tensors have no versions: lent clones are compared."""

    def lend(
        self, carry: Sequence[Array], row: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Any]:
        """Lend clones and remember what they must equal."""
        owned = [*carry, *row]
        lent = [leaf.clone() for leaf in owned]
        return lent[: len(carry)], lent[len(carry) :], list(zip(lent, owned, strict=True))

    def check_unwritten(self, token: Any) -> bool:
        """Compare bits, so that a NaN equals itself."""
        return all(torch.equal(_bits(lent), _bits(owned)) for lent, owned in token if lent.numel())

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call, and give the CPU generator its state back."""
        return TorchOps.evaluate(self, thunk)


def _bits(leaf: Array) -> Array:
    flat = leaf.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8)
