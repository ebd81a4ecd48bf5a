"""The registry behind the operation table, and what rules share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fullgraph.native.dtypes import BOOL, BY_NAME, F32, I64, DType
from fullgraph.native.ir import Broadcast, Constant, Map, Node, Permute, Reshape, Shape, Slice
from fullgraph.native.scalar import SCALAR

__all__ = [
    "Argument",
    "Call",
    "Refused",
    "Rule",
    "broadcast",
    "canonical_name",
    "cast",
    "constant",
    "find_rule",
    "harmless",
    "mapped",
    "permute",
    "reshape",
    "rule",
    "rules",
    "take_slice",
    "wrap_dim",
]

# An argument of an operation: a value, a number, or anything static (dtype names, lists, None).
Argument: TypeAlias = (
    Node | bool | int | float | str | DType | list["Argument"] | tuple["Argument", ...] | None
)


class Refused(Exception):  # noqa: N818 - a reason, not a bug
    """A rule cannot express this call; the text says why and what to write instead."""


@dataclass(frozen=True)
class Call:
    """One call of an operation in the captured body.

    Attributes
    ----------
    name : str
        Canonical name, for example ``"aten.add.Tensor"``.
    args, kwargs
        Arguments with IR nodes in the place of tensors.
    dtypes, shapes : tuple
        Of the results, as torch's own shape propagation found them.
    origin : str
        The user's line.
    default_float : DType
        What Python floats become beside integer tensors.
    guard : Node, optional
        In a branch of a cond: whether it is taken.
    """

    name: str
    args: tuple[Argument, ...]
    kwargs: Mapping[str, Argument]
    dtypes: tuple[DType, ...]
    shapes: tuple[Shape, ...]
    origin: str = ""
    default_float: DType = field(default=F32)
    guard: Node | None = None

    @property
    def dtype(self) -> DType:
        """The dtype of the only or first result."""
        return self.dtypes[0]

    @property
    def shape(self) -> Shape:
        """The shape of the only or first result."""
        return self.shapes[0]

    def arg(self, position: int, name: str = "", default: Argument = None) -> Argument:
        """Return an argument by position or name, or `default`."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)

    def tensor(self, position: int, name: str = "") -> Node:
        """Return an argument that must be a tensor or a number, as a node."""
        value = self.arg(position, name)
        if isinstance(value, Node):
            return value
        if isinstance(value, bool | int | float):
            return constant(value, self.default_float)
        raise Refused(f"argument {position} is {value!r}, not a tensor")

    def tensors(self, position: int) -> list[Node]:
        """Return an argument that is a list of tensors."""
        value = self.arg(position)
        if not isinstance(value, list | tuple):
            raise Refused(f"argument {position} is {value!r}, not a list of tensors")
        return [v for v in value if isinstance(v, Node)]

    def integer(self, position: int, name: str = "", default: int | None = None) -> int:
        """Return an argument that must be a static integer."""
        value = self.arg(position, name, default)
        if isinstance(value, int):
            return int(value)
        raise Refused(f"argument {name or position} must be a number known before the loop runs")

    def integers(self, position: int, name: str = "") -> tuple[int, ...] | None:
        """Return an argument that is an integer, a list of them, or absent."""
        value = self.arg(position, name)
        if value is None:
            return None
        if isinstance(value, int):
            return (int(value),)
        if isinstance(value, list | tuple) and all(isinstance(v, int) for v in value):
            return tuple(int(v) for v in value if isinstance(v, int))
        raise Refused(f"argument {name or position} must be numbers known before the loop runs")

    def flag(self, position: int, name: str, *, default: bool = False) -> bool:
        """Return an argument that is a truth value."""
        return bool(self.arg(position, name, default))


Rule: TypeAlias = Callable[[Call], Node | tuple[Node, ...]]

