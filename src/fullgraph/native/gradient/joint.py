"""One step of a loop and its vector-Jacobian product, traced together.

torch differentiates the captured step itself: `torch.autograd.grad` runs under the tracer, so that
derivative formulas, ties of maxima, ``detach`` and ``no_grad`` inside a body mean what they mean in
eager torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from fullgraph.errors import GradientRefusedError
from fullgraph.native.capture import (
    DATA_DEPENDENT,
    Marked,
    StepRunner,
    example_of,
    fake_mode,
    functional_graph,
)
from fullgraph.native.convert import Converter, origin_of, refusal
from fullgraph.native.gradient.nested import NestedGradients, nested_wants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fullgraph.native.ir import Input, Node

__all__ = ["Activity", "GraphStep", "Joint", "MarkedStep", "Step", "find_activity", "trace_joint"]


@dataclass(frozen=True)
class Activity:
    """Through which leaves derivatives flow.

    Attributes
    ----------
    carry : tuple of bool
        Leaves of the carry that depend on something differentiated, in some step.
    xs, arguments : tuple of bool
        What derivatives are wanted for: leaves of a row, and arguments of the captured graph.
    new, ys : tuple of bool
        Results that depend on them; of `new` those whose `carry` does.
    init : tuple of bool
        Leaves of the first carry for which derivatives are wanted.
    forms : tuple of (shape, dtype)
        Of the results.
    """

    carry: tuple[bool, ...]
    xs: tuple[bool, ...]
    arguments: tuple[bool, ...]
    new: tuple[bool, ...]
    ys: tuple[bool, ...]
    init: tuple[bool, ...]
    forms: tuple[tuple[tuple[int, ...], torch.dtype], ...]

    @property
    def any(self) -> bool:
        """Whether anything is differentiated at all."""
        return any((*self.init, *self.xs, *self.arguments)) and any((*self.new, *self.ys))


@dataclass(frozen=True)
class Joint:
    """A step and its vector-Jacobian product as one graph of the loop IR.

    Attributes
    ----------
    carry, xs, consts : tuple of Input
        As those of a loop; the place of a constant is ``const_places[index]`` among the arguments
        of the captured graph, and behind them among `constants`.
    active : tuple of bool
        Leaves of the carry through which derivatives flow.
    ct_new, ct_ys : tuple of (Input or None)
        Cotangents of the new carry and of y, where derivatives flow.
    new, ys : tuple of Node
        What the step gives.
    ct_carry, ct_xs, ct_consts : tuple of (Node or None)
        The vector-Jacobian product; None where it is zero or not wanted. `ct_consts` goes by
        argument of the captured graph.
    constants : list of Tensor
        Tensors that the step creates from Python values.
    """

    carry: tuple[Input, ...]
    xs: tuple[Input, ...]
    consts: tuple[Input, ...]
    const_places: tuple[int, ...]
    active: tuple[bool, ...]
    ct_new: tuple[Input | None, ...]
    ct_ys: tuple[Input | None, ...]
    new: tuple[Node, ...]
    ys: tuple[Node, ...]
    ct_carry: tuple[Node | None, ...]
    ct_xs: tuple[Node | None, ...]
    ct_consts: tuple[Node | None, ...]
    constants: list[torch.Tensor]


class Step(Protocol):
    """One step of a loop on flat tensors, to be differentiated."""

    counts: tuple[int, int, int]  # leaves of the carry, leaves of a row, tensors closed over
    wants: tuple[bool, ...]  # of each of them, whether derivatives are wanted
    nested: NestedGradients

    @property
    def current(self) -> str:
        """The user's line that is running."""

    def examples(self) -> list[torch.Tensor]:
        """Return tensors like carry, row and tensors closed over."""

    def run(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the new carry, then ys."""


def _example_wants(node: Any) -> bool:
    value = node.meta["example_value"]
    return bool(value.requires_grad) and value.is_floating_point()


class _Runner(StepRunner):
    """Runs a step whose nested loops are differentiated by us, not by torch."""

    def __init__(
        self, gm: torch.fx.GraphModule, given: Any, nested: NestedGradients, *, inside: bool
    ) -> None:
        super().__init__(gm, given)
        self.nested = nested
        self.inside = inside

    def run_node(self, n: torch.fx.Node) -> Any:
        """Take over nested loops that derivatives flow through."""
        if n.op == "call_function" and n.target is torch.ops.higher_order.scan:
            self.current = n
            values, _ = self.fetch_args_kwargs_from_env(n)
            if nested_wants(values, inside=self.inside):
                return self.nested.run(n, values)
        return super().run_node(n)


class MarkedStep:
    """A step as Dynamo captured it, with marks."""

    def __init__(self, marked: Marked) -> None:
        self.marked = marked
        self.inputs = [*marked.carry, *marked.xs]
        self.counts = len(marked.carry), len(marked.xs), len(marked.arguments)
        self.wants = tuple(
            _example_wants(n) for n in (*(n.args[0] for n in self.inputs), *marked.arguments)
        )
        self.nested = NestedGradients()
        self._runner: _Runner | None = None

    @property
    def current(self) -> str:
        """The user's line that is running."""
        node = self._runner.current if self._runner is not None else None
        return origin_of(node) if node is not None else ""

    def examples(self) -> list[torch.Tensor]:
        """Return tensors like the inputs."""
        return [example_of(n) for n in (*self.inputs, *self.marked.arguments)]

    def run(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the new carry, then ys."""
        nodes = [*self.inputs, *self.marked.arguments]
        given = dict(zip(nodes, values, strict=True))
        self._runner = runner = _Runner(self.marked.graph, given, self.nested, inside=False)
        runner.run(*values[len(self.inputs) :])
        return [runner.found[key] for key in self.marked.results]


class GraphStep:
    """A step that is a graph of its own: the body of torch's scan operator.

    Parameters
    ----------
    graph : GraphModule
        Of carry, row and tensors closed over; it returns a flat list of the new carry and ys.
    examples : list of Tensor
        Like its inputs; which of them require grad says what derivatives are wanted for.
    carry, xs : int
        How many of them are carry and row.
    """

    def __init__(
        self, graph: torch.fx.GraphModule, examples: Sequence[torch.Tensor], carry: int, xs: int
    ) -> None:
        self.graph = graph
        self.counts = carry, xs, len(examples) - carry - xs
        self.wants = tuple(t.requires_grad and t.is_floating_point() for t in examples)
        self.nested = NestedGradients()
        self._forms = [(tuple(t.shape), t.dtype) for t in examples]
        self._runner: _Runner | None = None

    @property
    def current(self) -> str:
        """The user's line that is running."""
        node = self._runner.current if self._runner is not None else None
        return origin_of(node) if node is not None else ""

    def examples(self) -> list[torch.Tensor]:
        """Return tensors like the inputs."""
        return [torch.empty(shape, dtype=dtype) for shape, dtype in self._forms]

    def run(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the new carry, then ys."""
        self._runner = runner = _Runner(self.graph, {}, self.nested, inside=True)
        return list(runner.run(*values))


def _leaves(values: Sequence[torch.Tensor], active: Sequence[bool]) -> list[torch.Tensor]:
    """Return the inputs of a step as leaves of the graph of autograd."""
    return [
        v.detach().requires_grad_() if wanted else v.detach()
        for v, wanted in zip(values, active, strict=True)
    ]


def find_activity(step: Step) -> Activity:
    """Return through which leaves derivatives flow, found by running the step on fake tensors."""
    n, m, _ = step.counts
    init, xs, arguments = step.wants[:n], step.wants[n : n + m], step.wants[n + m :]
    carry = init
    with torch._guards.tracing(None), fake_mode():  # noqa: SLF001
        while True:
            with torch.enable_grad():
                results = step.run(_leaves(step.examples(), (*carry, *xs, *arguments)))
            flows = tuple(r.requires_grad and r.is_floating_point() for r in results)
            grown = tuple(a or b for a, b in zip(carry, flows[:n], strict=True))
            if grown == carry:
                break
            carry = grown
    forms = tuple((tuple(r.shape), r.dtype) for r in results)
    return Activity(carry, xs, arguments, flows[:n], flows[n:], init, forms)


def trace_joint(step: Step, activity: Activity) -> Joint:
    """Return the step and its vector-Jacobian product.

    Raises
    ------
    UnsupportedBodyError
        An operation of the step, or of its derivative, has no rule.
    GradientRefusedError
        torch cannot differentiate the step.
    """
    n, m, k = step.counts
    active = (*activity.carry, *activity.xs, *activity.arguments)
    flows = (*activity.new, *activity.ys)

    def joint(*values: torch.Tensor) -> list[torch.Tensor | None]:
        leaves = _leaves(values[: n + m + k], active)
        with torch.enable_grad():
            results = step.run(leaves)
        found = torch.autograd.grad(
            [r for r, flow in zip(results, flows, strict=True) if flow],
            [leaf for leaf, wanted in zip(leaves, active, strict=True) if wanted],
            values[n + m + k :],
            allow_unused=True,
        )
        gradients = iter(found)
        return [*results, *(next(gradients) if wanted else None for wanted in active)]

    with torch._guards.tracing(None), fake_mode(), torch.fx.traceback.preserve_node_meta():  # noqa: SLF001
        examples = step.examples()
        for (shape, dtype), flow in zip(activity.forms, flows, strict=True):
            if flow:
                examples.append(torch.empty(shape, dtype=dtype))
        traced = _functional(joint, examples, step)
    builder = Converter(traced, nested=step.nested.loops)
    groups = [("carry", n), ("x", m), ("const", k)]
    groups += [("ct_new", sum(activity.new)), ("ct_y", sum(activity.ys))]
    inputs, outputs = builder.values_of(groups)

    def of(role: str) -> tuple[Input, ...]:
        return tuple(i for i in inputs if i.role == role)

    results, gradients = outputs[: n + len(activity.ys)], outputs[n + len(activity.ys) :]
    assert all(r is not None for r in results)
    return Joint(
        carry=of("carry"),
        xs=of("x"),
        consts=of("const"),
        const_places=tuple(builder.used_consts),
        active=activity.carry,
        ct_new=_spread(of("ct_new"), activity.new),
        ct_ys=_spread(of("ct_y"), activity.ys),
        new=tuple(r for r in results[:n] if r is not None),
        ys=tuple(r for r in results[n:] if r is not None),
        ct_carry=tuple(gradients[:n]),
        ct_xs=tuple(gradients[n : n + m]),
        ct_consts=tuple(gradients[n + m :]),
        constants=builder.constants,
    )


def _spread(inputs: tuple[Input, ...], flows: tuple[bool, ...]) -> tuple[Input | None, ...]:
    rest: Iterator[Input] = iter(inputs)
    return tuple(next(rest) if flow else None for flow in flows)


def _functional(joint: Any, examples: list[torch.Tensor], step: Step) -> torch.fx.GraphModule:
    """Trace the derivative first, as torch records it, and then without mutation and views."""
    try:
        traced = functional_graph(joint, examples, recorded=True)
    except RuntimeError as error:
        origin = step.current
        said = str(error).splitlines()[0]
        if type(error).__name__ in DATA_DEPENDENT:
            raise refusal(
                f"{said} depends on data, in its shape or as a Python value",
                origin,
                "Select with torch.where and masks of fixed shape",
            ) from None
        at = f" at {origin}" if origin else ""
        raise GradientRefusedError(
            f"the body cannot be differentiated{at}: {said}. Detach what needs no gradient, or run "
            "the loop eagerly with use_loop_adapter(namespace, None)"
        ) from error
    traced.graph.eliminate_dead_code()
    return traced
