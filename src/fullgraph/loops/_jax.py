"""The JAX driver: the loops of ``jax.lax``, under the rules of this package.

``lax.scan`` and ``lax.while_loop`` cache what they traced on the identity of the function that they
get: the same function with a changed closure is served stale. So every call here makes fresh ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fullgraph.errors import BranchError, LoopCaptureError
from fullgraph.loops._adapter import LoopAdapter
from fullgraph.loops._carry import (
    CarrySpec,
    in_place_error,
    output_leaf,
    split_result,
    strengthen,
    weak_leaves,
)
from fullgraph.loops._foreign import whole_driver
from fullgraph.loops._ops import SCALAR_KINDS, LeafSpec, dtype_name
from fullgraph.loops._plan import check_count, check_leaves, check_predicate, plan_scan
from fullgraph.loops._results import WhileResult
from fullgraph.loops._tree import describe, flatten, leaf_path, same_structure, unflatten

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["JAX", "cond", "is_traced", "jax_loop_adapter", "scan", "while_loop"]

Array = Any
PyTree = Any


class _Shape(jax.ShapeDtypeStruct):
    """Stands for an array of which only the form is known; keys of jax.random have one too."""


class JaxOps:
    """`LeafOps` for JAX. Sharding and placement are JAX's own affair, so specs have no device."""

    name = "JAX"
    runs_plainly = False

    def is_array(self, leaf: Any) -> bool:
        """Accept JAX arrays, tracers and NumPy arrays."""
        return isinstance(leaf, (jax.Array, np.ndarray, np.generic, _Shape))

    def spec(self, leaf: Array) -> LeafSpec:
        """Return shape and dtype."""
        return LeafSpec(tuple(leaf.shape), leaf.dtype, None)

    def matcher(self, spec: LeafSpec) -> Callable[[Any], bool]:
        """Compare class, shape and dtype."""
        return lambda leaf: self.is_array(leaf) and self.spec(leaf) == spec

    def scalar(self, value: complex, dtype: Any, device: Any) -> Array:
        """Make a 0-d array that is not weakly typed."""
        return _strong(jnp.asarray(value, dtype=dtype))

    def arange(self, lower: int, upper: int, device: Any) -> Array:
        """Count in JAX's default integer."""
        return jnp.arange(lower, upper)

    def zero_dimensional(self, leaf: Array) -> Array:
        """Return the row, which is an array."""
        return leaf

    def flip(self, leaf: Array) -> Array:
        """Reverse the leading axis."""
        return jnp.flip(leaf, axis=0)


JAX = JaxOps()


def jax_loop_adapter() -> LoopAdapter:
    """Return the adapter that `get_loop_adapter` registers for ``jax.numpy``."""
    return LoopAdapter(scan=scan, checkpoint=jax.checkpoint, while_loop=while_loop)


def is_traced(value: Any) -> bool:
    """Whether a value is known only while JAX traces."""
    return isinstance(value, jax.core.Tracer)


def _strong(leaf: Array) -> Array:
    """Drop JAX's own weak typing: an array has the dtype that it shows."""
    array = jnp.asarray(leaf)
    if getattr(array, "weak_type", False):  # keys of jax.random have no such attribute
        return lax.convert_element_type(array, array.dtype)
    return array


def _call(function: Callable[..., Any], *args: Any) -> Any:
    """Call what the user gave, with JAX's own exceptions turned into ours."""
    try:
        return function(*args)
    except TypeError as error:
        if "JAX arrays are immutable" in str(error):
            raise in_place_error() from error
        if isinstance(error, jax.errors.JAXTypeError):
            raise _needs_value(error) from error
        raise
    except jax.errors.JAXIndexError as error:
        raise _needs_value(error) from error


def _needs_value(error: Exception) -> LoopCaptureError:
    return LoopCaptureError(
        f"the body needs a value while it is traced ({type(error).__name__}). JAX loops are traced "
        f"once, without values: write a choice on data as xp.where or fullgraph.cond, and index "
        f"with arrays."
    )


