"""Gradients in less memory: the carry is saved every few steps, and the rest computed again.

The forward runs without saving, segment by segment, and keeps the carry at the start of each. The
backward takes the segments from the last to the first: it runs one forward again, this time saving,
into memory that all segments share, and then goes back through it. With segments of about the
square root of the number of steps, memory grows with that root, and time by one forward pass.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from fullgraph.native.allocate import contiguous_strides
from fullgraph.native.gradient.loops import Gradients, Saved, dense
from fullgraph.native.gradient.split import Source
from fullgraph.native.loaded import torch_dtype
from fullgraph.native.runtime import stacked_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fullgraph.native.gradient.loops import GradientLoops
    from fullgraph.native.ir import Node

__all__ = ["Segments", "run_backward", "run_forward", "segment_length"]


LEAST_WORK: Final = 100_000  # additions of a segment; shorter ones cost more to start than to run
FEWEST: Final = 25  # segments that a loop is cut into, however short they get


def segment_length(steps: int, every: int | None, work: int = LEAST_WORK) -> int:
    """Return how many steps a segment has.

    Parameters
    ----------
    steps : int
        Of the loop. Without steps there is nothing to cut: 0.
    every : int, optional
        What was asked for.
    work : int
        Additions of a step. About the square root of `steps` takes least memory; where steps are
        so small that segments would take longer to start than to run, segments are longer.
    """
    root = math.isqrt(max(steps - 1, 0)) + 1
    longer = min(-(-steps // FEWEST), LEAST_WORK // max(work, 1))
    return min(steps, every or max(root, longer))


@dataclass(frozen=True)
class Segments:
    """The steps of a loop, cut into segments of one length, the last one perhaps shorter."""

    steps: int
    length: int
    reverse: bool

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.steps // self.length)

    @property
    def order(self) -> tuple[int, int]:
        """First row and stride of the forward loop."""
        return (self.steps - 1, -1) if self.reverse else (0, 1)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first step of a segment, and that of the next."""
        return number * self.length, min(self.steps, (number + 1) * self.length)


def _rows(node: Node, count: int) -> torch.Tensor:
    strides = (node.size, *contiguous_strides(node.shape))
    return stacked_rows(count, node.shape, strides, torch_dtype(node.dtype))


def _bytes(node: Node) -> int:
    return node.size * node.dtype.size


def run_forward(
    loops: GradientLoops,
    init: Sequence[torch.Tensor],
    xs: Sequence[torch.Tensor],
    consts: Sequence[torch.Tensor],
    segments: Segments,
) -> tuple[list[torch.Tensor], Saved]:
    """Run the loop, keeping the carry at the start of each segment."""
    joint, (forward, compiled) = loops.joint, loops.plain()
    compiled.check_memory(segments.steps)
    xs = [dense(t) for t in xs]
    every = [dense(t) for t in (*consts, *joint.constants)]
    starts = [_rows(leaf, segments.count) for leaf in joint.carry]
    final = [_rows(leaf, 1)[0] for leaf in joint.carry]
    ys = [_rows(y, segments.steps) for y in joint.ys]
    for rows, result, leaf in zip(starts, final, init, strict=True):
        (rows[0] if segments.count else result).copy_(leaf)
    rest = [t.data_ptr() for t in (*xs, *(every[i] for i in forward.consts))]
    places = [(t.data_ptr(), -_bytes(leaf)) for t, leaf in zip(starts, joint.carry, strict=True)]
    last = [t.data_ptr() for t in final]
    targets = [y.data_ptr() for y in ys]
    for number in range(segments.count):
        before = _at(places, number)
        after = _at(places, number + 1)
        compiled.run_steps(
            before,
            rest,
            last if number + 1 == segments.count else after,
            targets,
            segments.bounds(number),
            segments.order,
        )
    kept = {"y": ys, "x": xs, "const": every, "carry": starts}
    sources = [Source("carry", leaf.index) for leaf in joint.carry]
    sources += [Source("x", x.index) for x in joint.xs]
    sources += [Source("const", k) for k in range(len(every))]
    sources += [s for s in loops.needed if s.kind == "y" and s.index < len(ys)]
    tensors = tuple(kept[s.kind][s.index] for s in sources)
    own = sum(t.numel() * t.element_size() for t in starts)
    # What the backward fills again for each segment counts, too: it is there at the same time.
    own += _again_bytes(loops, segments.length)
    saved = Saved(segments.steps, segments.reverse, tuple(sources), tensors, own, segments.length)
    return [*final, *ys], saved


def _again_bytes(loops: GradientLoops, length: int) -> int:
    """Return the bytes of the rows that are computed again for a segment."""
    joint, forward = loops.joint, loops.forward
    carries = sum(_bytes(joint.carry[i]) for i in forward.carries)
    return length * sum(map(_bytes, forward.saved[len(joint.ys) :])) + (length + 1) * carries


