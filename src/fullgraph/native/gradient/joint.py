"""One step of a loop and its vector-Jacobian product, traced together.

torch differentiates the captured step itself: `torch.autograd.grad` runs under the tracer, so that
derivative formulas, ties of maxima, ``detach`` and ``no_grad`` inside a body mean what they mean in
eager torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import GradientRefusedError
from fullgraph.native.capture import (
    DATA_DEPENDENT,
    Marked,
    StepRunner,
    example_of,
    functional_graph,
)
from fullgraph.native.convert import Converter, origin_of, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fullgraph.native.ir import Input, Node

__all__ = ["Activity", "Joint", "find_activity", "trace_joint"]


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
    """

    carry: tuple[bool, ...]
    xs: tuple[bool, ...]
    arguments: tuple[bool, ...]
    new: tuple[bool, ...]
    ys: tuple[bool, ...]
    init: tuple[bool, ...]

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


def _wants(node: torch.fx.Node) -> bool:
    value = node.meta["example_value"]
    return bool(value.requires_grad) and value.is_floating_point()


def _modes() -> Any:
    return torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)  # noqa: SLF001


class _Differentiated:
    """Runs a marked step with autograd on."""

    def __init__(self, marked: Marked) -> None:
        self.marked = marked
        self.inputs = [*marked.carry, *marked.xs]
        self.current: torch.fx.Node | None = None

    def examples(self) -> list[torch.Tensor]:
        return [example_of(n) for n in (*self.inputs, *self.marked.arguments)]

    def run(
        self, values: Sequence[torch.Tensor], active: Sequence[bool]
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Return what the step gives, and the inputs as leaves of the graph of autograd."""
        leaves = [
            v.detach().requires_grad_() if wanted else v
            for v, wanted in zip(values, active, strict=True)
        ]
        nodes = [*self.inputs, *self.marked.arguments]
        runner = StepRunner(self.marked.graph, dict(zip(nodes, leaves, strict=True)))
        try:
            with torch.enable_grad():
                runner.run(*leaves[len(self.inputs) :])
        finally:
            self.current = runner.current
        return [runner.found[key] for key in self.marked.results], leaves


def find_activity(marked: Marked) -> Activity:
    """Return through which leaves derivatives flow, found by running the step on fake tensors."""
    step = _Differentiated(marked)
    arguments = tuple(_wants(n) for n in marked.arguments)
    init = tuple(_wants(n.args[0]) for n in marked.carry)  # type: ignore[arg-type]
    xs = tuple(_wants(n.args[0]) for n in marked.xs)  # type: ignore[arg-type]
    carry, n = init, len(marked.carry)
    with torch._guards.tracing(None), _modes():  # noqa: SLF001
        while True:
            examples = step.examples()
            results, _ = step.run(examples, (*carry, *xs, *arguments))
            flows = tuple(r.requires_grad and r.is_floating_point() for r in results)
            grown = tuple(a or b for a, b in zip(carry, flows[:n], strict=True))
            if grown == carry:
                break
            carry = grown
    # A row and the first carry are arguments of the graph too, which the step itself never reads.
    return Activity(carry, xs, arguments, flows[:n], flows[n:], init)


def trace_joint(marked: Marked, activity: Activity) -> Joint:
    """Return the step and its vector-Jacobian product.

    Raises
    ------
    UnsupportedBodyError
        An operation of the step, or of its derivative, has no rule.
    GradientRefusedError
        torch cannot differentiate the step.
    """
    step = _Differentiated(marked)
    n, m, k = len(marked.carry), len(marked.xs), len(marked.arguments)
    active = (*activity.carry, *activity.xs, *activity.arguments)
    flows = (*activity.new, *activity.ys)

    def joint(*values: torch.Tensor) -> list[torch.Tensor | None]:
        results, leaves = step.run(values[: n + m + k], active)
        found = torch.autograd.grad(
            [r for r, flow in zip(results, flows, strict=True) if flow],
            [leaf for leaf, wanted in zip(leaves, active, strict=True) if wanted],
            values[n + m + k :],
            allow_unused=True,
        )
        gradients = iter(found)
        return [*results, *(next(gradients) if wanted else None for wanted in active)]

    with torch._guards.tracing(None), _modes(), torch.fx.traceback.preserve_node_meta():  # noqa: SLF001
        examples = step.examples()
        for key, flow in zip(marked.results, flows, strict=True):
            if flow:
                examples.append(_cotangent_like(marked, key))
        traced = _functional(joint, examples, step)
    builder = Converter(traced)
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


def _cotangent_like(marked: Marked, key: tuple[str, int]) -> torch.Tensor:
    """Return an example of the cotangent of a result."""
    node = next(n for n in marked.graph.graph.nodes if n.args[1:] == key)
    value = node.meta["example_value"]
    return torch.empty(value.shape, dtype=value.dtype)


def _functional(
    joint: Any, examples: list[torch.Tensor], step: _Differentiated
) -> torch.fx.GraphModule:
    """Trace the derivative first, as torch records it, and then without mutation and views."""
    try:
        traced = functional_graph(joint, examples, recorded=True)
    except RuntimeError as error:
        origin = origin_of(step.current) if step.current is not None else ""
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
