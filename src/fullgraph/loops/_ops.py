"""What a loop driver needs of one array library: the contract of the ``_eager_*`` modules.

The drivers themselves are written once. Everything that differs between libraries (how a private
copy is made, how a write by the body is noticed, how outputs are stacked) is behind this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["SCALAR_KINDS", "ArrayOps", "LeafOps", "LeafSpec", "Sink", "dtype_kind", "dtype_name"]

Array = Any
#: Python scalars, which are weak: exact types, because np.float64 is a float with a dtype.
SCALAR_KINDS: dict[type, str] = {bool: "bool", int: "int", float: "float", complex: "complex"}


class LeafSpec(NamedTuple):
    """What a carry leaf keeps through a loop; `device` is None where a library has no say in it."""

    shape: tuple[int, ...]
    dtype: Any
    device: Any


def dtype_name(dtype: Any) -> str:
    """Return the array-API name of a dtype of any library, such as ``float32``."""
    name = getattr(dtype, "name", None)
    return name if isinstance(name, str) else str(dtype).rpartition(".")[2].strip("'>")


def dtype_kind(dtype: Any) -> str:
    """Return ``bool``, ``int``, ``float``, ``complex``, or the dtype's own name."""
    name = dtype_name(dtype)
    for prefix, kind in (
        ("bool", "bool"),
        ("uint", "int"),
        ("int", "int"),
        ("float", "float"),
        ("bfloat", "float"),
        ("complex", "complex"),
    ):
        if name.startswith(prefix):
            return kind
    return name


class Sink(Protocol):
    """Collects one output leaf, one value per step, into an array with a leading time axis."""

    def put(self, step: int, value: Array) -> None:
        """Keep the value of a step; later writes into `value` are never seen, or are refused."""

    def result(self) -> Array:
        """Return the stacked values, which share memory with nothing."""


class LeafOps(Protocol):
    """What the rules of a carry need of an array library."""

    @property
    def name(self) -> str:
        """Name of the library in messages, such as ``"torch"``."""

    def is_array(self, leaf: Any) -> bool:
        """Whether a leaf is an array of this library that a loop can carry."""

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, dtype and device of an array."""

    def matches(self, leaf: Any, spec: LeafSpec) -> bool:
        """Whether a leaf is an array of this library with exactly this spec (the hot check)."""

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Return a 0-d array; `dtype` None means the library's default for the kind of `value`."""

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Return the integers ``lower, ..., upper - 1`` in the library's default integer dtype."""

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""


class ArrayOps(LeafOps, Protocol):
    """Operations of one array library, as the plain driver uses them."""

    def own(self, leaf: Array) -> Array:
        """Return a private, writable copy, differentiable where the library differentiates."""

    def lend(
        self, carry: Sequence[Array], row: Sequence[Array]
    ) -> tuple[list[Array], list[Array], Any]:
        """Return what the body may see of carry and x, and a token for `check_unwritten`."""

    def check_unwritten(self, token: Any) -> bool:
        """Whether the body has left everything that was lent as it was."""

    def write_was_refused(self, error: Exception) -> bool:
        """Whether an exception from a body may be the library's refusal to write into a loan."""

    def keep(self, leaves: Sequence[Array]) -> list[Array]:
        """Take over the carry that a body returned, so that nobody else can change it."""

    def finish(self, leaves: Sequence[Array]) -> list[Array]:
        """Return the last carry as results that share memory with nothing."""

    def rows(self, leaf: Array) -> Callable[[int], Array]:
        """Return a function from a step to the row of `leaf` on its leading axis."""

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return an array of ones, on which a body is evaluated when there are no steps."""

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call `thunk` for shapes and dtypes alone: no warnings, no gradients, no random state."""

    def sink(self, spec: LeafSpec, length: int) -> Sink:
        """Return a collector for `length` values with this spec."""
