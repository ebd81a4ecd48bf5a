"""The loop IR: a body as a graph of frozen nodes over static shapes, its printer and verifier.

A node is one tensor value. There are few kinds on purpose: every pointwise operation is a `Map`
with a scalar function, every view is one of `Reshape`, `Permute`, `Slice` and `Broadcast`, and
everything that joins tensors (cat, stack, roll, pad, scatter into a slice) is a `Cat`. Nodes refer
to each other directly and compare by identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fullgraph.native.dtypes import DType

__all__ = [
    "Accumulate",
    "ArgReduce",
    "Broadcast",
    "Cat",
    "Constant",
    "Contract",
    "Gather",
    "Input",
    "InvalidIRError",
    "Iota",
    "Kernel",
    "Loop",
    "Map",
    "Nested",
    "Node",
    "Permute",
    "Project",
    "Reduce",
    "Reshape",
    "Scatter",
    "Shape",
    "Slice",
    "topological",
]

Shape = tuple[int, ...]


class InvalidIRError(Exception):
    """The IR breaks one of its own rules; a bug of this package, never of a user's body."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """One tensor value: element type, static shape, and the user's line it comes from."""

    dtype: DType
    shape: Shape
    origin: str = field(default="", repr=False)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The values this one is computed from."""
        return ()

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def describe(self) -> str:
        """Return the attributes in words, for the printer."""
        return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Input(Node):
    """A leaf of the carry (``"carry"``), of one step's x (``"x"``), or a closed-over tensor."""

    role: str
    index: int

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.role} {self.index}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Constant(Node):
    """One number everywhere."""

    value: bool | int | float

    def describe(self) -> str:
        """Name the attributes."""
        return repr(self.value)


@dataclass(frozen=True, eq=False, kw_only=True)
class Iota(Node):
    """``start + step * i`` along its only dimension."""

    start: int | float
    step: int | float

    def describe(self) -> str:
        """Name the attributes."""
        return f"start={self.start!r} step={self.step!r}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Map(Node):
    """A scalar function of broadcast operands, computed in `compute`, converted to `dtype`."""

    fn: str
    args: tuple[Node, ...]
    compute: DType

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return self.args

    def describe(self) -> str:
        """Name the attributes."""
        return self.fn if self.compute == self.dtype else f"{self.fn} in {self.compute}"


