"""The plain driver: loops as Python runs them. It is the reference for every other driver.

It runs on NumPy, on torch without an adapter (traced by a user's own ``torch.compile`` as well) and
on any other namespace. Its cost per step is the body, one flattening, one check per leaf and the
stacking.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from fullgraph.errors import LoopError, UsageError
from fullgraph.loops._carry import (
    CarrySpec,
    OutputSpec,
    in_place_error,
    split_result,
    step_codec,
    strengthen,
    weak_leaves,
)
from fullgraph.loops._plan import check_leaves, check_predicate, first_device, plan_scan
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fullgraph.loops._ops import ArrayOps, Sink
    from fullgraph.loops._plan import ScanPlan

__all__ = ["scan", "start_scan", "strong_state", "while_loop"]

Array = Any
PyTree = Any
_NO_ROW = flatten(None)[1]


def scan(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree,
    *,
    length: int | None,
    reverse: bool,
    ops: ArrayOps,
) -> tuple[PyTree, PyTree]:
    """Run a scan step by step; see `fullgraph.scan` for the meaning of the arguments."""
    plan = plan_scan(init, xs, length, ops, reverse=reverse)
    spec, carry = start_scan(body, plan, ops)
    if plan.length == 0:
        ys = _empty_outputs(body, plan, spec, ops, carry)
        return unflatten(spec.treedef, ops.finish(carry)), ys
    rows = [ops.rows(leaf, reverse=reverse) for leaf in plan.xs]
    each_row = zip(*rows, strict=True) if rows else itertools.repeat((), plan.length)
    steps = _steps_of_one_array if spec.bare and plan.bare_row else _steps
    carry, outputs = steps(body, plan, spec, ops, carry, each_row)
    if not all(row.unwritten() for row in rows):
        raise in_place_error()
    return unflatten(spec.treedef, ops.finish(carry)), outputs.result()


def _steps(
    body: Callable[..., Any],
    plan: ScanPlan,
    spec: CarrySpec,
    ops: ArrayOps,
    carry: list[Array],
    each_row: Iterable[tuple[Array, ...]],
) -> tuple[list[Array], Outputs]:
    """Run the steps of a scan."""
    outputs = Outputs(plan, ops)
    build, build_row = (
        spec.codec.unflatten,
        step_codec(plan.row_tree, plan.xs_treedef, ops).unflatten,
    )
    fits_y, put = outputs.shortcut()
    frozen, token = ops.loans_are_frozen, None
    accept, lend, unwritten, keep = spec.accept, ops.lend, ops.unwritten, ops.keep
    lent = lend(carry)[0] if frozen else carry
    for step, row in zip(plan.order, each_row, strict=True):
        if not frozen:
            lent, token = lend(carry)
        try:
            result = body(build(lent), build_row(row))
        except (TypeError, ValueError, RuntimeError) as error:
            if not ops.write_was_refused(error):
                raise
            result = _on_copies(body, spec.treedef, plan.xs_treedef, ops, carry, row, error)
        new, y = result if type(result) is tuple and len(result) == 2 else split_result(result)
        leaves = accept(new)
        if fits_y(y):
            put(step, y)
        else:
            outputs.put(step, y)
            fits_y, put = outputs.shortcut()
        if token is not None and not unwritten(token):
            raise in_place_error()
        lent = carry = list(map(keep, leaves))
    return carry, outputs


def _steps_of_one_array(
    body: Callable[..., Any],
    plan: ScanPlan,
    spec: CarrySpec,
    ops: ArrayOps,
    carry: list[Array],
    each_row: Iterable[tuple[Array, ...]],
) -> tuple[list[Array], Outputs]:
    """Run the steps of a scan whose carry is one array and whose xs are one: `_steps`, inlined.

    The commonest solver loop has this form, and there each Python call per step shows.
    """
    outputs = Outputs(plan, ops)
    fits, keep, lend, unwritten = spec.matchers[0], ops.keep, ops.lend, ops.unwritten
    fits_y, put = outputs.shortcut()
    frozen = ops.loans_are_frozen
    token: Any = None
    leaf = carry[0]
    if frozen:
        lend(carry)
    for step, (x,) in zip(plan.order, each_row, strict=True):
        if not frozen:
            (lent,), token = lend([leaf])
        else:
            lent = leaf
        try:
            result = body(lent, x)
        except (TypeError, ValueError, RuntimeError) as error:
            if not ops.write_was_refused(error):
                raise
            result = _on_copies(body, spec.treedef, plan.xs_treedef, ops, [leaf], (x,), error)
        new, y = result if type(result) is tuple and len(result) == 2 else split_result(result)
        leaf = new if fits(new) else spec.accept(new)[0]
        if fits_y(y):
            put(step, y)
        else:
            outputs.put(step, y)
            fits_y, put = outputs.shortcut()
        if token is not None and not unwritten(token):
            raise in_place_error()
        leaf = keep(leaf)
    return [leaf], outputs


class Outputs:
    """The ys of a scan while it runs: their form is that of the first step."""

    def __init__(self, plan: ScanPlan, ops: ArrayOps) -> None:
        self._plan = plan
        self._ops = ops
        self._spec: OutputSpec | None = None
        self._sinks: list[Sink] = []

    def put(self, step: int, y: PyTree) -> None:
        """Check the y of a step and keep its leaves."""
        if self._spec is None:
            self._spec = OutputSpec(y, self._ops, self._plan.device)
            self._sinks = [self._ops.sink(leaf, self._plan.length) for leaf in self._spec.leaves]
        for sink, leaf in zip(self._sinks, self._spec.accept(y, step), strict=True):
            sink.put(step, leaf)

    def shortcut(self) -> tuple[Callable[[Any], bool], Callable[[int, Any], None]]:
        """Return which ys need no `put`, and what to do with those instead."""
        spec = self._spec
        if spec is not None and spec.bare:
            return spec.matchers[0], self._sinks[0].put
        if spec is not None and spec.tree is None:
            return _is_none, _nothing
        return _never, _nothing

    def result(self) -> PyTree:
        """Return the stacked ys."""
        assert self._spec is not None
        return unflatten(self._spec.treedef, [sink.result() for sink in self._sinks])


def _is_none(y: PyTree) -> bool:
    return y is None


def _never(_: PyTree) -> bool:
    return False


def _nothing(_step: int, _value: Array) -> None:
    return None


def _guarded(
    function: Callable[[PyTree], Any], spec: CarrySpec, ops: ArrayOps, carry: list[Array]
) -> Any:
    """Call a function of the state on loans of it, and refuse a write into them."""
    lent, token = ops.lend(carry)
    try:
        result = function(unflatten(spec.treedef, lent))
    except (TypeError, ValueError, RuntimeError) as error:
        if not ops.write_was_refused(error):
            raise
        result = _on_copies(
            lambda tree, _: function(tree), spec.treedef, _NO_ROW, ops, carry, (), error
        )
    if not ops.unwritten(token):
        raise in_place_error()
    return result


def _on_copies(
    function: Callable[[PyTree, PyTree], Any],
    treedef: Any,
    row_treedef: Any,
    ops: ArrayOps,
    carry: list[Array],
    row: tuple[Array, ...],
    refusal: Exception,
) -> Any:
    """Find out whether a refused write was aimed at a loan, by lending writable copies.

    The body may have tried to write into a read-only array of its own, which is its own error, or
    have handed a loan to compiled code that asks for writable memory and writes nothing.
    """
    copies = [ops.own(leaf) for leaf in (*carry, *row)]
    before = [_bytes(leaf) for leaf in copies]
    lent, lent_row = copies[: len(carry)], copies[len(carry) :]
    result, failure = None, None
    try:
        result = function(unflatten(treedef, lent), unflatten(row_treedef, lent_row))
    except Exception as error:  # noqa: BLE001 - decided below, by what was written
        failure = error
    if [_bytes(leaf) for leaf in copies] != before:
        raise in_place_error() from refusal
    if failure is not None:
        raise refusal
    return result


def _bytes(leaf: Array) -> bytes:
    """Return the content of a host array; torch tensors go through NumPy's view of them."""
    host = leaf.detach().cpu().resolve_conj().numpy() if hasattr(leaf, "detach") else leaf
    return bytes(host.tobytes())