def _prepare(
    leaves: list[Any], treedef: Any, evaluate: Callable[[PyTree], PyTree]
) -> tuple[CarrySpec, list[Array]]:
    """Make the carry strong."""
    if weak_leaves(leaves):
        leaves = strengthen(leaves, treedef, JAX, None, evaluate)
    carry = [_strong(leaf) for leaf in leaves]
    return CarrySpec(unflatten(treedef, carry), JAX), carry


def _abstractly(function: Callable[..., PyTree], tree: PyTree, *others: Array) -> PyTree:
    """Evaluate for shapes and dtypes; Python scalars stay Python scalars, in and out."""
    leaves, treedef = flatten(tree)
    positions = [i for i, leaf in enumerate(leaves) if type(leaf) not in SCALAR_KINDS]
    seen: list[Any] = []

    def traced(arrays: list[Array], rest: list[Array]) -> None:
        values = list(leaves)
        for index, array in zip(positions, arrays, strict=True):
            values[index] = array
        results, out = flatten(_call(function, unflatten(treedef, values), *rest))
        seen[:] = [out, [_stand_in(leaf) for leaf in results]]

    jax.eval_shape(traced, [_strong(leaves[i]) for i in positions], list(others))
    return unflatten(seen[0], seen[1])


def _stand_in(leaf: Any) -> Any:
    """Return the form of a tracer in its place, which must not leave its trace."""
    return _shape(leaf.shape, leaf.dtype) if isinstance(leaf, jax.Array) else leaf


def _shape(shape: tuple[int, ...], dtype: Any) -> _Shape:
    return _Shape(shape, dtype)  # type: ignore[no-untyped-call]


