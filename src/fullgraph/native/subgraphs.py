"""Operators with graphs of their own inside a body: scan, while_loop and cond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from fullgraph.native.dtypes import BOOL
from fullgraph.native.ir import Loop, Map, Nested, Node, Project
from fullgraph.native.ops._registry import cast
from fullgraph.native.refusals import origin_of, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fullgraph.native.convert import Converter

__all__ = ["known_loop", "of_subgraphs"]


def of_subgraphs(node: torch.fx.Node) -> Callable[[Converter, torch.fx.Node], Any] | None:
    """Return what converts an operator with subgraphs; None for every other node."""
    return _OPERATORS.get(node.target)


def _scan(outer: Converter, node: torch.fx.Node) -> tuple[Node, ...]:
    body, init, xs, extra = node.args[:4]
    assert isinstance(init, (list, tuple))
    assert isinstance(xs, (list, tuple))
    length = xs[0].meta["val"].shape[0] if xs else None  # type: ignore[union-attr]
    if length is None:
        raise refusal(
            "a nested loop without xs", origin_of(node), "Give the nested loop an arange as xs"
        )
    inner = outer.child(body)
    loop = inner.loop(len(init), len(xs))
    return _nested(outer, node, inner, loop, init, xs, extra, int(length))


def _while(outer: Converter, node: torch.fx.Node) -> tuple[Node, ...]:
    cond, body, init, extra = node.args[:4]
    assert isinstance(init, (list, tuple))
    inner = outer.child(body)
    loop = inner.while_loop(outer.child(cond), len(init))
    return _nested(outer, node, inner, loop, init, (), extra, 0)


def _nested(
    outer: Converter,
    node: torch.fx.Node,
    inner: Converter,
    loop: Loop,
    init: Sequence[Any],
    xs: Sequence[Any],
    extra: Any,
    length: int,
) -> tuple[Node, ...]:
    """Return the results of a loop inside the graph."""
    consts = [_operand(outer, extra[i]) for i in inner.used_consts]
    consts += outer.hoisted(inner.constants)
    carry, rows = ([_operand(outer, n) for n in group] for group in (init, xs))
    return _results(outer, node, loop, (carry, rows, consts), length)


def known_loop(outer: Converter, node: torch.fx.Node) -> tuple[Node, ...]:
    """Return the results of a loop inside the graph that is in the IR already."""
    init, xs, consts, length, key = node.args
    assert isinstance(length, int)
    assert isinstance(key, int)
    groups = [[_operand(outer, n) for n in group] for group in (init, xs, consts)]  # type: ignore[union-attr]
    return _results(outer, node, outer.loops[key], (groups[0], groups[1], groups[2]), length)


def _results(
    outer: Converter,
    node: torch.fx.Node,
    loop: Loop,
    inputs: tuple[list[Node], list[Node], list[Node]],
    length: int,
) -> tuple[Node, ...]:
    origin = origin_of(node)
    if outer.guard is not None:
        raise refusal("a loop inside a branch of cond", origin, "Take the loop out of it")
    init, xs, consts = inputs
    nested = Nested(
        dtype=BOOL,
        shape=(),
        loop=loop,
        init=tuple(init),
        xs=tuple(xs),
        consts=tuple(consts),
        length=length,
        origin=origin,
    )
    shapes = [n.shape for n in loop.carry] + [(length, *y.shape) for y in loop.ys]
    dtypes = [n.dtype for n in (*loop.carry, *loop.ys)]
    return tuple(
        Project(dtype=d, shape=s, arg=nested, index=i, origin=origin)
        for i, (d, s) in enumerate(zip(dtypes, shapes, strict=True))
    )


def _operand(outer: Converter, value: Any) -> Node:
    found = outer.argument(value)
    assert isinstance(found, Node)
    return found


def _cond(outer: Converter, node: torch.fx.Node) -> tuple[Node, ...]:
    """Return both branches of a cond, computed and chosen from."""
    pred, on_true, on_false, operands = node.args[:4]
    assert isinstance(operands, (list, tuple))
    chosen = outer.argument(pred)
    if not isinstance(chosen, Node):
        raise refusal("cond on a Python value", origin_of(node), "Use a plain if")
    chosen = cast(chosen, BOOL)
    arguments = [_operand(outer, n) for n in operands]
    sides: list[list[Node]] = []
    for branch, taken in ((on_true, chosen), (on_false, _negated(chosen))):
        guard = taken if outer.guard is None else _both(outer.guard, taken)
        sides.append(outer.child(branch, guard).inline(arguments))
    return tuple(
        Map(
            dtype=a.dtype,
            shape=a.shape,
            fn="where",
            args=(chosen, a, b),
            compute=a.dtype,
            origin=origin_of(node),
        )
        for a, b in zip(*sides, strict=True)
    )


def _negated(pred: Node) -> Node:
    return Map(dtype=BOOL, shape=(), fn="logical_not", args=(pred,), compute=BOOL)


def _both(a: Node, b: Node) -> Node:
    return Map(dtype=BOOL, shape=(), fn="logical_and", args=(a, b), compute=BOOL)


_OPERATORS: Final[dict[Any, Callable[[Converter, torch.fx.Node], Any]]] = {
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.while_loop: _while,
    torch.ops.higher_order.cond: _cond,
}
