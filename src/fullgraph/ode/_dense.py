"""Dense output: states between the ends of steps.

Within a step the state is the cubic polynomial in time that has the values and slopes at both ends,
or the quartic one that has the method's own estimate half way as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.ode._problem import Layout

__all__ = ["Records", "between", "joined"]

Array = Any
State = list[Array]


@dataclass(frozen=True)
class Records:
    """Steps of a solve, in the order in which they were taken.

    Attributes
    ----------
    times : array of shape (n + 1, *batch)
        Ends of steps, the start first. A rejected step repeats the time before it.
    states, slopes : list of array of shape (n + 1, *leaf)
        State and derivative there. Without slopes states in between are linear.
    middles : list of array of shape (n, *leaf) or None
        State half way, less the state at the start of the step.
    """

    layout: Layout
    times: Array
    states: State
    slopes: State | None
    middles: State | None

    def at(self, times: Array) -> State:
        """Return the states at times.

        Parameters
        ----------
        times : array of shape (m,)
            At or after the first time. Beyond the last the polynomial of the last step goes on.

        Returns
        -------
        list of array of shape (m, *leaf)
        """
        layout = self.layout
        xp = layout.library.fast
        place = self._steps_around(times)
        pick = _Picker(layout, place)
        begun, ended = pick.control(self.times), pick.control(self.times, 1)
        length = ended - begun
        safe = xp.where(length > 0, length, xp.ones_like(length))
        asked = times
        if layout.batch:
            asked = xp.reshape(times, (-1, *([1] * len(layout.batch))))
        share = (asked - begun) / safe
        m = int(times.shape[0])
        shares, lengths = layout.widths(share, (m,)), layout.widths(length, (m,))
        found = []
        for i, (w, h) in enumerate(zip(shares, lengths, strict=True)):
            y0, y1 = pick.leaf(self.states[i], i), pick.leaf(self.states[i], i, 1)
            if self.slopes is None:
                found.append(y0 + w * (y1 - y0))
                continue
            f0, f1 = pick.leaf(self.slopes[i], i), pick.leaf(self.slopes[i], i, 1)
            middle = None if self.middles is None else pick.leaf(self.middles[i], i)
            # At the very start the slope may be anything: a solve that fails has nan there.
            found.append(xp.where(w == 0, y0, between(w, h, y0, y1, f0, f1, middle)))
        return found

    def _steps_around(self, times: Array) -> Array:
        """Return the numbers of the steps around times, of shape (m, *batch)."""
        batch = self.layout.batch
        xp = self.layout.library.xp if batch else self.layout.library.fast
        ends = self.times[1:, ...]
        last = int(ends.shape[0]) - 1
        if not batch:
            return xp.clip(xp.searchsorted(ends, times, side="left"), 0, last)
        # The standard has no batched search: halve the interval until it is one step.
        shape = (int(times.shape[0]), *batch)
        asked = xp.broadcast_to(xp.reshape(times, (-1, *([1] * len(batch)))), shape)
        low = xp.zeros(shape, dtype=self.layout.library.integer, **self._on_device())
        high = xp.full(shape, last, dtype=self.layout.library.integer, **self._on_device())
        for _ in range(max(1, last + 1).bit_length()):
            middle = (low + high) // 2
            before = _Picker(self.layout, middle).control(ends) < asked
            low = xp.where(before & (low < high), middle + 1, low)
            high = xp.where(before, high, middle)
        return xp.clip(low, 0, last)

    def _on_device(self) -> dict[str, Any]:
        return {"device": self.layout.library.device_of(self.times)}


class _Picker:
    """Takes the values at given steps out of arrays with a leading axis of steps.

    Parameters
    ----------
    layout : Layout
    steps : array of shape (m, *batch)
        Which steps, for each row of the batch.
    """

    def __init__(self, layout: Layout, steps: Array) -> None:
        self._layout = layout
        self._xp = layout.library.xp
        self._shape = tuple(int(n) for n in steps.shape)
        self._steps = self._xp.reshape(steps, (-1,))
        self._found: dict[int, Array] = {}
        self._rows = 1
        for size in layout.batch:
            self._rows *= size

    def _flat(self, offset: int) -> Array:
        known = self._found.get(offset)
        if known is None:
            known = self._found[offset] = self._numbers(offset)
        return known

    def _numbers(self, offset: int) -> Array:
        steps = self._steps + offset if offset else self._steps
        if not self._layout.batch:
            return steps
        xp = self._xp
        device = self._layout.library.device_of(steps)
        row = xp.arange(self._rows, dtype=steps.dtype, device=device)
        row = xp.reshape(xp.broadcast_to(row, (self._shape[0], self._rows)), (-1,))
        return steps * self._rows + row

    def control(self, array: Array, offset: int = 0) -> Array:
        """Return values of an array of shape (n, *batch), as (m, *batch)."""
        rows = self._layout.library.rows
        if not self._layout.batch:
            return rows(array, self._flat(offset))
        flat = self._xp.reshape(array, (-1,))
        return self._xp.reshape(rows(flat, self._flat(offset)), self._shape)

    def leaf(self, array: Array, place: int, offset: int = 0) -> Array:
        """Return values of an array of shape (n, *leaf), as (m, *leaf)."""
        xp, layout = self._xp, self._layout
        axes, others = layout.axes[place], layout.others[place]
        m, shape = self._shape[0], layout.shapes[place]
        if not axes:
            return layout.library.rows(array, self._flat(offset))
        order = (0, *(d + 1 for d in axes), *(d + 1 for d in others))
        moved = xp.permute_dims(array, order)
        rest = tuple(shape[d] for d in others)
        flat = xp.reshape(moved, (int(array.shape[0]) * self._rows, *rest))
        picked = layout.library.rows(flat, self._flat(offset))
        taken = xp.reshape(picked, (m, *layout.batch, *rest))
        return xp.permute_dims(taken, tuple(order.index(d) for d in range(len(order))))


def between(
    w: Array, h: Array, y0: Array, y1: Array, f0: Array, f1: Array, middle: Array | None
) -> Array:
    """Return the polynomial of a step at the share `w` of it."""
    rise = y1 - y0
    first, last = h * f0, h * f1
    if middle is None:
        return y0 + w * (
            first + w * ((3 * rise - 2 * first - last) + w * (first + last - 2 * rise))
        )
    fourth = 2 * (last - first) - 8 * rise + 16 * middle
    third = 5 * first - 3 * last + 14 * rise - 32 * middle
    second = last - 4 * first - 5 * rise + 16 * middle
    return y0 + w * (first + w * (second + w * (third + w * fourth)))


def joined(layout: Layout, start: tuple[Array, State, State], chunks: Sequence[Records]) -> Records:
    """Return the records of several runs of steps as one; `start` is what came before them."""
    xp = layout.library.fast
    concat = xp.concat

    def join(first: Array, arrays: list[Array]) -> Array:
        return concat([first[None, ...], *arrays])

    count = len(layout.shapes)
    times = join(start[0], [chunk.times for chunk in chunks])
    states = [join(start[1][i], [c.states[i] for c in chunks]) for i in range(count)]
    slopes = [join(start[2][i], [c.slopes[i] for c in chunks]) for i in range(count)]  # type: ignore[index]
    middles = None
    if chunks[0].middles is not None:
        middles = [concat([c.middles[i] for c in chunks]) for i in range(count)]  # type: ignore[index]
    return Records(layout, times, states, slopes, middles)
