"""Adaptive steps: the smooth pieces of a solve, one after the other, put together."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.ode._adaptive import Adaptive, Piece
from fullgraph.ode._dense import Records
from fullgraph.ode._fixed import Plan, run_steps
from fullgraph.ode._grid import inside
from fullgraph.ode._interpolate import direction, interpolant, with_first
from fullgraph.ode._solution import Solution, Stats, Status
from fullgraph.ode._tolerances import make_tolerances

if TYPE_CHECKING:
    from fullgraph.ode._control import Controller
    from fullgraph.ode._loops import Loops
    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["solve_adaptively"]

Array = Any
PyTree = Any
State = list[Array]


def solve_adaptively(
    problem: Problem,
    method: Method,
    loops: Loops,
    controller: Controller,
    tolerances: tuple[PyTree, PyTree],
    breakpoints: list[float],
    first: float | None,
    max_steps: int,
) -> Solution:
    """Take adaptive steps and return the solution."""
    library = problem.library
    if library.is_torch and problem.values is None:
        raise UsageError(
            "an adaptive solve inside of torch.compile is not supported: the number of its steps "
            "depends on values. Call it outside of the compiled function, or use fixed steps there."
        )
    sign = direction(problem)
    run = Adaptive(
        problem,
        method,
        loops,
        controller,
        make_tolerances(problem, *tolerances),
        sign,
        first,
        max_steps,
    )
    with loops.running():
        return _Pieces(run, breakpoints).solution()


class _Pieces:
    """The smooth pieces of an adaptive solve, one after the other."""

    def __init__(self, run: Adaptive, breakpoints: list[float]) -> None:
        self._run = run
        self._problem = run.problem
        self._xp = run.problem.library.xp
        self._breakpoints = breakpoints
        library = self._problem.library
        self._differentiated = False
        if library.may_record_gradients():
            slope = self._problem.derivative()(
                self._at_start(self._problem.ts[0]), self._problem.y0
            )
            inputs = [*self._problem.y0, self._problem.ts, *slope]
            self._differentiated = library.records_gradients(inputs)

    def _at_start(self, time: Array) -> Array:
        return self._xp.broadcast_to(time, self._problem.layout.batch)

    def solution(self) -> Solution:
        """Solve all pieces."""
        problem, xp, run = self._problem, self._xp, self._run
        if int(problem.ts.shape[0]) == 1:
            raise UsageError("an adaptive solve needs at least two times in ts, and got one.")
        pieces, outputs, final, time, records = self._solve(keep=False)
        accepted = sum((piece.accepted for piece in pieces[1:]), pieces[0].accepted)
        attempts = sum((piece.attempts for piece in pieces[1:]), pieces[0].attempts)
        reached = pieces[0].reached
        stuck = ~reached & ~(pieces[0].carry.step > 0)
        for piece in pieces[1:]:
            stuck = stuck | (reached & ~piece.reached & ~(piece.carry.step > 0))
            reached = reached & piece.reached
        codes = self._codes(reached, stuck, accepted)
        stages = run.method.tableau.stages
        each = stages - 1 if run.method.tableau.first_same_as_last else stages
        calls = attempts * each + (1 if run.first is not None else 2) * len(pieces)

        def kept() -> list[Records]:
            if records:
                return records
            with run.loops.running():
                return self._solve(keep=True)[4]

        def worst() -> int | None:
            return int(xp.max(codes)) if problem.library.known(codes) else None

        return Solution(
            problem.ts,
            problem.state(outputs),
            problem.state(final),
            run.sign * time,
            codes,
            Stats(accepted, attempts - accepted, calls),
            interpolant(problem, kept, run.sign),
            worst,
        )

    def _codes(self, reached: Array, stuck: Array, like: Array) -> Array:
        xp = self._xp
        if not self._problem.layout.batch and self._problem.library.known(like):
            status = Status.MAX_STEPS
            if bool(reached):
                status = Status.SUCCESS
            elif bool(stuck):
                status = Status.STEP_TOO_SMALL
            return xp.full_like(like, status.code)
        success, most, small = (xp.full_like(like, status.code) for status in Status)
        return xp.where(reached, success, xp.where(stuck, small, most))

    def _solve(self, *, keep: bool) -> tuple[list[Piece], State, State, Array, list[Records]]:
        problem, xp, run = self._problem, self._xp, self._run
        library, layout = problem.library, problem.layout
        times = run.sign * problem.ts
        ends = [run.sign * point for point in self._breakpoints]
        bounds = [times[0, ...], *(library.array(e, times.dtype, problem.device) for e in ends)]
        bounds.append(times[-1, ...])
        y, budget = problem.y0, run.max_steps
        alive: Array = None
        pieces: list[Piece] = []
        outputs: list[State] = []
        records: list[Records] = []
        final, time = y, bounds[0]
        for number, (start, end) in enumerate(pairwise(bounds)):
            more = number + 2 < len(bounds)
            asked = self._asked(times, ends, number)
            if more:  # the state at the breakpoint itself, as an output: right for gradients too
                asked = xp.concat([asked, end[None]])
            limits = self._limits(ends, number, times)
            piece, found, taken, reached_y = self._piece(
                y, start, end, asked, limits, keep=keep, budget=max(budget, 1)
            )
            if more:
                y, found = [leaf[-1, ...] for leaf in found], [leaf[:-1, ...] for leaf in found]
            if not library.is_jax:
                budget -= int(xp.max(piece.attempts))
            if alive is None:
                final, time, alive = reached_y, piece.carry.time, piece.reached
            else:
                masks = [layout.spread(alive, i) for i in range(len(final))]
                final = [xp.where(a, b, c) for a, b, c in zip(masks, reached_y, final, strict=True)]
                time = xp.where(alive, piece.carry.time, time)
                alive = alive & piece.reached
            pieces.append(piece)
            outputs.append(found)
            records += taken
        joined = outputs[0]
        if len(outputs) > 1:
            joined = [xp.concat(list(parts)) for parts in zip(*outputs, strict=True)]
        return pieces, joined, final, time, records

    def _piece(
        self,
        y: State,
        start: Array,
        end: Array,
        asked: Array,
        limits: tuple[Array, Array] | None,
        *,
        keep: bool,
        budget: int,
    ) -> tuple[Piece, State, list[Records], State]:
        """Solve one piece; return it, outputs, records if they are kept, and the last state."""
        run, library = self._run, self._problem.library
        if not self._differentiated:
            piece = run.piece(
                y, start, end, asked, limits=limits, keep=keep, dense=True, budget=budget
            )
            taken = [] if piece.records is None else [piece.records]
            return piece, piece.outputs, taken, piece.carry.state
        with library.without_gradients():
            fixed = [library.stopped(leaf) for leaf in y]
            piece = run.piece(
                fixed, start, end, asked, limits=limits, keep=False, dense=False, budget=budget
            )
        records = self._again(piece, y, start, limits)
        if records is None:
            return piece, run.only_start(piece.carry._replace(state=y), asked), [], y
        return (
            piece,
            run.filled(None, records, asked),
            [records],
            [s[-1, ...] for s in records.states],
        )

    def _again(
        self, piece: Piece, y: State, start: Array, limits: tuple[Array, Array] | None
    ) -> Records | None:
        """Take the accepted steps of a piece again, so that they are differentiated."""
        xp, problem, run = self._xp, self._problem, self._run
        ends = piece.ends
        count = int(xp.max(piece.accepted))
        if count == 0:
            return None
        inf = xp.full_like(ends[1:, ...], math.inf)
        order = xp.sort(xp.where(ends[1:, ...] > ends[:-1, ...], ends[1:, ...], inf), axis=0)
        order = xp.where(xp.isinf(order), ends[-1, ...], order)[:count, ...]
        times = xp.concat([ends[:1, ...], order])
        # Steps are as long as they were; when they begin depends on the initial time.
        times = times + (start - problem.library.stopped(start))
        columns = [times[:-1, ...], problem.library.stopped(times[1:, ...] - times[:-1, ...])]
        if limits is not None:
            columns += [xp.broadcast_to(bound, columns[0].shape) for bound in limits]
        again = Plan(_moved(problem, y), run.method, run.sign, limits is not None, save="dense")
        _, (states, slopes, middles) = run_steps(again, run.loops, xp.stack(columns, axis=1))
        s0 = self._at_start(start)
        begun = again.problem.derivative(run.sign, limits)(s0, y)
        return Records(
            problem.layout,
            times,
            [with_first(xp, a, b) for a, b in zip(y, states, strict=True)],
            [with_first(xp, a, b) for a, b in zip(begun, slopes, strict=True)],
            middles or None,
        )

    def _signed_values(self) -> list[float]:
        values = self._problem.values
        assert values is not None  # breakpoints were refused otherwise
        return [self._run.sign * value for value in values]

    def _asked(self, times: Array, ends: list[float], number: int) -> Array:
        """Return the output times of a piece: after its start, up to its end."""
        if not ends:
            return times
        values = self._signed_values()
        low = -math.inf if number == 0 else ends[number - 1]
        high = math.inf if number == len(ends) else ends[number]
        places = [i for i, value in enumerate(values) if low < value <= high]
        return times[places[0] : places[-1] + 1] if places else times[:0]

    def _limits(self, ends: list[float], number: int, times: Array) -> tuple[Array, Array] | None:
        if not ends:
            return None
        problem = self._problem
        values = self._signed_values()
        first, last = number == 0, number == len(ends)
        low, high = inside(
            problem,
            values[0] if first else ends[number - 1],
            values[-1] if last else ends[number],
            not first,
            not last,
        )
        make = problem.library.array
        return make(low, times.dtype, problem.device), make(high, times.dtype, problem.device)


def _moved(problem: Problem, y: State) -> Problem:
    """Return a problem with another initial state."""
    return dataclasses.replace(problem, y0=y)
