"""Scans of other packages as drivers: what they cannot do themselves is done around them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from fullgraph.loops._plan import plan_scan
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.loops._adapter import LoopAdapter
    from fullgraph.loops._ops import LeafOps

__all__ = ["foreign_scan", "keeps_all_rules", "whole_driver"]

PyTree = Any
_F = TypeVar("_F", bound="Callable[..., Any]")
_MARK = "fullgraph_whole_driver"


def whole_driver(function: _F) -> _F:
    """Mark a scan as one that checks its own arguments and keeps every rule of `fullgraph.scan`."""
    setattr(function, _MARK, True)
    return function


def keeps_all_rules(function: Callable[..., Any]) -> bool:
    """Whether a scan is marked with `whole_driver`."""
    return getattr(function, _MARK, False)


def _takes(function: Callable[..., Any], *names: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins: the seam's three arguments are all that is certain
        return False
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return True
    return all(name in parameters for name in names)


def foreign_scan(
    adapter: LoopAdapter,
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree,
    *,
    length: int | None,
    reverse: bool,
    ops: LeafOps,
) -> tuple[PyTree, PyTree]:
    """Check the arguments of a scan and run it with a foreign driver.

    A driver without `length` gets an index array as xs, one without `reverse` gets xs flipped, and
    its ys are flipped back.
    """
    plan = plan_scan(init, xs, length, ops, reverse=reverse)
    if _takes(adapter.scan, "length", "reverse"):
        result: tuple[PyTree, PyTree] = adapter.scan(
            body, init, xs, length=plan.length, reverse=reverse
        )
        return result
    if not plan.xs:
        counter = ops.arange(0, plan.length, plan.device)
        carry, ys = adapter.scan(lambda carry, _: body(carry, xs), init, counter)
    elif reverse:
        flipped = unflatten(plan.xs_treedef, [ops.flip(leaf) for leaf in plan.xs])
        carry, ys = adapter.scan(body, init, flipped)
    else:
        carry, ys = adapter.scan(body, init, xs)
    if reverse:
        leaves, treedef = flatten(ys)
        ys = unflatten(treedef, [ops.flip(leaf) for leaf in leaves])
    return carry, ys
