"""The plain driver: loops as Python runs them. It is the reference for every other driver.

It runs on NumPy, on torch without an adapter (traced by a user's own ``torch.compile`` as well) and
on any other namespace. Its cost per step is the body, one flattening, one check per leaf and the
stacking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.errors import LoopError, UsageError
from fullgraph.loops._carry import (
    CarrySpec,
    OutputSpec,
    in_place_error,
    split_result,
    strengthen,
    weak_leaves,
)
from fullgraph.loops._plan import check_leaves, check_predicate, first_device, plan_scan
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.loops._ops import ArrayOps, Sink
    from fullgraph.loops._plan import ScanPlan

__all__ = ["scan", "while_loop"]

Array = Any
PyTree = Any


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
    rows = [ops.rows(leaf) for leaf in plan.xs]
    spec, carry = _start_scan(body, plan, rows, ops)
    if plan.length == 0:
        ys = _empty_outputs(body, plan, spec, ops, carry)
        return unflatten(spec.treedef, ops.finish(carry)), ys
    outputs: OutputSpec | None = None
    sinks: list[Sink] = []
    for step in plan.order:
        row = [take(step) for take in rows]
        result = _step(body, spec, ops, carry, row, plan.xs_treedef)
        new, y = split_result(result[0])
        leaves = spec.accept(new)
        if outputs is None:
            outputs = OutputSpec(y, ops, plan.device)
            sinks = [ops.sink(leaf, plan.length) for leaf in outputs.leaves]
        for sink, leaf in zip(sinks, outputs.accept(y, step), strict=True):
            sink.put(step, leaf)
        if not ops.check_unwritten(result[1]):
            raise in_place_error()
        carry = ops.keep(leaves)
    assert outputs is not None
    ys = unflatten(outputs.treedef, [sink.result() for sink in sinks])
    return unflatten(spec.treedef, ops.finish(carry)), ys


def _step(
    body: Callable[..., Any],
    spec: CarrySpec,
    ops: ArrayOps,
    carry: list[Array],
    row: list[Array],
    row_treedef: Any,
) -> tuple[Any, Any]:
    """Call the body on loans of carry and x; return its result and the token of the loans."""
    lent, lent_row, token = ops.lend(carry, row)
    try:
        if row_treedef is None:
            return body(unflatten(spec.treedef, lent)), token
        return body(unflatten(spec.treedef, lent), unflatten(row_treedef, lent_row)), token
    except (ValueError, RuntimeError) as error:
        if not ops.write_was_refused(error):
            raise
        return _step_on_copies(body, spec, ops, carry, row, row_treedef, error)


def _step_on_copies(
    body: Callable[..., Any],
    spec: CarrySpec,
    ops: ArrayOps,
    carry: list[Array],
    row: list[Array],
    row_treedef: Any,
    refusal: Exception,
) -> tuple[Any, Any]:
    """Find out whether a refused write was aimed at a loan, by lending writable copies.

    The body may have tried to write into a read-only array of its own, which is its own error, or
    have handed a loan to compiled code that asks for writable memory and writes nothing.
    """
    copies = [ops.own(leaf) for leaf in [*carry, *row]]
    before = [_bytes(leaf) for leaf in copies]
    lent, lent_row = copies[: len(carry)], copies[len(carry) :]
    result, failure = None, None
    try:
        if row_treedef is None:
            result = body(unflatten(spec.treedef, lent))
        else:
            result = body(unflatten(spec.treedef, lent), unflatten(row_treedef, lent_row))
    except Exception as error:  # noqa: BLE001 - decided below, by what was written
        failure = error
    if [_bytes(leaf) for leaf in copies] != before:
        raise in_place_error() from refusal
    if failure is not None:
        raise refusal
    return result, ops.lend([], [])[2]


def _bytes(leaf: Array) -> bytes:
    """Return the content of a host array; torch tensors go through NumPy's view of them."""
    host = leaf.detach().cpu().resolve_conj().numpy() if hasattr(leaf, "detach") else leaf
    return bytes(host.tobytes())


def _start_scan(
    body: Callable[..., Any],
    plan: ScanPlan,
    rows: list[Callable[[int], Array]],
    ops: ArrayOps,
) -> tuple[CarrySpec, list[Array]]:
    """Make the carry strong and private."""
    leaves = plan.init

    def after_one_step(tree: PyTree) -> PyTree:
        carry, treedef = flatten(tree)
        if not plan.length:
            return _on_placeholders(body, carry, plan, ops)[0]
        row = [take(plan.order[0]) for take in rows]
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
    leaves = _strong_state(cond, body, leaves, treedef, ops, device)
    carry = [ops.own(leaf) for leaf in leaves]
    spec = CarrySpec(unflatten(treedef, carry), ops)
    steps = 0
    while True:
        verdict, token = _step(cond, spec, ops, carry, [], None)
        going = bool(check_predicate(verdict, ops, "what cond returned"))
        if not ops.check_unwritten(token):
            raise in_place_error()
        if not going or steps == max_steps:
            break
        new, token = _step(body, spec, ops, carry, [], None)
        accepted = spec.accept(new)
        if not ops.check_unwritten(token):
            raise in_place_error()
        carry = ops.keep(accepted)
        steps += 1
    return unflatten(spec.treedef, ops.finish(carry)), steps, not going


def _strong_state(
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