def start_scan(
    body: Callable[..., Any], plan: ScanPlan, ops: ArrayOps
) -> tuple[CarrySpec, list[Array]]:
    """Make the carry strong and private."""
    leaves = plan.init

    def after_one_step(tree: PyTree) -> PyTree:
        carry, treedef = flatten(tree)
        if not plan.length:
            return _on_placeholders(body, carry, plan, ops)[0]
        row = [next(iter(ops.rows(leaf, reverse=plan.reverse))) for leaf in plan.xs]
        return _evaluate(body, carry, treedef, row, plan.xs_treedef, ops)[0]

    if weak_leaves(leaves):
        leaves = strengthen(leaves, plan.init_treedef, ops, plan.device, after_one_step)
    carry = [ops.own(leaf) for leaf in leaves]
    return CarrySpec(unflatten(plan.init_treedef, carry), ops), carry


def _on_placeholders(
    body: Callable[..., Any], carry: list[Any], plan: ScanPlan, ops: ArrayOps
) -> tuple[PyTree, PyTree]:
    """Evaluate the body once on rows of ones, in a scan that has no rows."""
    specs = [ops.spec(leaf) for leaf in plan.xs]
    row = [ops.placeholder(spec._replace(shape=spec.shape[1:])) for spec in specs]
    try:
        return _evaluate(body, carry, plan.init_treedef, row, plan.xs_treedef, ops)
    except LoopError:
        raise
    except Exception as error:
        raise UsageError(
            f"this scan has no steps, so its body was evaluated once on rows of ones to learn the "
            f"shapes of ys, and raised {type(error).__name__}: {error}. Skip the scan when there "
            f"is nothing to step over, or let the body take such rows."
        ) from error