# Where row 0 of a tensor would be if its first row were row `low`: base - low * bytes of a row.
_Place = tuple[int, int]


def _at(places: list[_Place], low: int) -> list[int]:
    return [base - low * size for base, size in places]


class _Replay:
    """The memory that all segments share, and where a segment's rows are in it."""

    def __init__(self, loops: GradientLoops, segments: Segments) -> None:
        joint, forward = loops.joint, loops.forward
        length, ys = segments.length, len(joint.ys)
        again = forward.saved[ys:]
        saved = [_rows(n, length) for n in again]
        carries = [_rows(joint.carry[i], length + 1) for i in forward.carries]
        end = [_rows(leaf, 1) for leaf in joint.carry]
        self.memory = (saved, carries, end)
        self.end = [t.data_ptr() for t in end]
        self.places: dict[Source, _Place] = {
            Source("y", ys + j): (t.data_ptr(), _bytes(n))
            for j, (t, n) in enumerate(zip(saved, again, strict=True))
        }
        # Into which row the carry at the start of a segment goes: (leaf, memory, bytes).
        self.first: list[tuple[int, int, int]] = []
        for i, rows in zip(forward.carries, carries, strict=True):
            size, base = _bytes(joint.carry[i]), rows.data_ptr()
            before, after = (base + size, base) if segments.reverse else (base, base + size)
            self.places[Source("carry", i)] = before, size
            self.places[Source("next", i)] = after, size
            self.first.append((i, base, size))
        self.targets = [self.places[Source("y", ys + j)] for j in range(len(saved))]
        self.targets += [self.places[Source("next", i)] for i in forward.carries]


def run_backward(
    loops: GradientLoops,
    saved: Saved,
    ct_carry: Sequence[torch.Tensor | None],
    ct_ys: Sequence[torch.Tensor | None],
) -> Gradients:
    """Return the gradients, going back segment by segment."""
    joint, steps, reverse = loops.joint, saved.steps, saved.reverse
    segments = Segments(steps, saved.segment, reverse)
    key, given = loops.cotangents(ct_carry, ct_ys)
    backward, compiled = loops.variant(*key)
    compiled.check_memory(steps, "the gradients of xs")
    held = dict(zip(saved.sources, saved.tensors, strict=True))
    starts = [held.pop(Source("carry", leaf.index)) for leaf in joint.carry]
    cts = {Source("ct", j): dense(t) for j, t in given.items()}
    init = {Source("init", leaf.index): t[0] for leaf, t in zip(joint.carry, starts, strict=True)}
    replay = _Replay(loops, segments)
    there = {s: (t.data_ptr(), 0) for s, t in (held | cts | init).items()} | replay.places
    # Memory of our own, not the caller's: the segments write into both in turn.
    turn = [t.clone() for t in loops.beginning(backward, ct_carry)]
    other = [torch.empty_like(t) for t in turn]
    rows = [_rows(y, steps) for y in backward.loop.ys]
    forward_again = loops.replay()
    calls = _Calls(
        forward_again[1].run_steps,
        compiled.run_steps,
        [(t.data_ptr(), -_bytes(leaf)) for t, leaf in zip(starts, joint.carry, strict=True)],
        [there[Source("x", x.index)][0] for x in joint.xs]
        + [there[Source("const", k)][0] for k in forward_again[0].consts],
        [there[s] for s in (*backward.rows, *backward.consts)],
        [y.data_ptr() for y in rows],
    )
    pair = [t.data_ptr() for t in turn], [t.data_ptr() for t in other]
    turns = _go_back(segments, replay, calls, pair)
    return loops.gradients(backward, [*(other if turns % 2 else turn), *rows])


@dataclass(frozen=True)
class _Calls:
    """What is called for a segment, and with what."""

    again: Callable[..., None]
    back: Callable[..., None]
    starts: list[_Place]
    again_rest: list[int]
    back_rest: list[_Place]
    back_targets: list[int]


def _go_back(
    segments: Segments, replay: _Replay, calls: _Calls, pair: tuple[list[int], list[int]]
) -> int:
    """Run all segments, the last one first; return how many there were.

    A short segment takes a few microseconds, so there is nothing here that could be outside.
    """
    steps, reverse, order = segments.steps, segments.reverse, segments.order
    backwards = (0, 1) if reverse else (steps - 1, -1)
    turn, other = pair
    for number in range(segments.count - 1, -1, -1):
        begin = number * segments.length
        end = min(steps, begin + segments.length)
        low = steps - end if reverse else begin
        before = _at(calls.starts, number)
        for leaf, base, size in replay.first:
            ctypes.memmove(base + (end - begin) * size if reverse else base, before[leaf], size)
        targets = _at(replay.targets, low)
        calls.again(before, calls.again_rest, replay.end, targets, (begin, end), order)
        rest = _at(calls.back_rest, low)
        span = (steps - end, steps - begin)
        calls.back(turn, rest, other, calls.back_targets, span, backwards)
        turn, other = other, turn
    return segments.count
