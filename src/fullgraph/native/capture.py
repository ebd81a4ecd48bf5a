"""A loop body, as Dynamo hands it over, becomes loop IR.

What Dynamo captures is one step: it never sees the number of steps. Marks show which values of the
captured graph are the carry, the row of xs, the new carry and the y; a mark also cuts aliasing, so
that one tensor used for two leaves is two values of the loop. torch then removes mutation and
decomposes what the operation table has no rule for.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fullgraph.errors import GradientRefusedError
from fullgraph.native.convert import Converter
from fullgraph.native.decompositions import decompositions
from fullgraph.native.ir import InvalidIRError, Loop
from fullgraph.native.refusals import INSTEAD_OF_NUMBER, READ_AS_NUMBER, origin_of, refusal
from fullgraph.native.tensor_index import write
from fullgraph.native.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "DATA_DEPENDENT",
    "Captured",
    "Marked",
    "StepRunner",
    "example_of",
    "lower",
    "mark",
    "read_marks",
]

_LIBRARY = torch.library.Library("fullgraph", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("mark(Tensor value, str role, int index) -> Tensor")  # type: ignore[no-untyped-call]


def _fake_mark(value: torch.Tensor, role: str, index: int) -> torch.Tensor:
    del role, index
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)


def _copy_mark(value: torch.Tensor, role: str, index: int) -> torch.Tensor:
    del role, index
    return value.clone(memory_format=torch.contiguous_format)


def refuse_gradient(ctx: object, *grads: object) -> None:
    """Raise where somebody differentiates through a native loop.

    Raises
    ------
    GradientRefusedError
        Always.
    """
    del ctx, grads
    raise GradientRefusedError(
        "gradients do not flow through a native loop inside torch.compile, or inside another loop. "
        "Call it outside of them, under torch.no_grad(), or run it eagerly with "
        "use_loop_adapter(namespace, None)"
    )


torch.library.register_fake("fullgraph::mark", _fake_mark, lib=_LIBRARY)
torch.library.register_autograd("fullgraph::mark", refuse_gradient, lib=_LIBRARY)
_LIBRARY.impl("mark", _copy_mark, "CPU")  # type: ignore[no-untyped-call]
_MARK = torch.ops.fullgraph.mark.default
# Dead code elimination must keep the marks of inputs that a body ignores.
torch.fx.node.has_side_effect(_MARK)
torch.fx.node.has_side_effect(torch.ops.fullgraph.mark)


def mark(value: torch.Tensor, role: str, index: int) -> torch.Tensor:
    """Mark a leaf while a body is captured.

    Parameters
    ----------
    value : Tensor
    role : str
        ``"carry"``, ``"x"``, ``"new"`` or ``"y"``; in a while loop ``"going"`` for its condition,
        and ``"steps"`` for the place of the number of steps among the results.
    index : int
        Number of the leaf.
    """
    result: torch.Tensor = torch.ops.fullgraph.mark(value, role, index)
    return result


@dataclass(frozen=True)
class Captured:
    """A loop, and where its inputs are among the arguments of the captured graph.

    Attributes
    ----------
    loop : Loop
        The loop; its carry and xs are in the order of their marks.
    carry, consts : tuple of int
        Positions in the graph's arguments; `consts` only those of the first inputs of
        ``loop.consts``, the rest are `constants`.
    constants : list of Tensor
        Tensors the body creates from Python values, kept alive here.
    outputs : tuple of int
        For each output of the graph its number among new carry and ys.
    sources : tuple of str
        Python expressions of `carry` and `consts` over the caller's frame (``L``, ``G``), or
        nothing where Dynamo has no plain expression for one of them.
    """

    loop: Loop
    carry: tuple[int, ...]
    consts: tuple[int, ...]
    constants: list[torch.Tensor]
    outputs: tuple[int, ...]
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marked:
    """A captured step and what its marks say.

    Attributes
    ----------
    graph : GraphModule
        What Dynamo captured.
    carry, xs : list of Node
        The marks of what goes in.
    results : list of (role, index)
        Keys of what comes out: the new carry, then ys, then the condition of a while loop.
    arguments : list of Node
        The placeholders.
    """

    graph: torch.fx.GraphModule
    carry: list[torch.fx.Node]
    xs: list[torch.fx.Node]
    results: list[tuple[str, int]]
    arguments: list[torch.fx.Node]

    @property
    def going(self) -> bool:
        """Whether it is a step of a while loop."""
        return ("going", 0) in self.results

    @property
    def step(self) -> Marked:
        """The step without the condition."""
        return replace(self, results=[key for key in self.results if key[0] != "going"])


def read_marks(gm: torch.fx.GraphModule) -> Marked:
    """Return what the marks of a captured step say."""
    marks: dict[Any, torch.fx.Node] = {
        (n.args[1], n.args[2]): n for n in gm.graph.nodes if _is_mark(n)
    }
    results = [key for key in marks if key[0] in _RESULTS]
    results.sort(key=lambda key: (_RESULTS.index(key[0]), key[1]))
    return Marked(
        gm,
        [marks["carry", i] for i in range(_count(marks, "carry"))],
        [marks["x", i] for i in range(_count(marks, "x"))],
        results,
        [n for n in gm.graph.nodes if n.op == "placeholder"],
    )


def lower(gm: torch.fx.GraphModule) -> Captured:
    """Return the loop of a captured step.

    Raises
    ------
    UnsupportedBodyError
        Something has no rule, with operation, shape and line.
    InPlaceUpdateError
        The body writes into its carry or x.
    """
    marked = read_marks(gm)
    placeholders = marked.arguments
    for node in placeholders:
        _check_input(node)
    carry = marked.carry
    position = {n: i for i, n in enumerate(placeholders)}
    for node in carry:
        if node.args[0] not in position:
            raise InvalidIRError(f"{node} marks {node.args[0]}, which is no argument")
    traced = _step_graph(marked)
    builder = Converter(traced)
    loop = builder.loop(len(carry), len(marked.xs), going=marked.going)
    verify(loop)
    return Captured(
        loop,
        tuple(position[n.args[0]] for n in carry),  # type: ignore[index]
        tuple(builder.used_consts),
        builder.constants,
        _outputs(gm, len(carry)),
        _sources([*(n.args[0] for n in carry), *(placeholders[i] for i in builder.used_consts)]),
    )


_RESULTS = ("new", "y", "going")  # of a step, in this order
# What follows the new carry among the results: ys, or what a while loop says of itself.
_PLACES = {"y": 0, "steps": 0, "going": 1}
_PLAIN_SOURCE = re.compile(r"""[LG](\['\w+'\]|\[\d+\]|\.__closure__|\.cell_contents)+""")


def _sources(nodes: list[Any]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        source = getattr(node.meta.get("grapharg"), "source", None)
        name = getattr(source, "name", "")
        text = name() if callable(name) else name
        if not isinstance(text, str) or not _PLAIN_SOURCE.fullmatch(text):
            return ()
        names.append(text)
    return tuple(names)


def _is_mark(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and node.target in (_MARK, torch.ops.fullgraph.mark)


def _count(marks: dict[Any, torch.fx.Node], role: str) -> int:
    return sum(1 for found, _ in marks if found == role)


def _check_input(node: torch.fx.Node) -> None:
    value = node.meta.get("example_value")
    source = str(getattr(node.meta.get("grapharg"), "source", node.name))
    if not isinstance(value, torch.Tensor):
        raise refusal(
            f"a closed-over value of type {type(value).__name__}",
            "",
            "Close over tensors, numbers and functions of them",
        )
    if value.device.type != "cpu":
        raise refusal(f"a tensor is on {value.device}", "", "Native loops run on the CPU")
    if value.is_neg():
        raise refusal("a closed-over tensor is lazily negated", "", "Call resolve_neg() on it")
    if value.layout is not torch.strided:
        raise refusal(f"a tensor is {value.layout}", "", f"Make {source} dense before the loop")


def _outputs(gm: torch.fx.GraphModule, carries: int) -> tuple[int, ...]:
    output = next(n for n in gm.graph.nodes if n.op == "output")
    result: list[int] = []
    for value in output.args[0]:
        if not (isinstance(value, torch.fx.Node) and _is_mark(value)):
            raise refusal(
                "it changes Python state outside of it",
                "",
                "Return what should be kept as carry or y",
            )
        role, index = value.args[1], value.args[2]
        assert isinstance(index, int)
        result.append(index if role == "new" else carries + _PLACES[str(role)] + index)
    return tuple(result)


# torch's exceptions for values that a capture cannot know, by name: their classes are private.
DATA_DEPENDENT = ("DynamicOutputShapeException", "DataDependentOutputException")


class StepRunner(torch.fx.Interpreter):
    """Runs a captured step on given carry and rows, and collects what is marked as result."""

    def __init__(self, gm: torch.fx.GraphModule, given: dict[torch.fx.Node, torch.Tensor]) -> None:
        super().__init__(gm)
        self.given = given
        self.found: dict[tuple[str, int], torch.Tensor] = {}
        self.current: torch.fx.Node | None = None

    def run_node(self, n: torch.fx.Node) -> Any:
        """Take marked inputs from what is given, note marked results."""
        self.current = n
        if n in self.given:
            return self.given[n]
        if _is_mark(n):
            value = self.env[n.args[0]]  # type: ignore[index]
            self.found[n.args[1], n.args[2]] = value  # type: ignore[index]
            return value
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call what a node calls; an index of a write may be a tensor."""
        if target is operator.setitem:
            return write(*args)
        return super().call_function(target, args, kwargs)


