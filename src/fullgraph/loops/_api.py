"""scan, fori_loop, while_loop, cond: check, pick a driver, call. The docstrings are the spec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend, backend_of
from fullgraph.loops import _eager
from fullgraph.loops._adapter import get_loop_adapter
from fullgraph.loops._carry import in_place_error, output_leaf
from fullgraph.loops._foreign import foreign_scan, keeps_all_rules
from fullgraph.loops._namespace import Namespace, eager_ops, leaf_ops, resolve
from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._plan import (
    check_count,
    check_index,
    check_predicate,
    check_range,
    first_device,
)
from fullgraph.loops._results import WhileResult
from fullgraph.loops._tree import flatten, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["cond", "fori_loop", "scan", "while_loop"]

Array = Any
PyTree = Any


def scan(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    xp: Any = None,
) -> tuple[PyTree, PyTree]:
    """Step a carry over the leading axis of arrays and stack what each step puts out.

    The meaning, on every backend, in plain Python for a carry and xs of one array each::

        def scan(body, init, xs):
            carry, ys = copy(init), []
            for x in xs:
                carry, y = body(carry, x)
                ys.append(y)
            return carry, stack(ys)

    Parameters
    ----------
    body : callable
        ``body(carry, x) -> (carry, y)``. `x` is one row of `xs`, `y` any tree or None. The body
        must return a carry of the same structure, shapes, dtypes and devices, and must not write
        into what it is handed.
    init : PyTree
        The carry that the first step gets: arrays and Python numbers in tuples, lists, dicts and
        namedtuples, with None anywhere. A Python number takes the dtype that the first step gives
        it: ``scan(lambda c, x: (c + x, c), 0.0, xs)`` sums in the dtype of `xs`.
    xs : PyTree, optional
        Arrays with a leading axis of one common length, the number of steps. None gives the body
        None for `x`; then `length` counts.
    length : int, optional
        The number of steps, needed when `xs` has no arrays, checked against them otherwise.
    reverse : bool, default False
        Step from the last row to the first. ys stay in the order of `xs`.
    xp : namespace, optional
        Array namespace, needed when there is no array among the arguments.

    Returns
    -------
    carry : PyTree
        The carry after the last step.
    ys : PyTree
        The tree of y with a leading axis of `length` on each leaf; None where y is None.

    Raises
    ------
    CarryError
        (a TypeError) if the carry changes; the message names the leaf, ``carry["velocity"][1]``,
        both sides and the fix, in the same words on every backend.
    InPlaceUpdateError
        If the body writes into its carry or x.
    StackedOutputError
        (a TypeError) if y changes from one step to the next, or is no array.
    UsageError
        (a ValueError) if the number of steps is missing or contradicted.
    LoopTypeError
        (a TypeError) if a leaf is no array, or arrays of two libraries meet.

    Notes
    -----
    Arguments are never changed, and results share memory with nothing. A body may return a leaf
    unchanged, one array for two leaves, a view, or an array that it closes over; inputs may be
    non-contiguous, expanded or read-only. With ``length=0`` ys have the right shapes and dtypes; to
    find them, and for Python numbers in the carry, plain loops evaluate the body once more than
    they step. An exception from the body comes out as itself.

    NumPy, array-api-strict and other namespaces run the loop above. torch does too, on one private
    copy of `xs`, unless an adapter is registered (`register_loop_adapter`); JAX runs
    ``jax.lax.scan``, traced anew in each call, so that a changed closure is never served stale.
    Gradients flow wherever the backend differentiates. Under a user's own ``torch.compile`` a plain
    loop is unrolled, and a body that writes into a loan changes its own copy only, without an
    error.

    Examples
    --------
    >>> import numpy as np
    >>> carry, ys = scan(lambda c, x: (c + x, c), np.asarray(0.0), np.arange(4.0))
    >>> float(carry), ys.tolist()
    (6.0, [0.0, 0.0, 1.0, 3.0])
    """
    return _run_scan(body, init, xs, length, reverse, resolve({"carry": init, "xs": xs}, xp))


def _run_scan(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree,
    length: int | None,
    reverse: bool,
    namespace: Namespace,
) -> tuple[PyTree, PyTree]:
    """Give a scan to the adapter of the namespace, or to the plain driver."""
    adapter = get_loop_adapter(namespace.name)
    if adapter is None:
        ops = eager_ops(namespace)
        return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=ops)
    if keeps_all_rules(adapter.scan):
        result: tuple[PyTree, PyTree] = adapter.scan(body, init, xs, length=length, reverse=reverse)
        return result
    return foreign_scan(
        adapter, body, init, xs, length=length, reverse=reverse, ops=leaf_ops(namespace)
    )


def fori_loop(
    lower: int,
    upper: int,
    body: Callable[[Array, PyTree], PyTree],
    init: PyTree,
    *,
    xp: Any = None,
) -> PyTree:
    """Step a carry over the integers from `lower` up to, not including, `upper`.

    The meaning, on every backend, in plain Python::

        def fori_loop(lower, upper, body, init):
            carry = copy(init)
            for i in range(lower, upper):
                carry = body(i, carry)
            return carry

    Parameters
    ----------
    lower, upper : int
        Python or NumPy integers; `while_loop` is the loop whose end is known only on the way.
    body : callable
        ``body(i, carry) -> carry``. `i` is a 0-d array of the library's default integer dtype, on
        the device of the carry.
    init : PyTree
        As for `scan`.
    xp : namespace, optional
        As for `scan`.

    Returns
    -------
    PyTree
        The carry after the last step; a copy of `init` if there is none.

    Raises
    ------
    CarryError, InPlaceUpdateError, LoopTypeError
        As for `scan`.
    UsageError
        (a ValueError) if a bound is not an integer, or one that `i` cannot hold.

    Notes
    -----
    This is a `scan` over an index array, so an adapter for scans runs it, if it takes integer rows.

    Examples
    --------
    >>> import numpy as np
    >>> float(fori_loop(1, 5, lambda i, c: c * i, np.asarray(1.0)))
    24.0
    """
    first, last = check_index("lower", lower), check_index("upper", upper)
    namespace = resolve({"carry": init}, xp)
    ops = leaf_ops(namespace)
    device = first_device(flatten(init)[0], ops)
    check_range(first, last, ops, device)

    def step(carry: PyTree, index: Array) -> tuple[PyTree, None]:
        return body(ops.zero_dimensional(index), carry), None

    if last <= first and get_loop_adapter(namespace.name) is None:  # a scan would try the body
        index = ops.scalar(first, None, device)
        return _eager.while_loop(
            lambda _: False,
            lambda carry: body(index, carry),
            init,
            max_steps=None,
            ops=eager_ops(namespace),
        )[0]
    index = ops.arange(first, max(first, last), device)
    return _run_scan(step, init, index, None, False, namespace)[0]


def while_loop(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    init: PyTree,
    *,
    max_steps: int | None = None,
    xp: Any = None,
) -> Any:
    """Step a state for as long as a condition on it holds.

    The meaning, on every backend, in plain Python::

        def while_loop(cond, body, init, max_steps=None):
            state, steps = copy(init), 0
            while (going := bool(cond(state))) and steps != max_steps:
                state = body(state)
                steps += 1
            return state if max_steps is None else WhileResult(state, steps, not going)

    Parameters
    ----------
    cond : callable
        ``cond(state)`` gives a bool or a 0-d boolean array.
    body : callable
        ``body(state) -> state``, under the rules for a carry that `scan` states.
    init : PyTree
        As for `scan`.
    max_steps : int, optional
        Stop after so many steps at the latest.
    xp : namespace, optional
        As for `scan`.

    Returns
    -------
    PyTree or WhileResult
        The state; with `max_steps`, the named tuple ``WhileResult(state, steps, done)``, whose last
        two are 0-d arrays: the steps taken, and whether the condition ended the loop.

    Raises
    ------
    CarryError, InPlaceUpdateError
        As for `scan`.
    LoopTypeError
        (a TypeError) if the condition is not a single truth value, or as for `scan`.
    UsageError
        (a ValueError) if `max_steps` is not an int that is at least 0.

    Notes
    -----
    Plain loops differentiate on torch as they are. On JAX the bounded form differentiates in
    reverse mode, and steps past the stop put no NaN into a gradient; the unbounded form is
    ``jax.lax.while_loop``, which has forward mode only. An adapter without a while loop of its own
    leaves this loop plain.

    Examples
    --------
    >>> import numpy as np
    >>> state = while_loop(lambda s: s < 50, lambda s: s * 2, np.asarray(3))
    >>> int(state)
    96
    >>> while_loop(lambda s: s < 50, lambda s: s * 2, np.asarray(3), max_steps=2)
    WhileResult(state=array(12), steps=array(2), done=array(False))
    """
    bound = None if max_steps is None else check_count("max_steps", max_steps)
    namespace = resolve({"carry": init}, xp)
    adapter = get_loop_adapter(namespace.name)
    if adapter is not None and adapter.while_loop is not None:
        return adapter.while_loop(cond, body, init, max_steps=bound)
    ops = eager_ops(namespace)
    if namespace.backend is Backend.TORCH:
        from fullgraph.loops import _torch_cond

        if _torch_cond.is_traced():
            from fullgraph.loops import _torch_while

            traced = _torch_while.while_loop(cond, body, init, max_steps=bound, ops=ops)
            if traced is not _torch_while.NOT_TRACEABLE:
                return traced
    state, steps, done = _eager.while_loop(cond, body, init, max_steps=bound, ops=ops)
    if bound is None:
        return state
    device = first_device(flatten(state)[0], ops)
    return WhileResult(state, ops.scalar(steps, None, device), ops.scalar(done, None, device))


def cond(
    pred: Any,
    on_true: Callable[..., PyTree],
    on_false: Callable[..., PyTree],
    *operands: PyTree,
) -> PyTree:
    """Apply one of two functions, chosen by a truth value that may be known only to a compiler.

    The meaning, on every backend, in plain Python::

        def cond(pred, on_true, on_false, *operands):
            return on_true(*operands) if pred else on_false(*operands)

    Parameters
    ----------
    pred : bool or array
        A Python bool or a 0-d boolean array.
    on_true, on_false : callable
        Take the operands and return a tree. Under tracing both are traced, and must give the same
        structure, shapes and dtypes.
    *operands : PyTree
        Arrays, Python numbers and None in tuples, lists, dicts and namedtuples.

    Returns
    -------
    PyTree
        What the chosen function returned, with Python numbers made 0-d arrays if there are arrays
        among the operands; it shares memory with nothing.

    Raises
    ------
    BranchError
        (a TypeError) if the branches differ under tracing; the message names the leaf and both.
    InPlaceUpdateError
        If the chosen function writes into an operand.
    LoopTypeError
        (a TypeError) if `pred` is not a single truth value, or a leaf is no array.

    Notes
    -----
    A concrete predicate makes this a Python choice: the other function is not called. Under
    ``jax.jit`` it is ``jax.lax.cond``, under ``torch.compile`` it is ``torch.cond``.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.asarray(-2.0)
    >>> float(cond(x < 0, lambda v: -v, lambda v: v, x))
    2.0
    """
    kind = None if isinstance(pred, bool) else backend_of(pred)
    if kind is Backend.JAX:
        from fullgraph.loops import _jax

        check_predicate(pred, _jax.JAX, "pred")
        if _jax.is_traced(pred):
            return _jax.cond(pred, on_true, on_false, operands)
    elif kind is Backend.TORCH:
        from fullgraph.loops import _torch_cond

        if _torch_cond.is_traced():
            check_predicate(pred, eager_ops(resolve({"pred": pred}, None)), "pred")
            return _torch_cond.cond(pred, on_true, on_false, operands)
    function = on_true if _truth(pred) else on_false
    leaves, treedef = flatten(operands)
    if all(type(leaf) in SCALAR_KINDS for leaf in leaves):
        return function(*operands)
    return _choose(function, operands, leaves, treedef)


def _truth(pred: Any) -> bool:
    if isinstance(pred, bool):
        return pred
    return bool(check_predicate(pred, leaf_ops(resolve({"pred": pred}, None)), "pred"))


def _choose(
    function: Callable[..., PyTree], operands: tuple[PyTree, ...], leaves: list[Any], treedef: Any
) -> PyTree:
    """Call a branch on loans of the operands and return its results as private arrays."""
    namespace = resolve({"operands": operands}, None)
    if namespace.backend is Backend.JAX:  # immutable: nothing to lend or to copy
        result = function(*operands)
        out, out_treedef = flatten(result)
        ops_of_jax = leaf_ops(namespace)
        return unflatten(
            out_treedef,
            [
                output_leaf(result, i, leaf, ops_of_jax, None, "result")
                for i, leaf in enumerate(out)
            ],
        )
    ops = eager_ops(namespace)
    values = list(leaves)
    places = [i for i, leaf in enumerate(leaves) if type(leaf) not in SCALAR_KINDS]
    lent, token = ops.lend([ops.own(leaves[i]) for i in places])
    for place, leaf in zip(places, lent, strict=True):
        values[place] = leaf
    try:
        result = function(*unflatten(treedef, values))
    except (ValueError, RuntimeError) as error:
        if ops.write_was_refused(error):
            raise in_place_error() from error
        raise
    if not ops.unwritten(token):
        raise in_place_error()
    out, out_treedef = flatten(result)
    device = first_device(leaves, ops)
    arrays = [output_leaf(result, i, leaf, ops, device, "result") for i, leaf in enumerate(out)]
    return unflatten(out_treedef, [ops.own(leaf) for leaf in arrays])
