"""Steps that an error estimate chooses, in runs of one compiled loop.

Every iteration of the loop tries one step for each row of the batch. It writes down where it got
to, accepted or not; outputs are found in these records afterwards, so that the loop itself knows
nothing of them. Rows that have finished, or cannot go on, stay where they are. Where the number of
iterations can be decided on the way, short runs follow each other until all rows have finished;
where it cannot (JAX traces once), one run has `max_steps` iterations, and what is left of them
after the end does nothing.

Inside, time always increases: for decreasing ts, ``s = -t`` is solved.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fullgraph.loops import cond
from fullgraph.ode._adaptive_bodies import first_body, step_body
from fullgraph.ode._adaptive_state import Carry, Piece, PlainCarry
from fullgraph.ode._dense import Records, joined
from fullgraph.ode._whole import first_carry, up_to_outputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.ode._control import Controller, Tolerances
    from fullgraph.ode._loops import Loops
    from fullgraph.ode._problem import Problem
    from fullgraph.ode.methods.base import Method

__all__ = ["Adaptive", "Piece"]

Array = Any
PyTree = Any
State = list[Array]

_EAGER_RUN = 16  # iterations of a run that is plain, or compiled for one length alone
_FIRST_RUN = 32  # iterations of the first compiled run, when nothing is known of the steps
_LONGEST_RUN = 4096
_MOST_KEPT = 2**28  # bytes of records that are kept before outputs are taken out of them


@dataclass(frozen=True)
class Adaptive:
    """An adaptive solve of one problem.

    Attributes
    ----------
    sign : float or array
        Direction of time.
    first : float or None
        First step to try; chosen if None.
    max_steps : int
        Most iterations.
    """

    problem: Problem
    method: Method
    loops: Loops
    controller: Controller
    tolerances: Tolerances
    sign: Any
    first: float | None
    max_steps: int

    def piece(
        self,
        y: State,
        start: Array,
        end: Array,
        asked: Array,
        *,
        limits: tuple[Array, Array] | None,
        keep: bool,
        dense: bool,
        budget: int,
    ) -> Piece:
        """Solve from `start` to `end`, between which the right-hand side is smooth.

        Parameters
        ----------
        y : list of array
            State at the start.
        start, end : 0-d array
            In increasing time.
        asked : array of shape (m,)
            Times of outputs, in increasing time.
        limits : pair of array or None
            Times before and after which the right-hand side is not asked.
        keep : bool
            Whether to keep all records.
        dense : bool
            Whether to record what outputs need; without, only times are recorded.
        budget : int
            Most iterations.
        """
        carry = self._start(y, start, end, limits)
        body = step_body(self, end, limits, dense=dense)
        if self.loops.traced and not self.loops.compiled:
            return self._at_once(body, carry, end, asked, budget, dense=dense)
        if dense and not keep and limits is None and self._fits_one_loop():
            return self._whole(body, carry, end, asked, budget)
        return self._in_runs(body, carry, end, asked, budget, keep=keep, dense=dense)

    def _start(
        self, y: State, start: Array, end: Array, limits: tuple[Array, Array] | None
    ) -> Carry:
        """Return what the loop starts with: the first slope and the first step to try."""
        xp, batch = self.problem.library.xp, self.problem.layout.batch
        s = xp.broadcast_to(start, batch) if batch else start
        zero = xp.zeros_like(s)
        carry = Carry(s, zero, zero, zero, y, y)
        body = first_body(self, end, limits)
        if self.loops.compiled:  # small operations, which cost more than steps outside of a loop
            body = self.loops.own_code(body, self.problem.rhs, self.method)
            return Carry(*self.loops.scan(body, tuple(carry), self._counter(1), 1)[0])
        return Carry(*body(tuple(carry), None)[0])

    def _going(self, carry: Carry, end: Array) -> bool:
        """Whether a row can go on, asked where values are known."""
        if not self.problem.layout.batch:
            return float(carry.step) > 0 and float(carry.time) < float(end)
        return bool(self.problem.library.xp.any(self._active(carry, end)))

    def _arrived(self, carry: Carry, end: Array) -> bool:
        """Whether all rows are known to have reached the end."""
        if self.loops.traced and not self.loops.compiled:
            return False
        if not self.problem.layout.batch:
            return float(carry.time) >= float(end)
        return bool(self.problem.library.xp.all(carry.time >= end))

    def _active(self, carry: Carry, end: Array) -> Array:
        return (carry.step > 0) & (carry.time < end)

    def _idle(self, carry: Carry, *, dense: bool) -> PyTree:
        """Return the record of an iteration in which all rows have finished."""
        if not dense:
            return carry.time
        fast = self.problem.library.fast
        middles = (
            [] if self.method.tableau.middle is None else [fast.zeros_like(k) for k in carry.state]
        )
        return carry.time, carry.state, carry.slope, middles

    def _in_runs(
        self,
        body: Callable[[PyTree, Any], tuple[PyTree, PyTree]],
        carry: Carry,
        end: Array,
        asked: Array,
        budget: int,
        *,
        keep: bool,
        dense: bool,
    ) -> Piece:
        """Run the loop in runs whose lengths are guessed from the steps that are left."""
        loops = self.loops
        if loops.compiled:
            run = loops.own_code(body, self.problem.rhs, self.method)
        else:

            def run(carry: PlainCarry, x: Any) -> tuple[PlainCarry, PyTree]:
                if self._going(Carry(*carry), end):
                    return body(carry, x)
                return carry, self._idle(Carry(*carry), dense=dense)

        start = self._point(carry)
        before, chunks, times = start, [], [start[0][None, ...]]
        outputs, taken, unread = None, 0, 0
        length = _FIRST_RUN if loops.any_length else _EAGER_RUN
        while taken < budget and self._going(carry, end):
            length = min(length, budget - taken)
            counter = self._counter(length)
            plain, record = loops.scan(run, tuple(carry), counter, length)
            carry = Carry(*plain)
            taken += length
            unread += length
            times.append(record[0] if dense else record)
            if dense:
                chunks.append(self._records(record))
                if not keep and unread * self._bytes_per_step() > _MOST_KEPT:
                    outputs = self.filled(
                        outputs, joined(self.problem.layout, before, chunks), asked
                    )
                    before, chunks, unread = self._point(carry), [], 0
            if loops.any_length:
                length = self._guess(carry, end)
        return self._finish(carry, end, asked, start, before, chunks, times, outputs, keep, dense)

    def _fits_one_loop(self) -> bool:
        return self.loops.nests and not self.problem.layout.batch

    def _whole(
        self,
        body: Callable[[PyTree, Any], tuple[PyTree, PyTree]],
        carry: Carry,
        end: Array,
        asked: Array,
        budget: int,
    ) -> Piece:
        """Run all steps in one compiled loop, which gives the outputs itself."""
        problem, library = self.problem, self.problem.library
        most = library.array(float(budget), problem.ts.dtype, problem.device)
        middle = self.method.tableau.middle is not None
        begin = first_carry(tuple(carry), middle=middle)
        run = self.loops.own_code(
            up_to_outputs(problem, body, most, self.loops.while_loop), problem.rhs, self.method
        )
        last, outputs = self.loops.scan(run, begin, asked, None)
        carry = Carry(*last[0])
        return Piece(
            carry,
            None,
            outputs,
            library.cast(last[5], library.integer),
            library.cast(carry.tries, library.integer),
            carry.time >= end,
            carry.time,
        )

    def _counter(self, length: int) -> Array:
        """Return rows for a scan; compiled loops have their shortest call with an array of them."""
        if not self.loops.compiled:
            return None
        problem = self.problem
        return problem.library.xp.zeros((length,), dtype=problem.ts.dtype, device=problem.device)

    def _guess(self, carry: Carry, end: Array) -> int:
        """Return how many more steps the slowest row needs, if its steps stay as they are."""
        xp = self.problem.library.xp
        if not self.problem.layout.batch:
            h = float(carry.step)
            guess = (float(end) - float(carry.time)) / h if h > 0 else 0.0
        else:
            active = self._active(carry, end)
            one = xp.ones_like(carry.step)
            left = xp.where(active, (end - carry.time) / xp.where(active, carry.step, one), 0 * one)
            guess = float(xp.max(left))
        return int(min(max(guess * 1.05 + 2, 8), _LONGEST_RUN))

    def _bytes_per_step(self) -> int:
        arrays = 2 if self.method.tableau.middle is None else 3
        return sum(8 * math.prod(shape) for shape in self.problem.layout.shapes) * arrays

    def _point(self, carry: Carry) -> tuple[Array, State, State]:
        return carry.time, carry.state, carry.slope

    def _records(self, record: PyTree) -> Records:
        times, states, slopes, middles = record
        return Records(self.problem.layout, times, states, slopes, middles or None)

    def _at_once(
        self,
        body: Callable[[PyTree, Any], tuple[PyTree, PyTree]],
        carry: Carry,
        end: Array,
        asked: Array,
        budget: int,
        *,
        dense: bool,
    ) -> Piece:
        """Run all iterations in one traced loop; those after the end are skipped."""
        xp = self.problem.library.xp

        def run(carry: PlainCarry, x: Any) -> tuple[PlainCarry, PyTree]:
            result: tuple[PlainCarry, PyTree] = cond(
                xp.any(self._active(Carry(*carry), end)),
                lambda c: body(c, x),
                lambda c: (c, self._idle(Carry(*c), dense=dense)),
                carry,
            )
            return result

        start = self._point(carry)
        plain, record = self.loops.scan(run, tuple(carry), None, budget)
        carry = Carry(*plain)
        times = [start[0][None, ...], record[0] if dense else record]
        chunks = [self._records(record)] if dense else []
        return self._finish(carry, end, asked, start, start, chunks, times, None, True, dense)

    def filled(self, outputs: State | None, records: Records, asked: Array) -> State:
        """Return outputs with those of some records filled in."""
        problem = self.problem
        xp, layout = problem.library.xp, problem.layout
        m = int(asked.shape[0])
        found = records.at(asked)
        if outputs is None:
            outputs = [xp.full_like(leaf, math.nan) for leaf in found]
        t = xp.reshape(asked, (-1, *([1] * len(layout.batch))))
        covered = (t >= records.times[0, ...]) & (t <= records.times[-1, ...])
        masks = [layout.spread(covered, i, (m,)) for i in range(len(found))]
        return [xp.where(a, b, c) for a, b, c in zip(masks, found, outputs, strict=True)]

    def _finish(
        self,
        carry: Carry,
        end: Array,
        asked: Array,
        start: tuple[Array, State, State],
        before: tuple[Array, State, State],
        chunks: list[Records],
        times: list[Array],
        outputs: State | None,
        keep: bool,
        dense: bool,
    ) -> Piece:
        xp = self.problem.library.xp
        records = None
        if chunks:
            records = joined(self.problem.layout, before, chunks)
            if outputs is None and self._arrived(carry, end):
                outputs = records.at(asked)
            else:
                outputs = self.filled(outputs, records, asked)
        elif dense and outputs is None:
            outputs = self.only_start(carry, asked)
        library = self.problem.library
        ends = (
            records.times
            if records is not None and len(times) == len(chunks) + 1
            else xp.concat(times)
        )
        moved = library.cast(ends[1:, ...] > ends[:-1, ...], library.integer)
        attempts = library.cast(carry.tries, library.integer)
        return Piece(
            carry,
            records if keep else None,
            outputs or [],
            library.fast.sum(moved, axis=0),
            attempts,
            carry.time >= end,
            ends,
        )

    def only_start(self, carry: Carry, asked: Array) -> State:
        """Return the outputs of a solve that could not take one step."""
        xp, layout = self.problem.library.xp, self.problem.layout
        m = int(asked.shape[0])
        at_start = xp.reshape(asked, (-1, *([1] * len(layout.batch)))) <= carry.time
        found = []
        for i, leaf in enumerate(carry.state):
            mask = layout.spread(at_start, i, (m,))
            found.append(xp.where(mask, leaf, xp.full_like(leaf, math.nan)))
        return found