def _evaluate(
    body: Callable[..., Any],
    carry: list[Any],
    treedef: Any,
    row: list[Array],
    row_treedef: Any,
    ops: ArrayOps,
) -> tuple[PyTree, PyTree]:
    """Run the body once for the shapes and dtypes of its results."""
    copies = [leaf if not ops.is_array(leaf) else ops.own(leaf) for leaf in carry]
    row = [ops.own(leaf) for leaf in row]
    return split_result(
        ops.evaluate(lambda: body(unflatten(treedef, copies), unflatten(row_treedef, row)))
    )


def _empty_outputs(
    body: Callable[..., Any], plan: ScanPlan, spec: CarrySpec, ops: ArrayOps, carry: list[Array]
) -> PyTree:
    """Return the ys of a scan without steps, from one evaluation on placeholder rows."""
    new, y = _on_placeholders(body, carry, plan, ops)
    spec.accept(new)
    outputs = OutputSpec(y, ops, plan.device)
    return unflatten(outputs.treedef, [ops.sink(leaf, 0).result() for leaf in outputs.leaves])


def while_loop(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    init: PyTree,
    *,
    max_steps: int | None,
    ops: ArrayOps,
) -> tuple[PyTree, int, bool]:
    """Run a while loop; return the state, the steps taken and whether cond ended it."""
    leaves, treedef = flatten(init)
    check_leaves(init, leaves, "carry", ops)
    device = first_device(leaves, ops)
    leaves = strong_state(cond, body, leaves, treedef, ops, device)
    carry = [ops.own(leaf) for leaf in leaves]
    spec = CarrySpec(unflatten(treedef, carry), ops)
    steps = 0
    while True:
        verdict = _guarded(cond, spec, ops, carry)
        going = bool(check_predicate(verdict, ops, "what cond returned"))
        if not going or steps == max_steps:
            break
        carry = [ops.keep(leaf) for leaf in spec.accept(_guarded(body, spec, ops, carry))]
        steps += 1
    return unflatten(spec.treedef, ops.finish(carry)), steps, not going


def strong_state(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    leaves: list[Any],
    treedef: Any,
    ops: ArrayOps,
    device: Any,
) -> list[Any]:
    """Give the Python scalars of a state their dtypes.

    A loop that stops at once may have a state on which its body fails: then there is no first
    result, and the library's default dtypes hold.
    """
    if not weak_leaves(leaves):
        return leaves

    def fresh(tree: PyTree) -> PyTree:
        values, _ = flatten(tree)
        return unflatten(treedef, [ops.own(v) if ops.is_array(v) else v for v in values])

    def after_one_step(tree: PyTree) -> PyTree:
        return ops.evaluate(lambda: body(fresh(tree)))

    start = unflatten(treedef, leaves)
    if bool(check_predicate(cond(fresh(start)), ops, "what cond returned")):
        return strengthen(leaves, treedef, ops, device, after_one_step)
    try:
        after = after_one_step(start)
    except Exception:  # noqa: BLE001 - the body never runs in this loop
        return strengthen(leaves, treedef, ops, device, None)
    return strengthen(leaves, treedef, ops, device, lambda _: after)