@dataclass(frozen=True, eq=False, kw_only=True)
class _Unary(Node):
    arg: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return (self.arg,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Reshape(_Unary):
    """The same elements in row-major order under another shape."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Permute(_Unary):
    """Dimension ``d`` of the result is dimension ``order[d]`` of the operand."""

    order: tuple[int, ...]

    def describe(self) -> str:
        """Name the attributes."""
        return str(self.order)


@dataclass(frozen=True, eq=False, kw_only=True)
class Slice(_Unary):
    """Element ``i`` of dimension ``d`` is element ``starts[d] + i * steps[d]`` of the operand."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]

    def describe(self) -> str:
        """Name the attributes."""
        return f"starts={self.starts} steps={self.steps}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Broadcast(_Unary):
    """The operand repeated by the trailing-dimensions rule."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Cat(Node):
    """Operands after each other along `dim`."""

    args: tuple[Node, ...]
    dim: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return self.args

    def describe(self) -> str:
        """Name the attributes."""
        return f"dim={self.dim}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(_Unary):
    """`fn` (sum, prod, amax, amin, any, all) over `dims`, which are dropped."""

    fn: str
    dims: tuple[int, ...]

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.fn} dims={self.dims}"


@dataclass(frozen=True, eq=False, kw_only=True)
class ArgReduce(_Unary):
    """Index of the first largest or smallest element along `dim`, which is dropped."""

    fn: str
    dim: int

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.fn} dim={self.dim}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Accumulate(_Unary):
    """Running `fn` (sum, prod) along `dim`."""

    fn: str
    dim: int

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.fn} dim={self.dim}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Contract(Node):
    """Batched matrix product: ``(b, m, k) @ (b, k, n)``."""

    lhs: Node
    rhs: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return (self.lhs, self.rhs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Node):
    """Element lookup: dimension ``d`` of `arg` is read at ``sources[d]``.

    A source is the number of a result dimension, or an integer node that broadcasts to the result.
    """

    arg: Node
    sources: tuple[int | Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return (self.arg, *(s for s in self.sources if isinstance(s, Node)))

    def describe(self) -> str:
        """Name the attributes."""
        return " ".join("index" if isinstance(s, Node) else f"d{s}" for s in self.sources)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(Node):
    """`base` with every element of `value` written, or added where `accumulate`, at a place.

    A source is as in `Gather`: dimension ``d`` of the place is a dimension of `value`, or an
    integer node that broadcasts to `value`. Of two elements with one place the later one is kept.
    """

    base: Node
    value: Node
    sources: tuple[int | Node, ...]
    accumulate: bool = True

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return (self.base, self.value, *(s for s in self.sources if isinstance(s, Node)))

    def describe(self) -> str:
        """Name the attributes."""
        places = " ".join("index" if isinstance(s, Node) else f"d{s}" for s in self.sources)
        return f"{'add' if self.accumulate else 'set'} {places}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel(Node):
    """A small dense routine on whole arrays (solve, cholesky, ...), written out in C."""

    name: str
    args: tuple[Node, ...]
    options: tuple[bool, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return self.args

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.name} {self.options}" if self.options else self.name


@dataclass(frozen=True, eq=False, kw_only=True)
class Nested(Node):
    """A loop inside the body; read its results with `Project`. Its own dtype and shape are void.

    `length` is 0 for a while loop.
    """

    loop: Loop
    init: tuple[Node, ...]
    xs: tuple[Node, ...]
    consts: tuple[Node, ...]
    length: int

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The operands."""
        return (*self.init, *self.xs, *self.consts)

    def describe(self) -> str:
        """Name the attributes."""
        return f"{self.length} steps" if self.loop.going is None else "while"


@dataclass(frozen=True, eq=False, kw_only=True)
class Project(_Unary):
    """Result number `index` of a `Nested` loop: final carry leaves first, then stacked ys."""

    index: int

    def describe(self) -> str:
        """Name the attributes."""
        return str(self.index)


@dataclass(frozen=True, eq=False, kw_only=True)
class Loop:
    """One loop: inputs, and the new carry and y of a step as functions of them.

    `signed_zeros` says whether 0 and -0 differ: in a gradient they do not, and zeros that are
    added are left out.

    With `going` it is a while loop: that scalar is computed from the carry before each step, and
    no step is taken once it is false. A while loop has no xs and no ys.
    """

    carry: tuple[Input, ...]
    xs: tuple[Input, ...]
    consts: tuple[Input, ...]
    carry_out: tuple[Node, ...]
    ys: tuple[Node, ...]
    reverse: bool = False
    signed_zeros: bool = True
    going: Node | None = None

    @property
    def roots(self) -> tuple[Node, ...]:
        """What a step computes; the condition first."""
        before = () if self.going is None else (self.going,)
        return (*before, *self.carry_out, *self.ys)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node that a result needs, operands before users."""
        return topological(self.roots)


def topological(roots: Iterable[Node]) -> tuple[Node, ...]:
    """Return `roots` and all they need, operands before users, without recursion."""
    done: dict[Node, None] = {}
    stack: list[tuple[Node, Iterator[Node]]] = [(r, iter(r.inputs)) for r in reversed(list(roots))]
    while stack:
        node, rest = stack[-1]
        if node in done:
            stack.pop()
            continue
        pending = next((a for a in rest if a not in done), None)
        if pending is None:
            done[node] = None
            stack.pop()
        else:
            stack.append((pending, iter(pending.inputs)))
    return tuple(done)