def _step_graph(marked: Marked) -> torch.fx.GraphModule:
    """Return the step as a functional ATen graph of carry, xs and the graph's own arguments."""
    gm, placeholders = marked.graph, marked.arguments
    inputs = [*marked.carry, *marked.xs]

    runners: list[StepRunner] = []

    def step(*values: torch.Tensor) -> list[torch.Tensor]:
        given = dict(zip([*inputs, *placeholders], values, strict=True))
        runner = StepRunner(gm, given)
        runners.append(runner)
        runner.run(*values[len(inputs) :])
        return [runner.found[key] for key in marked.results]

    with (
        torch._guards.tracing(None),  # noqa: SLF001
        fake_mode(),
        torch.fx.traceback.preserve_node_meta(),
        torch.no_grad(),
    ):
        examples = [example_of(n) for n in (*inputs, *placeholders)]
        try:
            traced = functional_graph(step, examples)
            if _writes_into_own_values(traced):
                traced = functional_graph(step, examples, recorded=True)
        except RuntimeError as error:
            if type(error).__name__ not in DATA_DEPENDENT:
                raise
            current = runners[-1].current
            origin = origin_of(current) if current is not None else ""
            name = str(error).splitlines()[0]
            if "_local_scalar_dense" in name:
                raise refusal(READ_AS_NUMBER, origin, INSTEAD_OF_NUMBER) from None
            raise refusal(
                f"{name} depends on data, in the shape of its result",
                origin,
                "Select with torch.where and masks of fixed shape",
            ) from None
    _check_writes(traced, len(inputs))
    traced.graph.eliminate_dead_code()
    return traced


