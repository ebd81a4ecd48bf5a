"""`solve`: check, choose steps and loops, run, put the solution together."""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, Any

from fullgraph.backends import Backend, backend_of
from fullgraph.errors import UsageError
from fullgraph.loops._ops import SCALAR_KINDS
from fullgraph.loops._tree import flatten
from fullgraph.ode._control import Controller
from fullgraph.ode._grid import check_breakpoints, make_grid
from fullgraph.ode._loops import choose_loops, torch_adapter_that_nests
from fullgraph.ode._on_grid import solve_on_grid
from fullgraph.ode._pieces import solve_adaptively
from fullgraph.ode._problem import make_problem
from fullgraph.ode.methods import adaptive_methods, find_method

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fullgraph.ode._problem import Problem
    from fullgraph.ode._solution import Solution
    from fullgraph.ode.methods.base import Method

__all__ = ["solve"]

Array = Any
PyTree = Any


def solve(
    rhs: Callable[..., PyTree],
    y0: PyTree,
    ts: Any,
    *,
    args: Sequence[Any] = (),
    method: str = "tsit5",
    step: float | None = None,
    breakpoints: Sequence[float] | None = None,
    rtol: Any = None,
    atol: Any = None,
    batch_dims: int | tuple[int, ...] = 0,
    first_step: float | None = None,
    max_steps: int = 4096,
    loop: str = "eager",
    checkpoint: bool = False,
) -> Solution:
    """Solve an initial value problem ``dy/dt = rhs(t, y, *args)``, ``y(ts[0]) = y0``.

    With neither `rtol` nor `atol` steps are fixed: one for each output interval, or equal ones no
    longer than `step`. With both, an error estimate chooses them.

    Parameters
    ----------
    rhs : callable
        ``rhs(t, y, *args)`` gives the derivative of `y`: the same structure, shapes and dtypes. It
        is array-API code, and must not write into its arguments. `t` is a 0-d array in the dtype of
        the first leaf of `y`; in an adaptive solve with `batch_dims` it has one value for each row
        and broadcasts against that leaf.
    y0 : PyTree
        Floating or complex arrays in tuples, lists, dicts and namedtuples. Python numbers become
        arrays like the others, or like `ts`.
    ts : array or sequence of float
        Output times, strictly increasing or strictly decreasing; the first is the initial time.
    args : tuple
        Further arguments of `rhs`. Gradients flow to them as to what `rhs` closes over.
    method : str
        ``"euler"``, ``"heun"``, ``"midpoint"``, ``"heun3"``, ``"rk4"``, ``"rk4_38"``,
        ``"fehlberg2"``, ``"bosh3"``, ``"dopri5"`` or ``"tsit5"``; adaptive steps need one of heun,
        fehlberg2, bosh3, dopri5, tsit5.
    step : float, optional
        Longest fixed step. Every output time ends a step.
    breakpoints : sequence of float, optional
        Times at which `rhs` jumps. No step straddles them, and a step that touches one asks `rhs`
        on its own side only.
    rtol, atol : float, array or PyTree, optional
        Errors per step are kept below ``atol + rtol * max(abs(y))`` in the root mean square over
        each leaf (each row of it, with `batch_dims`). Either one number or array for all leaves, or
        a tree like `y0`.
    batch_dims : int or tuple of int, default 0
        How many leading axes of each leaf, or which axes, are a batch of independent problems. Each
        row has its own steps, the same as if it were solved alone; `rhs` must not mix rows.
    first_step : float, optional
        First adaptive step to try; chosen if left out.
    max_steps : int, default 4096
        Most adaptive steps of a row, rejected ones counted.
    loop : {"eager", "auto", "scan", "native"}
        Who runs the loop: plain Python; the registered adapter, if there is one; the registered
        adapter, which must be there; or the adapter of native loops, which need not be registered.
        JAX always runs ``jax.lax`` loops.
    checkpoint : bool, default False
        Whether fixed steps are computed again in the backward pass instead of being kept.

    Returns
    -------
    Solution
        Output times and states, how the solve ended, its cost, and the state at any time. Reaching
        `max_steps` raises nothing: `Solution.status` says so, and states at times that were not
        reached are NaN.

    Raises
    ------
    UsageError
        (a ValueError) if an argument is outside of what is accepted.
    DerivativeError
        (a TypeError) if `rhs` gives anything that is not like `y`.
    LoopError
        What `fullgraph.scan` raises: for a `rhs` that writes into its arguments, for one.

    Notes
    -----
    Gradients are those of the steps taken, of first order: steps are differentiated, the choice of
    their lengths is not. torch finds the steps of an adaptive solve without recording anything, and
    then takes the accepted ones again; JAX differentiates its one loop.

    JAX traces a solve once, so the loop of an adaptive solve has `max_steps` iterations, of which
    those after the end are skipped; put the call into ``jax.jit``, or each call is compiled anew.
    With `breakpoints`, `max_steps` counts for each smooth piece there. Under ``torch.compile``
    fixed steps are traced; adaptive ones are refused.

    With fixed steps that are shorter than the output intervals, the states at all of them are kept
    until the outputs are taken from them.

    Examples
    --------
    >>> import numpy as np
    >>> ts = np.linspace(0.0, 1.0, 3)
    >>> decay = solve(lambda t, y, k: -k * y, np.asarray([1.0]), ts, args=(2.0,), rtol=1e-9,
    ...               atol=1e-9)
    >>> decay.status.name, np.round(decay.ys[:, 0], 6).tolist()
    ('SUCCESS', [1.0, 0.367879, 0.135335])
    """
    if loop == "native" and callable(rhs) and _is_numpy(y0, ts):  # type: ignore[redundant-expr]
        from fullgraph.ode._numpy_torch import as_numpy, as_torch, torch_rhs

        solution = solve(
            torch_rhs(rhs),
            as_torch(y0),
            as_torch(ts),
            args=as_torch(args),
            method=method,
            step=step,
            breakpoints=breakpoints,
            rtol=as_torch(rtol),
            atol=as_torch(atol),
            batch_dims=batch_dims,
            first_step=first_step,
            max_steps=max_steps,
            loop=loop,
            checkpoint=checkpoint,
        )
        return as_numpy(solution)
    chosen = find_method(method)

    def ordinary() -> Solution:
        return _solve(
            make_problem(rhs, y0, ts, args, batch_dims),
            chosen,
            loop,
            breakpoints,
            (rtol, atol),
            step,
            first_step,
            max_steps,
            checkpoint=checkpoint,
        )

    if type(rtol) is type(atol) is float and step is None and not breakpoints and not checkpoint:
        found = _shortly(
            (rhs, y0, ts, args), chosen, loop, (rtol, atol), batch_dims, first_step, max_steps,
            ordinary,
        )  # fmt: skip
        if found is not None:
            return found
    return ordinary()


