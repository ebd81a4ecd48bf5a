"""A functional ATen graph becomes loop IR, operation by operation."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from fullgraph.native.dtypes import BOOL, BY_NAME, F32, DType
from fullgraph.native.ir import Input, InvalidIRError, Loop, Node, Shape
from fullgraph.native.ops import Argument, Call, Refused, canonical_name, find_rule
from fullgraph.native.ops._registry import cast as to_dtype
from fullgraph.native.refusals import origin_of, refusal
from fullgraph.native.subgraphs import known_loop, of_subgraphs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Converter", "ir_dtype", "origin_of", "refusal"]

# Checks of results that generated code makes itself.
_CHECKS: Final = ("aten._linalg_check_errors.default",)
_NESTED: Final = "fullgraph.nested_loop.default"


def ir_dtype(dtype: torch.dtype, what: str, origin: str = "") -> DType:
    """Return the IR's name of a torch dtype, or refuse it."""
    name = str(dtype).removeprefix("torch.")
    found = BY_NAME.get(name)
    if found is None:
        raise refusal(
            f"{what} is {name}",
            origin,
            f"native loops compute in {', '.join(BY_NAME)}; convert before the loop",
        )
    return found


class Converter:
    """Converts one graph; loops and branches inside it get a converter of their own.

    Parameters
    ----------
    graph : GraphModule
        Placeholders are the loop's inputs, the output is a flat list.
    guard : Node, optional
        Where the graph is a branch: whether it is taken. What could fail is made harmless where it
        is not.
    nested : mapping of int to Loop, optional
        Loops by the keys that the graph's own operator for nested loops names.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        guard: Node | None = None,
        nested: Mapping[int, Loop] | None = None,
    ) -> None:
        self.graph = graph
        self.guard = guard
        self.loops = nested or {}
        self.values: dict[torch.fx.Node, Any] = {}
        self.constants: list[torch.Tensor] = []
        self.used_consts: list[int] = []
        self._inputs: list[Input] = []
        name = str(torch.get_default_dtype()).removeprefix("torch.")
        self.default_float = BY_NAME.get(name, F32)

    def loop(self, carry: int, xs: int, *, going: bool = False) -> Loop:
        """Return the graph as a loop: its first inputs are `carry`, then `xs`, then constants.

        With `going` its last result is the condition of a while loop.
        """
        rest = len(self._nodes("placeholder")) - carry - xs
        inputs, results = self.values_of([("carry", carry), ("x", xs), ("const", rest)])
        found = cast("list[Node]", results)
        condition = to_dtype(found.pop(), BOOL) if going else None
        return Loop(
            carry=tuple(n for n in inputs if n.role == "carry"),
            xs=tuple(n for n in inputs if n.role == "x"),
            consts=tuple(n for n in inputs if n.role == "const"),
            carry_out=tuple(found[:carry]),
            ys=tuple(found[carry:]),
            going=condition,
        )

    def while_loop(self, cond: Converter, carry: int) -> Loop:
        """Return the graph as the body of a while loop with a condition of the same inputs."""
        inputs: list[Input] = []
        both = zip(self._nodes("placeholder"), cond._nodes("placeholder"), strict=True)
        for i, (node, other) in enumerate(both):
            role, index = "carry", i
            if i >= carry:
                if not node.users and not other.users:
                    continue
                role, index = "const", len(self.used_consts)
                self.used_consts.append(i - carry)
            inputs.append(self._input(node, role, index))
            cond.values[other] = inputs[-1]
        results = cast("list[Node]", self._results(inputs))
        cond.constants, cond.used_consts = self.constants, self.used_consts
        going = cast("list[Node]", cond._results(inputs))[0]
        return Loop(
            carry=tuple(n for n in inputs if n.role == "carry"),
            xs=(),
            consts=tuple(n for n in inputs if n.role == "const"),
            carry_out=tuple(results),
            ys=(),
            going=to_dtype(going, BOOL),
        )

    def values_of(self, groups: Sequence[tuple[str, int]]) -> tuple[list[Input], list[Node | None]]:
        """Return the graph's inputs, in groups of a role each, and its results.

        Constants that nothing reads are left out; `used_consts` says which are there.
        """
        inputs: list[Input] = []
        roles = [(role, i) for role, count in groups for i in range(count)]
        for (role, index), node in zip(roles, self._nodes("placeholder"), strict=True):
            if role != "const":
                inputs.append(self._input(node, role, index))
            elif node.users:
                inputs.append(self._input(node, role, len(self.used_consts)))
                self.used_consts.append(index)
        return inputs, self._results(inputs)

    def inline(self, arguments: Sequence[Node]) -> list[Node]:
        """Return the results of the graph for given arguments."""
        for node, value in zip(self._nodes("placeholder"), arguments, strict=True):
            self.values[node] = value
        inputs: list[Input] = []
        results = self._results(inputs)
        if inputs:
            raise refusal(
                "a tensor made from Python values in a branch of cond",
                "",
                "Make it outside of the branch",
            )
        return cast("list[Node]", results)

    def child(self, node: Any, guard: Node | None = None) -> Converter:
        """Return a converter for a graph that an operator of the graph refers to."""
        return Converter(self._subgraph(node), guard, self.loops)

    def _subgraph(self, node: Any) -> torch.fx.GraphModule:
        graph = getattr(self.graph, str(node.target))
        assert isinstance(graph, torch.fx.GraphModule)
        return graph

    def hoisted(self, constants: list[torch.Tensor]) -> list[Node]:
        """Make constants of a loop inside the graph closed-over tensors of this one."""
        leaves: list[Node] = []
        for value in constants:
            leaf = self._constant_input(value)
            self._inputs.append(leaf)
            leaves.append(leaf)
        return leaves

    def _nodes(self, op: str) -> list[torch.fx.Node]:
        return [n for n in self.graph.graph.nodes if n.op == op]

    def _results(self, inputs: list[Input]) -> list[Node | None]:
        self._inputs = inputs
        for node in self._nodes("get_attr"):
            value = getattr(self.graph, str(node.target))
            if isinstance(value, torch.Tensor):
                inputs.append(self._constant(node, value))
        for node in self._nodes("call_function"):
            self.values[node] = self._convert(node)
        output = self._nodes("output")[0].args[0]
        nodes = output if isinstance(output, (list, tuple)) else [output]
        return [None if n is None else self.values[n] for n in nodes]  # type: ignore[index]

    def _input(self, node: torch.fx.Node, role: str, index: int) -> Input:
        value = node.meta["val"]
        dtype = ir_dtype(
            value.dtype,
            {"carry": "a carry leaf", "x": "a leaf of xs"}.get(role, "a closed-over tensor"),
        )
        leaf = Input(dtype=dtype, shape=tuple(value.shape), role=role, index=index)
        self.values[node] = leaf
        return leaf

    def _constant(self, node: torch.fx.Node, value: torch.Tensor) -> Input:
        leaf = self._constant_input(_real_constant(value))
        self.values[node] = leaf
        return leaf

    def _constant_input(self, real: torch.Tensor) -> Input:
        leaf = Input(
            dtype=ir_dtype(real.dtype, "a constant"),
            shape=tuple(real.shape),
            role="const",
            index=len(self.used_consts) + len(self.constants),
        )
        self.constants.append(real.contiguous())
        return leaf

    def _convert(self, node: torch.fx.Node) -> Any:
        if node.target is operator.getitem:
            source, index = node.args
            return self.values[source][index]  # type: ignore[index]
        subgraphs = of_subgraphs(node)
        if subgraphs is not None:
            return subgraphs(self, node)
        name = canonical_name(str(node.target))
        if name == _NESTED:
            return known_loop(self, node)
        if name in _CHECKS:
            return None
        origin = origin_of(node)
        dtypes, shapes = _result_types(node, name, origin)
        rule = find_rule(name)
        if rule is None:
            raise refusal(f"{name} of {_shapes(node)}", origin, _advice(name))
        call = Call(
            name=name,
            args=tuple(self.argument(a) for a in node.args),
            kwargs={k: self.argument(v) for k, v in node.kwargs.items()},
            dtypes=dtypes,
            shapes=shapes,
            origin=origin,
            default_float=self.default_float,
            guard=self.guard,
        )
        try:
            result = rule(call)
        except Refused as reason:
            raise refusal(f"{name} of {_shapes(node)}: {reason}", origin, _advice(name)) from None
        _check_result(name, result, dtypes, shapes)
        return result

    def argument(self, value: Any) -> Argument:
        """Return an operand of an operation: nodes, numbers, lists of them, names of dtypes."""
        if isinstance(value, torch.fx.Node):
            found: Argument = self.values[value]
            return found
        if isinstance(value, (list, tuple)):
            return [self.argument(v) for v in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, torch.dtype):
            return str(value)
        return str(value)


def _real_constant(value: torch.Tensor) -> torch.Tensor:
    """Return the tensor behind a constant of the traced graph."""
    real = getattr(value, "constant", None) if type(value) is not torch.Tensor else value
    if real is None:
        raise refusal(
            "a tensor made from Python values in the body",
            "",
            "Make it before the loop and close over it",
        )
    assert isinstance(real, torch.Tensor)
    return real.detach()


def _result_types(
    node: torch.fx.Node, name: str, origin: str
) -> tuple[tuple[DType, ...], tuple[Shape, ...]]:
    value = node.meta.get("val")
    values: Sequence[Any] = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(v, torch.Tensor) for v in values):
        raise refusal(f"{name}, which gives no tensor", origin, _advice(name))
    return (
        tuple(ir_dtype(v.dtype, f"the result of {name}", origin) for v in values),
        tuple(tuple(int(n) for n in v.shape) for v in values),
    )


def _check_result(
    name: str,
    result: Node | tuple[Node, ...],
    dtypes: tuple[DType, ...],
    shapes: tuple[Shape, ...],
) -> None:
    nodes = result if isinstance(result, tuple) else (result,)
    for node, dtype, shape in zip(nodes, dtypes, shapes, strict=True):
        if (node.dtype, node.shape) != (dtype, shape):
            raise InvalidIRError(
                f"the rule of {name} gave {node.dtype}{list(node.shape)} for {dtype}{list(shape)}"
            )


def _shapes(node: torch.fx.Node) -> str:
    """Return dtypes and shapes of the operands, for messages."""
    words = []
    for a in node.all_input_nodes:
        value = a.meta.get("val")
        if isinstance(value, torch.Tensor):
            words.append(f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
    return ", ".join(words) or "no operands"


_RANDOM = re.compile(r"rand|bernoulli|normal|multinomial|dropout|poisson|exponential|uniform")


def _advice(name: str) -> str:
    """Return what to write instead of an operation that has no rule."""
    if _RANDOM.search(name):
        return (
            "Randomness inside a body is refused: draw all numbers before the loop and pass "
            "them as xs"
        )
    if "complex" in name or "fft" in name:
        return "Complex numbers are not supported: carry real and imaginary parts"
    if name.startswith("aten.linalg") or "linalg" in name:
        return "Compute it before the loop, or write it with solve, cholesky, inv or matmul"
    if "sort" in name or "topk" in name or "nonzero" in name or "unique" in name:
        return "Results whose order or size depends on the data do not fit; use where and masks"
    return "Write it with operations that have a rule (docs: native loops), or use another adapter"