def functional_graph(
    function: Callable[..., Any], examples: Sequence[torch.Tensor], *, recorded: bool = False
) -> torch.fx.GraphModule:
    """Return the ATen graph of a function of tensors without mutation and views.

    Some of torch's composites (``rnn_tanh_cell``) write in place below functionalization, which
    then does not see it. A graph `recorded` first has none; that costs a second trace.
    """
    settings: dict[str, Any] = {"tracing_mode": "fake", "_allow_non_fake_inputs": True}
    if recorded:
        function = make_fx(function, **settings)(*examples)
    with torch.no_grad():
        traced = make_fx(
            torch.func.functionalize(function, remove="mutations_and_views"),
            decomposition_table=decompositions(),
            **settings,
        )(*examples)
    assert isinstance(traced, torch.fx.GraphModule)
    return traced


def _writes_into_own_values(traced: torch.fx.GraphModule) -> bool:
    return any(
        node.target is torch.ops.aten.copy_.default and node.args[0].op != "placeholder"
        for node in traced.graph.nodes
    )


def fake_mode() -> Any:
    """Return the mode in which steps are traced: tensors without values, shapes that are known."""
    # torch's while operator asks for an environment of symbols; there are to be none.
    symbols = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    return torch._subclasses.fake_tensor.FakeTensorMode(  # noqa: SLF001
        allow_non_fake_inputs=True, shape_env=symbols, static_shapes=True
    )


def example_of(node: torch.fx.Node) -> torch.Tensor:
    """Return a tensor like the value of a node, without its gradient."""
    value = node.meta["example_value"]
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)


def _check_writes(traced: torch.fx.GraphModule, loaned: int) -> None:
    """Refuse bodies that write into what they were handed or close over."""
    placeholders = [n for n in traced.graph.nodes if n.op == "placeholder"]
    for node in traced.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default:
            target = node.args[0]
            if target in placeholders[:loaned]:
                from fullgraph.loops._carry import in_place_error

                raise in_place_error()
            raise refusal(
                "it writes into a tensor that it closes over",
                origin_of(node),
                "Make that tensor part of the carry",
            )