rules: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule under canonical names (``"namespace.operation.overload"``)."""

    def register(function: Rule) -> Rule:
        for name in names:
            if name in rules:
                raise ValueError(f"two rules for {name}")
            rules[name] = function
        return function

    return register


def canonical_name(name: str) -> str:
    """Return the name under which an operation is registered: views and their copies are one."""
    parts = name.split(".")
    if (
        len(parts) == 3
        and parts[1].endswith("_copy")
        and parts[1] not in ("_to_copy", "lift_fresh_copy", "index_copy")
    ):
        parts[1] = parts[1].removesuffix("_copy")
    return ".".join(parts)


def find_rule(name: str) -> Rule | None:
    """Return the rule for a canonical name, if there is one."""
    return rules.get(name)


# --- Node constructors that rules share; they simplify where that is free ---


def constant(value: bool | float, default_float: DType = F32) -> Constant:
    """Return a number as a 0-d node."""
    dtype = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else default_float
    return Constant(dtype=dtype, shape=(), value=value)


def wrap_dim(dim: int, rank: int) -> int:
    """Return `dim` counted from the front."""
    return dim + rank if dim < 0 else dim


def cast(node: Node, dtype: DType) -> Node:
    """Return `node` converted to `dtype`."""
    if node.dtype == dtype:
        return node
    return Map(
        dtype=dtype, shape=node.shape, fn="cast", args=(node,), compute=dtype, origin=node.origin
    )


def broadcast(node: Node, shape: Shape) -> Node:
    """Return `node` repeated to `shape`."""
    if node.shape == shape:
        return node
    return Broadcast(dtype=node.dtype, shape=shape, arg=node, origin=node.origin)


def reshape(node: Node, shape: Shape) -> Node:
    """Return `node` under another shape."""
    if node.shape == shape:
        return node
    while isinstance(node, Reshape):
        node = node.arg
    if node.shape == shape:
        return node
    return Reshape(dtype=node.dtype, shape=shape, arg=node, origin=node.origin)


def permute(node: Node, order: tuple[int, ...]) -> Node:
    """Return `node` with its dimensions reordered."""
    if order == tuple(range(len(order))):
        return node
    shape = tuple(node.shape[d] for d in order)
    return Permute(dtype=node.dtype, shape=shape, arg=node, order=order, origin=node.origin)


def take_slice(node: Node, dim: int, start: int, length: int, step: int = 1) -> Node:
    """Return `length` elements of `node` along `dim`."""
    if (start, step, length) == (0, 1, node.shape[dim]):
        return node
    rank = len(node.shape)
    shape = tuple(length if d == dim else n for d, n in enumerate(node.shape))
    starts = tuple(start if d == dim else 0 for d in range(rank))
    steps = tuple(step if d == dim else 1 for d in range(rank))
    return Slice(
        dtype=node.dtype, shape=shape, arg=node, starts=starts, steps=steps, origin=node.origin
    )


def harmless(call: Call, value: Node, instead: int) -> Node:
    """Return `value`, or `instead` where the branch that `call` is in is not taken.

    Both branches of a cond are computed; what could fail must not do so in the other one.
    """
    if call.guard is None:
        return value
    neutral = Constant(dtype=value.dtype, shape=(), value=instead)
    return Map(
        dtype=value.dtype,
        shape=value.shape,
        fn="where",
        args=(call.guard, value, neutral),
        compute=value.dtype,
        origin=call.origin,
    )


def mapped(call: Call, fn: str, *args: Node, compute: DType, dtype: DType | None = None) -> Map:
    """Return a pointwise node with the result of `call`, computed in `compute`."""
    if SCALAR[fn].fails and compute.kind == "i":
        args = (args[0], harmless(call, args[1], 1))
    return Map(
        dtype=dtype or call.dtype,
        shape=call.shape,
        fn=fn,
        args=args,
        compute=compute,
        origin=call.origin,
    )


_RANK = {"b": 0, "i": 1, "f": 2}


def promote(operands: tuple[Argument, ...], default_float: DType) -> DType:
    """Return the dtype in which torch computes on `operands`.

    Tensors with dimensions rule over 0-d ones, and those over Python numbers; a lower class only
    counts where its kind (bool, integer, float) is the higher one.
    """
    classes: list[list[DType]] = [[], [], []]
    for value in operands:
        if isinstance(value, Node):
            classes[0 if value.shape else 1].append(value.dtype)
        elif isinstance(value, bool | int | float):
            classes[2].append(constant(value, default_float).dtype)
    result: DType | None = None
    for members in classes:
        found: DType | None = None
        for dtype in members:
            found = dtype if found is None else _join(found, dtype)
        if found is None:
            continue
        if result is None or _RANK[found.kind] > _RANK[result.kind]:
            result = found
    return result or default_float


def _join(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if a.kind != b.kind:
        return a if _RANK[a.kind] > _RANK[b.kind] else b
    if "uint8" in (a.name, b.name):  # unsigned beside signed: the next signed type that holds both
        other = b if a.name == "uint8" else a
        return BY_NAME["int16"] if other.size == 1 else other
    return a if a.size > b.size else b
