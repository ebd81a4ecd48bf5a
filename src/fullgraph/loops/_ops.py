"""What a loop driver needs of one array library: the contract of the ``_eager_*`` modules.

The drivers themselves are written once. Everything that differs between libraries (how a private
copy is made, how a write by the body is noticed, how outputs are stacked) is behind this protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "SCALAR_KINDS",
    "ArrayOps",
    "LeafOps",
    "LeafSpec",
    "Rows",
    "Sink",
    "dtype_kind",
    "dtype_name",
]

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


class Rows(Protocol):
    """The rows of one leaf of xs, as a body may see them."""

    def __iter__(self) -> Iterator[Array]:
        """Yield the rows in the order of the steps."""

    def unwritten(self) -> bool:
        """Whether the body has left all rows so far as they were."""


class LeafOps(Protocol):
    """What the rules of a carry need of an array library."""

    @property
    def name(self) -> str:
        """Name of the library in messages, such as ``"torch"``."""

    @property
    def runs_plainly(self) -> bool:
        """Whether steps are run one by one, not traced: then generated code may speed them up."""

    def is_array(self, leaf: Any) -> bool:
        """Whether a leaf is an array of this library that a loop can carry."""

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape, dtype and device of an array."""

    def matcher(self, spec: LeafSpec) -> Callable[[Any], bool]:
        """Return the hot check: whether a leaf is an array with exactly this spec."""

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Return a 0-d array; `dtype` None means the library's default for the kind of `value`."""

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Return the integers ``lower, ..., upper - 1`` in the library's default integer dtype."""

    def zero_dimensional(self, leaf: Array) -> Array:
        """Return a row of a 1-d array as a 0-d array, if it is a scalar of the library."""

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""


class ArrayOps(LeafOps, Protocol):
    """Operations of one array library, as the plain driver uses them."""

    #: Whether `keep` returns what may be lent as it is, so that `lend` need not be called again.
    loans_are_frozen: bool

    def own(self, leaf: Array) -> Array:
        """Return a private copy, differentiable where the library differentiates."""

    def keep(self, leaf: Array) -> Array:
        """Take over a leaf that a body returned, so that nobody else changes it unnoticed."""

    def lend(self, carry: list[Array]) -> tuple[list[Array], Any]:
        """Return what a body may see of a carry that is owned, and a token for `unwritten`."""

    def unwritten(self, token: Any) -> bool:
        """Whether the body has left everything that was lent as it was."""

    def write_was_refused(self, error: Exception) -> bool:
        """Whether an exception from a body may be the library's refusal to write into a loan."""

    def finish(self, leaves: list[Array]) -> list[Array]:
        """Return the last carry as results that share memory with nothing."""

    def rows(self, leaf: Array, *, reverse: bool) -> Rows:
        """Return the rows of a leaf on its leading axis."""

    def placeholder(self, spec: LeafSpec) -> Array:
        """Return an array of ones, on which a body is evaluated when there are no steps."""

    def evaluate(self, thunk: Callable[[], Any]) -> Any:
        """Call `thunk` for shapes and dtypes alone: no warnings, no change of random state."""

    def sink(self, spec: LeafSpec, length: int) -> Sink:
        """Return a collector for `length` values with this spec."""