def _is_numpy(y0: PyTree, ts: Any) -> bool:
    """Whether the arrays of a problem are NumPy's, and torch is there to solve it natively."""
    leaves = flatten((y0, ts))[0]
    arrays = [leaf for leaf in leaves if type(leaf) not in SCALAR_KINDS]
    if not arrays or not all(backend_of(leaf) is Backend.NUMPY for leaf in arrays):
        return False
    return importlib.util.find_spec("torch") is not None


def _shortly(
    call: tuple[Any, Any, Any, Any],
    method: Method,
    loop: str,
    tolerances: tuple[float, float],
    batch_dims: Any,
    first: Any,
    most: Any,
    ordinary: Callable[[], Solution],
) -> Solution | None:
    """Solve one torch tensor adaptively with native loops; None where the call is any other."""
    _, y0, ts, args = call
    order = method.estimate_order
    if (
        order is None
        or type(y0).__module__ != "torch"
        or type(y0).__name__ != "Tensor"
        or type(ts) is not type(y0)
        or type(args) is not tuple
        or batch_dims not in (0, ())
        or not (first is None or (type(first) is float and 0 < first < math.inf))
        or not (type(most) is int and most > 0)
        or not (tolerances[0] >= 0 and tolerances[1] >= 0)
    ):
        return None
    adapter = torch_adapter_that_nests(loop)
    if adapter is None:
        return None
    from fullgraph.ode._short_torch import short_solve

    return short_solve(*call, (method, order), tolerances, first, most, adapter, ordinary)


def _solve(
    problem: Problem,
    method: Method,
    loop: str,
    breakpoints: Sequence[float] | None,
    tolerances: tuple[Any, Any],
    step: float | None,
    first_step: float | None,
    max_steps: int,
    *,
    checkpoint: bool,
) -> Solution:
    """Solve any problem."""
    rtol, atol = tolerances
    loops = choose_loops(problem.library, loop)
    points = check_breakpoints(problem, breakpoints)
    if rtol is None and atol is None:
        _refuse("first_step", first_step, "chooses adaptive steps, and needs rtol and atol")
        length = None if step is None else _positive("step", step)
        grid = make_grid(problem, length, points)
        return solve_on_grid(problem, method, loops, grid, checkpoint=bool(checkpoint))
    if rtol is None or atol is None:
        raise UsageError("rtol and atol go together: give both for adaptive steps, or neither.")
    _refuse("step", step, "is for fixed steps: use first_step, or leave out rtol and atol")
    if checkpoint:
        raise UsageError(
            "checkpoint=True is for fixed steps; adaptive ones keep one state for each accepted "
            "step. Leave out rtol and atol, or checkpoint."
        )
    controller = Controller(_estimate_order(method))
    first = None if first_step is None else _positive("first_step", first_step)
    return solve_adaptively(
        problem, method, loops, controller, (rtol, atol), points, first, _count(max_steps)
    )


def _refuse(name: str, value: object, why: str) -> None:
    if value is not None:
        raise UsageError(f"{name}= {why}.")


def _positive(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be a positive number, and is {value!r}.") from error
    if not (number > 0 and math.isfinite(number)):
        raise UsageError(
            f"{name} must be a positive number, and is {number!r}. The direction of time is that "
            f"of ts."
        )
    return number


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"max_steps must be an int that is at least 1, and is {value!r}.")
    return value


def _estimate_order(method: Method) -> int:
    order = method.estimate_order
    if order is None:
        raise UsageError(
            f"{method.name} has no error estimate, so its steps are fixed: leave out rtol and "
            f"atol, or choose one of {', '.join(adaptive_methods())}."
        )
    return order
