"""Elements: how one element of a node is computed at one index."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fullgraph.native.dtypes import BOOL, DType
from fullgraph.native.emit._index import LANE, Index, linear, minus, plus, reshaped, times
from fullgraph.native.emit._scope import Scope
from fullgraph.native.ir import (
    Broadcast,
    Cat,
    Constant,
    Contract,
    Gather,
    InvalidIRError,
    Iota,
    Map,
    Node,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
)
from fullgraph.native.ops._registry import Refused
from fullgraph.native.scalar import DIVISION_BY_ZERO, OUT_OF_BOUNDS, SCALAR, expression

if TYPE_CHECKING:
    from fullgraph.native.lanes import Plan

__all__ = ["IDENTITY", "JOIN", "Elements", "converted", "literal"]

Position = Sequence[Index]

# Reductions: the scalar function that joins two values, and the value to start from.
JOIN: Final = {
    "sum": "add",
    "prod": "mul",
    "amax": "maximum",
    "amin": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}
IDENTITY: Final[dict[str, int]] = {"sum": 0, "prod": 1, "any": 0, "all": 1}


def literal(value: bool | float, dtype: DType) -> str:
    """Return a number as a C literal of `dtype`."""
    if dtype.kind == "b":
        return str(int(bool(value)))
    if dtype.kind == "i":
        number = int(value)
        bits = 8 * dtype.size
        number &= (1 << bits) - 1
        if dtype.name != "uint8" and number >> (bits - 1):
            number -= 1 << bits
        if number == -(1 << 63):
            return "INT64_MIN"
        text = str(number) if abs(number) < 1 << 15 else f"INT64_C({number})"
        return f"({text})" if number < 0 else text
    number_f = float(value)
    if math.isnan(number_f):
        return "NAN"
    if math.isinf(number_f):
        return "INFINITY" if number_f > 0 else "(-INFINITY)"
    text = repr(number_f)
    if dtype.name == "float32":
        return f"((float){text})"
    return f"({text})" if text.startswith("-") else text


def converted(atom: str, source: DType, target: DType) -> str:
    """Return a C atom of type `source` as one of type `target`."""
    if source == target:
        return atom
    if target.kind == "b":
        return f"({atom} != 0)"
    return f"(({target.c}){atom})"


class Elements:
    """Computes elements into the current scope; memory of nodes is in `storage`.

    Attributes
    ----------
    plan : Plan
        Decisions about the loop being written.
    scope : Scope
        Where statements go now.
    storage : dict
        For nodes in memory, the C text that reads an element. It wins over computing it again.
    before : list of str
        Statements that run once for a block of lanes, before its first step.
    padded : set
        Nodes whose memory has gaps.
    """

    def __init__(self, plan: Plan, names: Iterator[int] | None = None) -> None:
        self.plan = plan
        self.scope = Scope()
        self.storage: dict[Node, Callable[[Position], str]] = {}
        self.before: list[str] = []
        self.padded: set[Node] = set()
        self._names = itertools.count() if names is None else names

    def child(self, plan: Plan) -> Elements:
        """Return what writes a loop inside this one; its names are other names."""
        return Elements(plan, self._names)

    def reading(self, node: Node, index: Position) -> str:
        """Return the C text of an element that is in memory, or is a number."""
        if isinstance(node, Constant):
            return literal(node.value, node.dtype)
        if isinstance(node, Iota):
            start, step = literal(node.start, node.dtype), literal(node.step, node.dtype)
            return f"(({node.dtype.c})({start} + {step} * {index[0]}))"
        return self.storage[node](index)

    def name(self, prefix: str) -> str:
        """Return a C name that is not yet taken."""
        return f"{prefix}{next(self._names)}"

    def varies(self, node: Node) -> bool:
        """Whether `node` differs between the lanes of a block."""
        return node in self.plan.lane

    def say(self, statement: str, *, lane: bool) -> None:
        """Add a statement to the current scope."""
        (self.scope.lanes if lane else self.scope.uniform).append(statement)

    def bind(self, node: Node, expr: str, dtype: DType | None = None) -> str:
        """Give the value of `expr`, which belongs to `node`, a name."""
        name = self.name("v")
        self.say(f"const {(dtype or node.dtype).c} {name} = {expr};", lane=self.varies(node))
        return name

    def element(self, node: Node, index: Position) -> str:
        """Return a C atom for element `index` of `node`."""
        if isinstance(node, Constant):
            return literal(node.value, node.dtype)
        key = (node, tuple(index))
        found = self.scope.memo.get(key)
        if found is None:
            found = self.scope.memo[key] = self._compute(node, key[1])
        return found

    def operand(self, node: Node, index: Position, shape: Shape, dtype: DType) -> str:
        """Return element `index` of a result of `shape` from a broadcast operand, as `dtype`."""
        if isinstance(node, Constant):
            return literal(node.value, dtype)
        return converted(self.element(node, self.trailing(node, index, shape)), node.dtype, dtype)

    def trailing(self, node: Node, index: Position, shape: Shape) -> list[Index]:
        """Return the index into an operand that is broadcast to `shape`."""
        shift = len(shape) - len(node.shape)
        return [
            0 if n == 1 and shape[d + shift] != 1 else index[d + shift]
            for d, n in enumerate(node.shape)
        ]

    def _compute(self, node: Node, index: tuple[Index, ...]) -> str:
        read = self.storage.get(node)
        if read is not None:
            return self.bind(node, read(index))
        match node:
            case Map():
                return self._map(node, index)
            case Reshape():
                return self.element(node.arg, reshaped(index, node.shape, node.arg.shape))
            case Permute():
                inner: list[Index] = [0] * len(index)
                for k, d in enumerate(node.order):
                    inner[d] = index[k]
                return self.element(node.arg, inner)
            case Slice():
                return self.element(node.arg, self._sliced(node, index))
            case Broadcast():
                return self.element(node.arg, self.trailing(node.arg, index, node.shape))
            case Cat():
                return self._cat(node, index)
            case Iota():
                return self._iota(node, index)
            case Gather():
                return self._gather(node, index)
            case Reduce():
                return self._reduce(node, index)
            case Contract():
                return self._contract(node, index)
        raise InvalidIRError(f"{type(node).__name__} has no memory and no formula")

    def _map(self, node: Map, index: Position) -> str:
        rule = SCALAR[node.fn]
        atoms = [self.operand(a, index, node.shape, node.compute) for a in node.args]
        if node.fn == "where":
            atoms[0] = self.operand(node.args[0], index, node.shape, BOOL)
        if not self.plan.signed_zeros and node.compute.is_float and node.dtype == node.compute:
            short = _with_zero(node.fn, atoms, node.dtype)
            if short is not None:
                return short
        expr = expression(node.fn, node.compute, atoms)
        if not expr:
            raise Refused(f"{node.fn} of {node.compute} has no C form")
        if rule.fails and node.compute.kind == "i":
            failing = rule.fails.format(*atoms)
            self.say(f"status |= ({failing}) ? {DIVISION_BY_ZERO} : 0;", lane=self.varies(node))
        result = BOOL if rule.result == "bool" else node.compute
        if result == node.dtype:
            return self.bind(node, expr)
        return self.bind(node, converted(f"({expr})", result, node.dtype))

    @staticmethod
    def _sliced(node: Slice, index: Position) -> list[Index]:
        result: list[Index] = []
        for i, start, step in zip(index, node.starts, node.steps, strict=True):
            if step == -1:
                result.append(minus(start, i))
            else:
                result.append(plus(times(i, step), start))
        return result

    def _cat(self, node: Cat, index: Position) -> str:
        at = index[node.dim]
        if not isinstance(at, int):
            raise InvalidIRError("a cat is read at a variable index but not stored")
        for part in node.args:
            n = part.shape[node.dim]
            if at < n:
                return self.element(part, [*index[: node.dim], at, *index[node.dim + 1 :]])
            at -= n
        raise InvalidIRError("a cat is read past its end")

    def _iota(self, node: Iota, index: Position) -> str:
        i = index[0]
        if i == LANE and self.varies(node):
            i = "(p0 + k)"
        if isinstance(i, int):
            return literal(node.start + node.step * i, node.dtype)
        start, step = literal(node.start, node.dtype), literal(node.step, node.dtype)
        return self.bind(node, f"({node.dtype.c})({start} + {step} * {i})")

    def _gather(self, node: Gather, index: Position) -> str:
        inner: list[Index] = []
        for source, n in zip(node.sources, node.arg.shape, strict=True):
            if isinstance(source, int):
                inner.append(0 if n == 1 and node.shape[source] != 1 else index[source])
                continue
            inner.append(self.place(source, index, node, n))
        # Read here and not through `element`: even memory that all lanes share is read by each lane
        # at a place of its own.
        return self.bind(node, self.reading(node.arg, inner))

    def place(self, source: Node, index: Position, node: Node, n: int) -> str:
        """Return the C name of an index that a tensor holds, checked against `n` elements.

        `index` is a position in `node`, to which `source` broadcasts.
        """
        atom = self.element(source, self.trailing(source, index, node.shape))
        name = self.name("i")
        lane = self.varies(node)
        outside = f"{atom} < -{n} || {atom} >= {n}"
        self.say(f"status |= ({outside}) ? {OUT_OF_BOUNDS} : 0;", lane=lane)
        inside = f"{atom} < 0 ? {atom} + {n} : {atom}"
        self.say(f"const int64_t {name} = ({outside}) ? 0 : ({inside});", lane=lane)
        return name

    # --- Reductions written out in full (bodies without loops) ---

    def _reduce(self, node: Reduce, index: Position) -> str:
        ranges = [range(node.arg.shape[d]) for d in node.dims]
        kept = iter(index)
        base: list[Index] = [
            0 if d in node.dims else next(kept) for d in range(len(node.arg.shape))
        ]
        atoms: list[str] = []
        for at in itertools.product(*ranges):
            for d, i in zip(node.dims, at, strict=True):
                base[d] = i
            atoms.append(self.element(node.arg, base))
        if not atoms:
            return literal(IDENTITY[node.fn], node.dtype)
        join = JOIN[node.fn]
        while len(atoms) > 1:  # pairwise, which keeps the rounding error of sums low
            atoms = [
                p[0] if len(p) == 1 else self.bind(node, expression(join, node.dtype, p))
                for p in _pairs(atoms)
            ]
        return atoms[0]

    def _contract(self, node: Contract, index: Position) -> str:
        b, m, n = index
        total = literal(0, node.dtype)
        for k in range(node.lhs.shape[2]):
            a, c = self.element(node.lhs, [b, m, k]), self.element(node.rhs, [b, k, n])
            total = self.bind(node, fused(a, c, total, node.dtype, first=k == 0))
        return total

    def local(self, node: Node, index: Position) -> Index:
        """Return the position of an element in the memory that `node` has inside a block."""
        if not self.varies(node):
            return linear(index, node.shape)
        d = self.plan.lane[node]
        if index[d] != LANE:
            raise InvalidIRError("a lane dimension is read at another lane")
        row = linear([*index[:d], *index[d + 1 :]], [*node.shape[:d], *node.shape[d + 1 :]])
        return plus(times(row, self.plan.block), LANE)

    def outer(self, node: Node, index: Position) -> Index:
        """Return the position of an element in a whole tensor like `node`."""
        if not self.varies(node):
            return linear(index, node.shape)
        d = self.plan.lane[node]
        return linear([*index[:d], "(p0 + k)", *index[d + 1 :]], node.shape)


def _with_zero(fn: str, atoms: list[str], dtype: DType) -> str | None:
    """Return the atom that an operation with a zero comes to, if it is one of these.

    A product is not among them: zero times infinity is NaN.
    """
    zero = literal(0, dtype)
    match fn, [a == zero for a in atoms]:
        case "add", [True, _]:
            return atoms[1]
        case (("add" | "sub"), [_, True]):
            return atoms[0]
        case ("neg", [True]) | ("where", [_, True, True]):
            return zero
    return None


def _pairs(atoms: list[str]) -> list[list[str]]:
    return [atoms[i : i + 2] for i in range(0, len(atoms), 2)]


def fused(a: str, b: str, c: str, dtype: DType, *, first: bool = False) -> str:
    """Return ``a * b + c``, rounded once for floats where the CPU can."""
    if dtype.kind == "b":
        return f"{c} | ({a} & {b})"
    if dtype.kind == "i":
        product = f"{a} * {b}" if first else f"{c} + {a} * {b}"
        return f"({dtype.c})({product})"
    if first:
        return f"{a} * {b}"
    return f"fg_fma{'f' if dtype.name == 'float32' else ''}({a}, {b}, {c})"
