"""torchdiffeq's two functions, with its signatures, method names and meanings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fullgraph.backends import Backend
from fullgraph.errors import SolveFailedError, UsageError
from fullgraph.loops._tree import flatten
from fullgraph.ode._between import states_between
from fullgraph.ode._control import Controller
from fullgraph.ode._grid import Grid, check_breakpoints, known_times
from fullgraph.ode._loops import choose_loops
from fullgraph.ode._on_grid import solve_on_grid
from fullgraph.ode._pieces import solve_adaptively
from fullgraph.ode._problem import make_problem
from fullgraph.ode._solution import Status
from fullgraph.ode.methods import find_method

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["odeint", "odeint_adjoint"]

Array = Any
PyTree = Any

#: torchdiffeq's names, and ours.
_ADAPTIVE: Final = {
    "dopri5": "dopri5",
    "tsit5": "tsit5",
    "bosh3": "bosh3",
    "fehlberg2": "fehlberg2",
    "adaptive_heun": "heun",
}
_FIXED: Final = {
    "euler": "euler",
    "midpoint": "midpoint",
    "heun2": "heun",
    "heun3": "heun3",
    "rk4": "rk4_38",
}
_NOT_OFFERED: Final = (
    *("dopri8", "explicit_adams", "implicit_adams", "fixed_adams", "scipy_solver"),
)
_ADAPTIVE_OPTIONS: Final = (
    *("first_step", "safety", "ifactor", "dfactor", "max_step", "max_num_steps"),
    *("step_t", "jump_t"),
)
_FIXED_OPTIONS: Final = ("step_size", "grid_constructor", "interp")
_CALLBACKS: Final = ("callback_step", "callback_accept_step", "callback_reject_step")
_MOST_TRACED: Final = 4096


def odeint(
    func: Callable[[Array, PyTree], PyTree],
    y0: PyTree,
    t: Any,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Any = None,
) -> PyTree:
    """Solve ``dy/dt = func(t, y)``, ``y(t[0]) = y0``, called as torchdiffeq's `odeint` is.

    Parameters
    ----------
    func : callable
        ``func(t, y)``: a function or a ``torch.nn.Module``.
    y0 : PyTree
        An array or a tuple of arrays; any other tree too. NumPy and JAX arrays as well as torch
        tensors.
    t : array
        Output times, strictly increasing or decreasing, the initial one first.
    rtol, atol : float or PyTree
        Tolerances of adaptive methods; a tuple gives one for each part of `y0`.
    method : str, optional
        Adaptive: ``"dopri5"`` (the default), ``"bosh3"``, ``"fehlberg2"``, ``"adaptive_heun"``,
        and ``"tsit5"``. Fixed steps: ``"euler"``, ``"midpoint"``, ``"heun2"``, ``"heun3"``,
        ``"rk4"``, which is the 3/8 rule.
    options : dict, optional
        Adaptive: ``first_step``, ``safety``, ``ifactor``, ``dfactor``, ``max_step``,
        ``max_num_steps``, ``step_t``, ``jump_t``. Fixed: ``step_size``, ``grid_constructor``,
        ``interp`` (``"linear"``, the default, or ``"cubic"``).
    event_fn : None
        Events are not offered.

    Returns
    -------
    PyTree
        Like `y0`, with a leading axis of ``len(t)`` on each leaf.

    Raises
    ------
    UsageError
        (a ValueError) for what is not offered, with what there is instead.
    SolveFailedError
        If an adaptive solve does not get to the end. Inside of ``jax.jit`` nothing can be raised:
        states that were not reached are NaN there.
    DerivativeError
        (a TypeError) if `func` gives anything that is not like `y`.

    Notes
    -----
    Loops are those of ``loop="auto"``: the registered adapter of the library, or plain Python. One
    step size serves all of `y0`, as in torchdiffeq; `fullgraph.ode.solve` has `batch_dims`. The
    step controller is this package's, so steps are not the same ones. Gradients flow through the
    steps taken, to `y0`, `t` and everything that `func` closes over.

    Examples
    --------
    >>> import numpy as np
    >>> ys = odeint(lambda t, y: -y, np.asarray([1.0]), np.asarray([0.0, 1.0]))
    >>> np.round(ys[:, 0], 6).tolist()
    [1.0, 0.367879]
    """
    _refuse_events(event_fn)
    return _Call.make(func, rtol, atol, method, options).run(func, y0, t)


def odeint_adjoint(
    func: Any,
    y0: PyTree,
    t: Any,
    *,
    rtol: Any = 1e-7,
    atol: Any = 1e-9,
    method: str | None = None,
    options: dict[str, Any] | None = None,
    event_fn: Any = None,
    adjoint_rtol: Any = None,
    adjoint_atol: Any = None,
    adjoint_method: str | None = None,
    adjoint_options: dict[str, Any] | None = None,
    adjoint_params: Sequence[Any] | None = None,
) -> PyTree:
    """Solve as `odeint` does, with gradients from a second solve, backwards in time.

    Memory does not grow with the number of steps. Gradients are those of the differential equation,
    not of the steps taken, and are as exact as the backward solve.

    Parameters
    ----------
    func, y0, t, rtol, atol, method, options, event_fn : as in `odeint`
        The same, for torch tensors only.
    adjoint_rtol, adjoint_atol, adjoint_method, adjoint_options : optional
        The same for the backward solve; by default those of the forward one.
        ``adjoint_options={"norm": "seminorm"}`` leaves the gradients of parameters out of the error
        norm.
    adjoint_params : sequence of Tensor, optional
        What to differentiate with respect to, beside `y0` and `t`; by default the parameters of
        `func`, which must be a ``torch.nn.Module`` then.

    Returns
    -------
    PyTree
        As `odeint`.

    Raises
    ------
    UsageError
        (a ValueError) for what is not offered, for arrays of another library, and if there is
        nothing that says what the parameters are.
    SolveFailedError
        If one of the two solves does not get to the end.
    """
    _refuse_events(event_fn)
    leaves = flatten(y0)[0]
    from fullgraph.backends import backend_of

    if not leaves or any(backend_of(leaf) is not Backend.TORCH for leaf in leaves):
        raise UsageError(
            "odeint_adjoint is for torch tensors, whose gradients it defines. Use odeint: on JAX "
            "its result is differentiated as it is."
        )
    from fullgraph.ode._adjoint_torch import solve_with_adjoint

    forward = _Call.make(func, rtol, atol, method, options)
    backward_options = dict((options or {}) if adjoint_options is None else adjoint_options)
    seminorm = backward_options.pop("norm", None)
    if seminorm not in (None, "seminorm"):
        raise UsageError('adjoint_options["norm"] may be "seminorm"; other norms are not offered.')
    if adjoint_method not in (None, method) and options is not None and adjoint_options is None:
        raise UsageError(
            "adjoint_method differs from method, and options belong to method: give "
            "adjoint_options too."
        )
    backward = _Call.make(
        func,
        _one_number("rtol", rtol, adjoint_rtol),
        _one_number("atol", atol, adjoint_atol),
        adjoint_method or method,
        backward_options,
    )
    return solve_with_adjoint(
        func, y0, t, forward, backward, adjoint_params, seminorm=seminorm is not None
    )


def _one_number(name: str, forward: Any, given: Any) -> Any:
    value = forward if given is None else given
    if len(flatten(value)[0]) != 1 or isinstance(value, (tuple, list)):
        raise UsageError(
            f"{name} has several parts, and the backward solve has a state of its own: give "
            f"adjoint_{name} as one number."
        )
    return value


def _refuse_events(event_fn: Any) -> None:
    if event_fn is not None:
        raise UsageError(
            "event_fn is not offered yet: solve on a fine t, or look for the event with "
            "fullgraph.ode.solve(...).interpolate."
        )


@dataclass(frozen=True)
class _Call:
    """How to solve: what `odeint` was told beside the problem."""

    method: Method
    adaptive: bool
    rtol: Any
    atol: Any
    options: dict[str, Any]

    @classmethod
    def make(
        cls, func: Any, rtol: Any, atol: Any, method: Any, options: dict[str, Any] | None
    ) -> _Call:
        """Check what does not depend on the problem."""
        name = "dopri5" if method is None else method
        offered = {**_ADAPTIVE, **_FIXED}
        if name in _NOT_OFFERED or name not in offered:
            why = "is not offered" if name in _NOT_OFFERED else "is unknown"
            raise UsageError(f"method {name!r} {why}: choose one of {', '.join(offered)}.")
        adaptive = name in _ADAPTIVE
        given = dict(options or {})
        known = _ADAPTIVE_OPTIONS if adaptive else _FIXED_OPTIONS
        kind = "adaptive" if adaptive else "fixed steps"
        if given.get("min_step") == 0:
            given.pop("min_step")
        if given.get("perturb") is False:
            given.pop("perturb")
        for option in given:
            if option not in known:
                advice = _ADVICE.get(option, "leave it out")
                raise UsageError(
                    f"option {option!r} is not offered for {name} ({kind}): {advice}. Offered are "
                    f"{', '.join(known)}."
                )
        for callback in _CALLBACKS:
            if getattr(func, callback, None) is not None:
                raise UsageError(
                    f"func has {callback}, and callbacks are not offered: a loop that is compiled "
                    f"whole cannot call back. fullgraph.ode.solve(...).stats has the numbers of "
                    f"steps."
                )
        return cls(find_method(offered[name]), adaptive, rtol, atol, given)

    def run(self, func: Callable[..., PyTree], y0: PyTree, t: Any) -> PyTree:
        """Solve one problem."""
        problem = make_problem(func, y0, t, (), 0)
        return self._adaptive(problem) if self.adaptive else self._fixed(problem)

    def _adaptive(self, problem: Problem) -> PyTree:
        import dataclasses

        library, options = problem.library, self.options
        if not library.is_jax:  # as torchdiffeq: times in double precision, whatever the state's
            double = library.cast(problem.ts, library.xp.float64)
            problem = dataclasses.replace(problem, ts=double)
        loops = choose_loops(library, "auto")
        if int(problem.ts.shape[0]) == 1:
            return problem.state([leaf[None, ...] for leaf in problem.y0])
        order = self.method.estimate_order
        assert order is not None
        longest = options.get("max_step")
        controller = Controller(
            order,
            safety=float(options.get("safety", 0.9)),
            shrink=float(options.get("dfactor", 0.2)),
            grow=float(options.get("ifactor", 10.0)),
            longest=None if longest is None or longest == math.inf else float(longest),
        )
        points = [*_floats(options.get("step_t")), *_floats(options.get("jump_t"))]
        first = options.get("first_step")
        default = _MOST_TRACED if library.is_jax else 2**31 - 1
        solution = solve_adaptively(
            problem,
            self.method,
            loops,
            controller,
            (self.rtol, self.atol),
            check_breakpoints(problem, points),
            None if first is None else float(first),
            int(options.get("max_num_steps", default)),
        )
        if library.known(solution.codes) and solution.status is not Status.SUCCESS:
            raise SolveFailedError(
                f"odeint got to t = {float(solution.t)} and not to the end: "
                f"{solution.status.value}."
            )
        return solution.ys

    def _fixed(self, problem: Problem) -> PyTree:
        loops = choose_loops(problem.library, "auto")
        options = self.options
        interp = options.get("interp", "linear")
        if interp not in ("linear", "cubic"):
            raise UsageError(f'option "interp" must be "linear" or "cubic", and is {interp!r}.')
        step, construct = options.get("step_size"), options.get("grid_constructor")
        if step is not None and construct is not None:
            raise UsageError("options step_size and grid_constructor exclude each other.")
        if int(problem.ts.shape[0]) == 1:
            step = construct = None
        if step is None and construct is None:
            grid = Grid(problem.ts, None, None)
            return solve_on_grid(problem, self.method, loops, grid, checkpoint=False).ys
        times = self._grid(problem) if step is None else _even_grid(problem, float(step))
        states = states_between(problem, self.method, loops, times, cubic=interp == "cubic")
        return problem.state(states)

    def _grid(self, problem: Problem) -> Array:
        made = self.options["grid_constructor"](problem.rhs, problem.state(problem.y0), problem.ts)
        times = problem.library.array(made, problem.ts.dtype, problem.device)
        values, given = problem.library.values(times), known_times(problem, "grid_constructor")
        if values[0] != given[0] or values[-1] != given[-1]:
            raise UsageError(
                f"the grid of grid_constructor must begin and end with t ({given[0]} and "
                f"{given[-1]}), and goes from {values[0]} to {values[-1]}."
            )
        return times


_ADVICE: Final = {
    "norm": "errors are measured as the largest root mean square among the parts of the state",
    "dtype": "times are computed in float64",
    "min_step": "the solve stops where steps become too small; min_step=0 is the same",
    "perturb": "use jump_t, or fullgraph.ode.solve with breakpoints=",
}


def _floats(values: Any) -> list[float]:
    if values is None:
        return []
    found = values.tolist() if hasattr(values, "tolist") else list(values)
    return [float(value) for value in found]


def _even_grid(problem: Problem, step: float) -> Array:
    """Return steps of one length from the first time, the last one cut short."""
    values = known_times(problem, "step_size")
    if not (step > 0 and math.isfinite(step)):
        raise UsageError(f"option step_size must be a positive number, and is {step!r}.")
    width = values[-1] - values[0]
    count = max(1, math.ceil(abs(width) / step))
    xp, ts = problem.library.xp, problem.ts
    signed = math.copysign(step, width)
    offsets = problem.library.array([i * signed for i in range(count)], ts.dtype, problem.device)
    return xp.concat([ts[:1] + offsets, ts[-1:]])
