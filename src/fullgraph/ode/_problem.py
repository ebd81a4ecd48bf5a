"""An initial value problem taken apart: leaves of the state, dtypes, batch axes, derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optree

from fullgraph.backends import Backend, backend_of
from fullgraph.errors import DerivativeError, UsageError
from fullgraph.loops._ops import SCALAR_KINDS, dtype_kind, dtype_name
from fullgraph.loops._tree import describe, flatten, leaf_path, unflatten
from fullgraph.ode._arrays import Library, library_of
from fullgraph.ode._trees import collected, filled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Layout", "Problem", "make_problem"]

Array = Any
PyTree = Any
State = list[Array]


@dataclass(frozen=True)
class Layout:
    """Which axes of the state are a batch, whose rows are stepped independently.

    Attributes
    ----------
    batch : tuple of int
        Sizes of the batch axes; ``()`` where one step size serves all.
    axes : tuple of tuple of int
        The batch axes of each leaf, ascending.
    shapes : tuple of tuple of int
        Shapes of the leaves.
    dtypes : tuple of dtype
        Dtypes of the absolute values of the leaves.
    others : tuple of tuple of int
        The axes of each leaf that are no batch axes.
    counts : tuple of int
        Number of elements of one row of each leaf.
    """

    library: Library
    batch: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]
    others: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]

    def spread(self, values: Array, place: int, lead: tuple[int, ...] = ()) -> Array:
        """Return values, one or of the batch's shape, so that they broadcast against leaf `place`.

        Axes in `lead` go before those of the batch, and before all of the leaf.
        """
        if not lead and (not self.batch or not values.shape):
            return values
        shape = [1] * len(self.shapes[place])
        for axis, size in zip(self.axes[place], self.batch, strict=True):
            shape[axis] = size
        return self.library.fast.reshape(values, (*lead, *shape))

    def widths(self, h: Array, lead: tuple[int, ...] = ()) -> list[Array]:
        """Return step lengths once for each leaf, in its dtype."""
        cast = self.library.cast
        return [self.spread(cast(h, dtype), i, lead) for i, dtype in enumerate(self.dtypes)]


@dataclass(frozen=True)
class Problem:
    """What is solved, checked.

    Attributes
    ----------
    rhs, args
        As given to `fullgraph.ode.solve`.
    tree : PyTree
        The initial state as given, for messages.
    treedef : PyTreeSpec
        Its structure.
    skeleton : PyTree
        The same, with the number of each leaf in its place.
    y0 : list of array
        Its leaves.
    ts : array
        Output times, in the dtype in which times are computed.
    values : list of float or None
        The same as Python floats; None where they are traced.
    """

    library: Library
    rhs: Callable[..., PyTree]
    args: tuple[Any, ...]
    tree: PyTree
    treedef: Any
    y0: State
    ts: Array
    values: list[float] | None
    layout: Layout
    device: Any
    skeleton: PyTree

    @property
    def bare(self) -> bool:
        """Whether the state is one array, with no tree around it."""
        return bool(optree.treespec_is_leaf(self.treedef))

    def derivative(
        self, sign: Any = 1.0, limits: tuple[Array, Array] | None = None
    ) -> Callable[[Array, State], State]:
        """Return ``f(t, leaves)``, which checks what the right-hand side gives.

        Parameters
        ----------
        sign : float or array
            Direction of time: with -1, `t` counts backwards and slopes are those over it.
        limits : pair of array, optional
            Times before and after which the right-hand side is not asked: it has jumps there.
        """
        rhs, args, skeleton, layout = self.rhs, self.args, self.skeleton, self.layout
        library, bare, count = self.library, self.bare, len(self.y0)
        forward = isinstance(sign, float) and sign == 1.0
        dtype = layout.dtypes[0]

        def f(t: Array, y: State) -> State:
            if limits is not None:
                fast = library.fast
                held = fast.where(t < limits[0], limits[0], fast.where(t > limits[1], limits[1], t))
                t = t + library.stopped(held - t)  # the gradient of a time that was not held
            t = layout.spread(library.cast(t if forward else sign * t, dtype), 0)
            if bare:
                slope = rhs(t, y[0], *args)
                check_slope(slope, y[0])
                return [slope if forward else sign * slope]
            result = rhs(t, filled(skeleton, y), *args)
            slopes: State = [None] * count
            if not collected(skeleton, result, slopes):
                raise DerivativeError(
                    f"the right-hand side gives {describe(result)} for the state "
                    f"{describe(self.tree)}. It must give one derivative for each leaf, in the "
                    f"same structure."
                )
            for i, (slope, leaf) in enumerate(zip(slopes, y, strict=True)):
                check_slope(slope, leaf, self.tree, i)
            return slopes if forward else [sign * slope for slope in slopes]

        return f

    def state(self, leaves: Sequence[Array]) -> PyTree:
        """Return leaves as a tree like the initial state."""
        return unflatten(self.treedef, leaves)


def check_slope(slope: Any, leaf: Array, tree: PyTree = 0.0, place: int = 0) -> None:
    """Refuse a derivative that is not like its leaf of the state: it would broadcast silently."""
    if not hasattr(slope, "shape") or not hasattr(slope, "dtype"):
        path = leaf_path(tree, place, "y")
        raise DerivativeError(
            f"the derivative of {path} is {type(slope).__qualname__}, which is no array. Return an "
            f"array like {path}, such as xp.zeros_like(y)."
        )
    if slope.shape != leaf.shape:
        path = leaf_path(tree, place, "y")
        raise DerivativeError(
            f"the derivative of {path} has shape {tuple(slope.shape)}, and {path} has shape "
            f"{tuple(leaf.shape)}. They must be the same: reshape or broadcast in the right-hand "
            f"side."
        )
    if slope.dtype != leaf.dtype:
        path = leaf_path(tree, place, "y")
        raise DerivativeError(
            f"the derivative of {path} is {dtype_name(slope.dtype)}, and {path} is "
            f"{dtype_name(leaf.dtype)}. They must be the same: give y0 the dtype that the "
            f"right-hand side computes, or cast in it."
        )


def make_problem(
    rhs: Callable[..., PyTree],
    y0: PyTree,
    ts: Any,
    args: Any,
    batch_dims: Any,
) -> Problem:
    """Flatten and check the arguments of a solve.

    Raises
    ------
    UsageError
        If an argument is outside what is accepted.
    LoopTypeError
        If arrays of two libraries meet.
    """
    if not callable(rhs):
        raise UsageError(f"rhs must be a function rhs(t, y, *args), and is {rhs!r}.")
    if not isinstance(args, (tuple, list)):
        raise UsageError(
            f"args must be a tuple of further arguments of rhs, and is a {type(args).__qualname__}."
            f" Write args=(value,) for one."
        )
    library = library_of(y0, ts)
    leaves, treedef = flatten(y0)
    if not leaves:
        raise UsageError("y0 has no leaves: there is nothing to solve.")
    leaves, device = _floating(library, y0, leaves, ts)
    dtypes = tuple(library.real_dtype(leaf.dtype) for leaf in leaves)
    times, values = _times(library, ts, dtypes[0], device)
    layout = _layout(library, y0, leaves, dtypes, batch_dims)
    skeleton = unflatten(treedef, list(range(len(leaves))))
    return Problem(
        library, rhs, tuple(args), y0, treedef, leaves, times, values, layout, device, skeleton
    )


def _floating(library: Library, y0: PyTree, leaves: State, ts: Any) -> tuple[State, Any]:
    """Return the leaves as floating arrays, and the device of the first."""
    arrays = [leaf for leaf in leaves if type(leaf) not in SCALAR_KINDS]
    device = None if library.is_jax else library.device_of((arrays or [ts])[0])
    like = next((a.dtype for a in arrays if dtype_kind(a.dtype) == "float"), None)
    if like is None:
        like = getattr(ts, "dtype", None) if not arrays else None
    found = []
    for i, leaf in enumerate(leaves):
        if type(leaf) in SCALAR_KINDS:
            if isinstance(leaf, complex) or like is None:
                raise UsageError(
                    f"{leaf_path(y0, i, 'y0')} is the Python number {leaf!r}: give it as an array."
                )
            leaf = library.xp.asarray(float(leaf), dtype=like, device=device)
        if dtype_kind(leaf.dtype) not in ("float", "complex"):
            raise UsageError(
                f"{leaf_path(y0, i, 'y0')} is {dtype_name(leaf.dtype)}, and a state must be "
                f"floating: convert it with xp.asarray(..., dtype=xp.float64)."
            )
        found.append(leaf)
    return found, device


def _times(library: Library, ts: Any, dtype: Any, device: Any) -> tuple[Array, list[float] | None]:
    """Return the output times as a floating 1-d array, strictly monotonic, and their values."""
    values = None
    if not (hasattr(ts, "dtype") and hasattr(ts, "shape")):
        try:
            values = [float(t) for t in ts]
        except (TypeError, ValueError) as error:
            raise UsageError(
                f"ts must be a 1-d array of times or a list of numbers, and is {ts!r}."
            ) from error
        ts = library.xp.asarray(values, dtype=dtype, device=device)
    elif library.is_jax and backend_of(ts) is Backend.NUMPY:
        if len(ts.shape) == 1 and dtype_kind(ts.dtype) in ("int", "float"):
            values = [float(t) for t in ts.tolist()]  # known even while jax.jit traces
        ts = library.xp.asarray(ts)
    if dtype_kind(ts.dtype) == "int":
        ts = library.cast(ts, dtype)
    if dtype_kind(ts.dtype) != "float":
        raise UsageError(f"ts must be floating, and is {dtype_name(ts.dtype)}.")
    if len(ts.shape) != 1 or ts.shape[0] < 1:
        raise UsageError(
            f"ts must be 1-d with at least one time, the initial one, and has shape "
            f"{tuple(ts.shape)}."
        )
    if values is None and library.known(ts):
        values = library.values(ts)
    if values is not None:
        _check_times(values)
    return ts, values


def _check_times(values: list[float]) -> None:
    if not all(map(math.isfinite, values)):
        raise UsageError(f"ts must be finite, and is {_short(values)}.")
    ordered = sorted(values)
    if len(set(values)) != len(values) or values not in (ordered, ordered[::-1]):
        raise UsageError(
            f"ts must be strictly increasing or strictly decreasing, and is not: {_short(values)}."
        )


def _short(values: list[float]) -> str:
    if len(values) <= 8:
        return repr(values)
    return f"[{', '.join(map(repr, values[:4]))}, ..., {values[-1]!r}]"


def _layout(
    library: Library, y0: PyTree, leaves: State, dtypes: tuple[Any, ...], batch_dims: Any
) -> Layout:
    """Return the batch axes of all leaves, checked against each other."""
    shapes = tuple(tuple(int(n) for n in leaf.shape) for leaf in leaves)
    if isinstance(batch_dims, bool) or not isinstance(batch_dims, (int, tuple)):
        raise UsageError(
            f"batch_dims must be a number of leading axes or a tuple of axes, and is "
            f"{batch_dims!r}."
        )
    wanted = tuple(range(batch_dims)) if isinstance(batch_dims, int) else batch_dims
    batch: tuple[int, ...] | None = None
    axes = []
    for i, shape in enumerate(shapes):
        if not all(-len(shape) <= axis < len(shape) for axis in wanted):
            raise UsageError(
                f"batch_dims is {batch_dims!r}, and {leaf_path(y0, i, 'y0')} has shape {shape}, "
                f"which has no such axes."
            )
        own = tuple(axis % len(shape) for axis in wanted)
        if list(own) != sorted(set(own)):
            raise UsageError(f"batch_dims must be ascending and distinct, and is {batch_dims!r}.")
        sizes = tuple(shape[axis] for axis in own)
        if batch is not None and sizes != batch:
            raise UsageError(
                f"the batch axes of {leaf_path(y0, i, 'y0')} have sizes {sizes}, and those of "
                f"{leaf_path(y0, 0, 'y0')} have {batch}. All leaves must share the batch."
            )
        batch = sizes
        axes.append(own)
    others, counts = [], []  # loops, since torch.compile does not take nested generators
    for shape, own in zip(shapes, axes, strict=True):
        rest = [d for d in range(len(shape)) if d not in own]
        count = 1
        for d in rest:
            count *= shape[d]
        others.append(tuple(rest))
        counts.append(count)
    return Layout(library, batch or (), tuple(axes), shapes, dtypes, tuple(others), tuple(counts))