@whole_driver
def scan(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[PyTree, PyTree]:
    """Run a scan with ``lax.scan``; see `fullgraph.scan`."""
    plan = plan_scan(init, xs, length, JAX, reverse=reverse)
    rows = [_strong(leaf) for leaf in plan.xs]

    def after_one_step(tree: PyTree) -> PyTree:
        def one(carry: PyTree, *row: Array) -> PyTree:
            return split_result(body(carry, unflatten(plan.xs_treedef, row)))[0]

        samples = [_shape(row.shape[1:], row.dtype) for row in rows]
        return _abstractly(one, tree, *samples)

    spec, carry = _prepare(plan.init, plan.init_treedef, after_one_step)
    structure: list[Any] = []

    def step(carry: list[Array], row: list[Array]) -> tuple[list[Array], list[Array]]:
        result = _call(body, unflatten(plan.init_treedef, carry), unflatten(plan.xs_treedef, row))
        new, y = split_result(result)
        leaves, treedef = flatten(y)
        structure[:] = [treedef]
        ys = [jnp.asarray(output_leaf(y, i, leaf, JAX, None)) for i, leaf in enumerate(leaves)]
        return [jnp.asarray(leaf) for leaf in spec.accept(new)], ys

    final, ys = lax.scan(step, carry, rows, length=plan.length, reverse=plan.reverse)
    return unflatten(spec.treedef, final), unflatten(structure[0], ys)


def while_loop(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    init: PyTree,
    *,
    max_steps: int | None = None,
) -> Any:
    """Run a while loop with ``lax.while_loop``, or with ``lax.scan`` if it is bounded.

    See `fullgraph.while_loop`.
    """
    bound = None if max_steps is None else check_count("max_steps", max_steps)
    leaves, treedef = flatten(init)
    check_leaves(init, leaves, "carry", JAX)
    spec, carry = _prepare(leaves, treedef, lambda tree: _abstractly(body, tree))

    def going(carry: list[Array]) -> Array:
        verdict = _call(cond, unflatten(treedef, carry))
        return jnp.asarray(check_predicate(verdict, JAX, "what cond returned"))

    def step(carry: list[Array]) -> list[Array]:
        new = spec.accept(_call(body, unflatten(treedef, carry)))
        return [jnp.asarray(leaf) for leaf in new]

    if bound is None:
        final: list[Array] = lax.while_loop(going, step, carry)
        return unflatten(treedef, final)
    state, steps, still = _bounded(going, step, carry, bound)
    return WhileResult(unflatten(treedef, state), steps, jnp.logical_not(still))


def _bounded(
    going: Callable[[list[Array]], Array],
    step: Callable[[list[Array]], list[Array]],
    carry: list[Array],
    bound: int,
) -> tuple[list[Array], Array, Array]:
    """Run at most `bound` steps in a form that reverse-mode differentiates.

    After the stop ``lax.cond`` runs nothing. Under ``vmap`` it becomes a select that evaluates the
    body for lanes that have stopped as well; those are given the last state on which the body was
    asked for, so that no NaN of a step past the stop reaches a gradient.
    """

    def run(args: tuple[Any, ...]) -> tuple[Any, ...]:
        state, last, steps, active = args
        safe = [jnp.where(active, new, old) for new, old in zip(state, last, strict=True)]
        after = [jnp.where(active, new, old) for new, old in zip(step(safe), state, strict=True)]
        return after, safe, steps + active, going(after)

    def iteration(args: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        return lax.cond(args[3], run, lambda same: same, args), None

    start = (carry, carry, jnp.zeros((), dtype=int), going(carry))
    (state, _, steps, active), _ = lax.scan(iteration, start, None, length=bound)
    return state, steps, active


def cond(
    pred: Array,
    on_true: Callable[..., PyTree],
    on_false: Callable[..., PyTree],
    operands: tuple[Any, ...],
) -> PyTree:
    """Choose with ``lax.cond``; see `fullgraph.cond`."""
    results: dict[bool, PyTree] = {}
    specs: dict[bool, list[LeafSpec]] = {}
    leaves, treedef = flatten(operands)
    positions = [i for i, leaf in enumerate(leaves) if JAX.is_array(leaf)]

    def branch(function: Callable[..., PyTree], side: bool) -> Callable[..., list[Array]]:
        def run(arrays: list[Array]) -> list[Array]:
            values = list(leaves)
            for index, array in zip(positions, arrays, strict=True):
                values[index] = array
            tree = _call(function, *unflatten(treedef, values))
            out, out_treedef = flatten(tree)
            arrays = [_strong(output_leaf(tree, i, leaf, JAX, None)) for i, leaf in enumerate(out)]
            specs[side] = [JAX.spec(array) for array in arrays]
            results[side] = unflatten(out_treedef, list(range(len(out))))
            return arrays

        return run

    arrays = [leaves[i] for i in positions]
    # Both branches are traced once before lax.cond, which would word a difference in its own way.
    for function, side in ((on_true, True), (on_false, False)):
        jax.eval_shape(branch(function, side), arrays)
    _compare_branches(results, specs)
    flat = lax.cond(pred, branch(on_true, True), branch(on_false, False), arrays)
    return unflatten(flatten(results[True])[1], flat)


def _compare_branches(results: dict[bool, PyTree], specs: dict[bool, list[LeafSpec]]) -> None:
    if not same_structure(results[True], results[False]):
        raise BranchError(
            f"on_true gives {describe(results[True])} and on_false gives "
            f"{describe(results[False])}. Under tracing both branches must give one structure."
        )
    for index, (first, second) in enumerate(zip(specs[True], specs[False], strict=True)):
        if first != second:
            raise BranchError(
                f"{leaf_path(results[True], index, 'result')} is {dtype_name(first.dtype)} of "
                f"shape {first.shape} from on_true and {dtype_name(second.dtype)} of shape "
                f"{second.shape} from on_false. Under tracing both branches must agree: cast or "
                f"reshape in one of them."
            )
