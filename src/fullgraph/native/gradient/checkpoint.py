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
from typing import TYPE_CHECKING

import torch

from fullgraph.native.allocate import contiguous_strides
from fullgraph.native.gradient.loops import Gradients, Saved, dense
from fullgraph.native.gradient.split import Source
from fullgraph.native.runtime import stacked_rows, torch_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.native.gradient.loops import GradientLoops
    from fullgraph.native.ir import Node

__all__ = ["Segments", "run_backward", "run_forward", "segment_length"]


def segment_length(steps: int, every: int | None) -> int:
    """Return how many steps a segment has; about the square root where none is asked for.

    Without steps there is nothing to cut: 0.
    """
    return min(steps, every or math.isqrt(max(steps - 1, 0)) + 1)


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

    def lowest_row(self, number: int) -> int:
        """Return the lowest row that a segment reads."""
        begin, end = self.bounds(number)
        return self.steps - end if self.reverse else begin


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
    places = [(t.data_ptr(), _bytes(leaf)) for t, leaf in zip(starts, joint.carry, strict=True)]
    last = [t.data_ptr() for t in final]
    targets = [y.data_ptr() for y in ys]
    for number in range(segments.count):
        before = [place + number * size for place, size in places]
        after = [p + size for p, (_, size) in zip(before, places, strict=True)]
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
    own += segments.length * sum(map(_bytes, _again(loops)))
    saved = Saved(segments.steps, segments.reverse, tuple(sources), tensors, own, segments.length)
    return [*final, *ys], saved


def _again(loops: GradientLoops) -> list[Node]:
    """Return the rows that are computed again: values saved, then the carry."""
    joint, forward = loops.joint, loops.forward
    return [*forward.saved[len(joint.ys) :], *(joint.carry[i] for i in forward.carries)]


@dataclass
class _Replay:
    """The memory that all segments share, and where a segment's rows are in it."""

    loops: GradientLoops
    segments: Segments

    def __post_init__(self) -> None:
        joint, forward = self.loops.joint, self.loops.forward
        length = self.segments.length
        self.saved = [_rows(n, length) for n in forward.saved[len(joint.ys) :]]
        self.carries = [_rows(joint.carry[i], length + 1) for i in forward.carries]
        self.end = [_rows(leaf, 1) for leaf in joint.carry]
        self.place = {i: k for k, i in enumerate(forward.carries)}

    def addresses(self, number: int) -> dict[Source, int]:
        """Return where row 0 would be, for all rows of a segment that are computed again."""
        low, reverse = self.segments.lowest_row(number), self.segments.reverse
        ys = len(self.loops.joint.ys)
        found: dict[Source, int] = {}
        for j, (tensor, node) in enumerate(
            zip(self.saved, self.loops.forward.saved[ys:], strict=True)
        ):
            found[Source("y", ys + j)] = tensor.data_ptr() - low * _bytes(node)
        for i, k in self.place.items():
            size = _bytes(self.loops.joint.carry[i])
            base = self.carries[k].data_ptr() - low * size
            found[Source("carry", i)] = base + (size if reverse else 0)
            found[Source("next", i)] = base + (0 if reverse else size)
        return found

    def fill(self, number: int, starts: list[int], rest: list[int]) -> dict[Source, int]:
        """Run a segment forward, saving; return where its rows are."""
        joint, forward = self.loops.joint, self.loops.forward
        _, compiled = self.loops.replay()
        begin, end = self.segments.bounds(number)
        found = self.addresses(number)
        for i, k in self.place.items():
            size = _bytes(joint.carry[i])
            first = (end - begin) * size if self.segments.reverse else 0
            ctypes.memmove(self.carries[k].data_ptr() + first, starts[i], size)
        ys = len(joint.ys)
        targets = [found[Source("y", ys + j)] for j in range(len(self.saved))]
        targets += [found[Source("next", i)] for i in forward.carries]
        compiled.run_steps(
            starts,
            rest,
            [t.data_ptr() for t in self.end],
            targets,
            (begin, end),
            self.segments.order,
        )
        return found


def run_backward(
    loops: GradientLoops,
    saved: Saved,
    ct_carry: Sequence[torch.Tensor | None],
    ct_ys: Sequence[torch.Tensor | None],
) -> Gradients:
    """Return the gradients, going back segment by segment."""
    joint = loops.joint
    segments = Segments(saved.steps, saved.segment, saved.reverse)
    kinds, given = loops.cotangents(ct_ys, saved.steps)
    backward, compiled = loops.variant(kinds)
    compiled.check_memory(saved.steps, "the gradients of xs")
    held = dict(zip(saved.sources, saved.tensors, strict=True))
    cts = {j: dense(t) for j, t in given.items()}
    starts = [held[Source("carry", leaf.index)] for leaf in joint.carry]
    # Memory of our own, not the caller's: the segments write into both in turn.
    turn = [t.clone() for t in loops.beginning(backward, ct_carry)]
    other = [torch.empty_like(t) for t in turn]
    rows = [_rows(y, saved.steps) for y in backward.loop.ys]
    targets = [y.data_ptr() for y in rows]
    init = {Source("init", leaf.index): t[0] for leaf, t in zip(joint.carry, starts, strict=True)}
    fixed = {s: t.data_ptr() for s, t in (held | init).items() if s.kind != "carry"}
    fixed |= {Source("ct", j): t.data_ptr() for j, t in cts.items()}
    rest = [held[Source("x", x.index)].data_ptr() for x in joint.xs]
    rest += [fixed[Source("const", k)] for k in loops.replay()[0].consts]
    replay = _Replay(loops, segments)
    for number in reversed(range(segments.count)):
        before = [
            t.data_ptr() + number * _bytes(leaf)
            for t, leaf in zip(starts, joint.carry, strict=True)
        ]
        found = fixed | replay.fill(number, before, rest)
        begin, end = segments.bounds(number)
        compiled.run_steps(
            [t.data_ptr() for t in turn],
            [found[s] for s in (*backward.rows, *backward.consts)],
            [t.data_ptr() for t in other],
            targets,
            (saved.steps - end, saved.steps - begin),
            (0, 1) if saved.reverse else (saved.steps - 1, -1),
        )
        turn, other = other, turn
    return loops.gradients(backward, [*turn, *rows])
