"""The loops of a gradient, compiled and run: forward with saved rows, backward in reverse."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import torch

from fullgraph.native.allocate import contiguous_strides
from fullgraph.native.gradient.split import (
    Backward,
    CotangentKind,
    Forward,
    Source,
    never_there,
    split_backward,
    split_forward,
    split_plain,
    split_replay,
)
from fullgraph.native.lanes import make_plan
from fullgraph.native.loaded import torch_dtype
from fullgraph.native.runtime import CompiledLoop, compile_loop, stacked_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fullgraph.native.gradient.joint import Joint
    from fullgraph.native.ir import Node

__all__ = ["GradientLoops", "Gradients", "Saved", "collect_gradients", "dense"]

# Of init, xs and the closed-over tensors of the joint step.
Gradients = tuple[list[torch.Tensor | None], list[torch.Tensor | None], list[torch.Tensor | None]]

# Kinds of the cotangents of ys, and leaves of the carry that have none in any step.
_Key = tuple[tuple["CotangentKind", ...], frozenset[int]]

# Kinds of cotangents are compiled apart; after so many of them, a number that all rows share is
# written out as rows.
MOST_VARIANTS: Final = 8


@dataclass(frozen=True)
class Saved:
    """What a forward run leaves for the backward one.

    Attributes
    ----------
    steps, reverse
        Of the forward run.
    sources : tuple of Source
        What `tensors` are.
    tensors : tuple of Tensor
        Rows of ys, the carry of every step (one row more than steps) or of every segment, rows of
        xs, closed-over tensors.
    own_bytes : int
        What is there for the backward only: not arguments and results of the loop.
    segment : int
        Steps of a segment, 0 where nothing is computed again.
    """

    steps: int
    reverse: bool
    sources: tuple[Source, ...]
    tensors: tuple[torch.Tensor, ...]
    own_bytes: int
    segment: int = 0


@dataclass(eq=False)
class GradientLoops:
    """The compiled loops of one differentiated body.

    Parameters
    ----------
    joint : Joint
        The step and its vector-Jacobian product.
    vector_math : str
    threads : int
        As for the adapter.

    Attributes
    ----------
    latest_saved : (int, int, int)
        Steps of the latest forward run, the bytes it left for its backward, and the
        steps of a segment, 0 where nothing is computed again.
    """

    joint: Joint
    vector_math: str = "sleef"
    threads: int = 1
    latest_saved: tuple[int, int, int] = (0, 0, 0)
    forward: Forward = field(init=False)
    forward_compiled: CompiledLoop = field(init=False)
    variants: dict[_Key, tuple[Backward, CompiledLoop]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.forward = split_forward(self.joint)
        self.forward_compiled = compile_loop(
            self.forward.loop,
            make_plan(self.forward.loop, threads=self.threads),
            vector_math=self.vector_math,
        )
        # All that any backward reads: other kinds of cotangents read less.
        whole = split_backward(self.joint, self.forward, self.rows_only(), self.threads)
        self.needed = tuple(s for s in (*whole.rows, *whole.consts) if s.kind != "ct")
        self._lock = threading.Lock()
        self._others: dict[str, tuple[Forward, CompiledLoop]] = {}
        self._absent: dict[_Key, frozenset[int]] = {}

    def rows_only(self) -> tuple[CotangentKind, ...]:
        """Return the kinds of cotangents that any others can be written out as."""
        return tuple("rows" if ct is not None else "zero" for ct in self.joint.ct_ys)

    def run_forward(
        self,
        init: Sequence[torch.Tensor],
        xs: Sequence[torch.Tensor],
        consts: Sequence[torch.Tensor],
        steps: int,
        *,
        reverse: bool,
    ) -> tuple[list[torch.Tensor], Saved]:
        """Run the loop; return its results (final carry, ys) and what the backward needs.

        Parameters
        ----------
        init, xs : sequence of Tensor
            As for the loop.
        consts : sequence of Tensor
            All closed-over tensors of the joint step.
        """
        loop, n = self.forward.loop, len(self.joint.carry)
        self.forward_compiled.check_memory(
            steps,
            "the ys and the rows that are saved for the backward",
            "give the body to the adapter's checkpoint, or return less from it",
        )
        every = [*consts, *self.joint.constants]
        kept = len(self.forward.saved)
        carried = {
            i: self._carry_rows(init[i], steps, reverse=reverse) for i in self.forward.carries
        }
        targets = {
            kept + k: _after(carried[i], reverse=reverse)
            for k, i in enumerate(self.forward.carries)
        }
        results = self.forward_compiled(
            [*init, *xs, *(every[i] for i in self.forward.consts)],
            steps,
            reverse=reverse,
            threads=self.threads,
            targets=targets,
        )
        assert len(results) == n + len(loop.ys)
        places = {
            "carry": carried,
            "next": carried,
            "y": results[n:],
            "x": xs,
            "const": every,
            "init": init,
        }
        sources = tuple(
            dict.fromkeys(Source("carry", s.index) if s.kind == "next" else s for s in self.needed)
        )
        tensors = tuple(places[s.kind][s.index] for s in sources)  # type: ignore[index]
        ys = len(self.joint.ys)
        own = (*results[n + ys : n + kept], *carried.values())
        size = sum(t.numel() * t.element_size() for t in own)
        return results[: n + ys], Saved(steps, reverse, sources, tensors, size)

    @staticmethod
    def _carry_rows(leaf: torch.Tensor, steps: int, *, reverse: bool) -> torch.Tensor:
        """Return memory for a leaf of the carry before every step and after the last one."""
        strides = (leaf.numel(), *contiguous_strides(tuple(leaf.shape)))
        rows = stacked_rows(steps + 1, tuple(leaf.shape), strides, leaf.dtype)
        rows[steps if reverse else 0].copy_(leaf)
        return rows

    def plain(self) -> tuple[Forward, CompiledLoop]:
        """Return the loop that saves nothing, compiled now if need be."""
        return self._other("plain", lambda: split_plain(self.joint))

    def replay(self) -> tuple[Forward, CompiledLoop]:
        """Return the loop that saves and gives no ys, compiled now if need be."""
        return self._other("replay", lambda: split_replay(self.joint, self.forward))

    def _other(self, name: str, make: Callable[[], Forward]) -> tuple[Forward, CompiledLoop]:
        with self._lock:
            found = self._others.get(name)
            if found is None:
                forward = make()
                plan = make_plan(forward.loop, threads=self.threads)
                compiled = compile_loop(forward.loop, plan, vector_math=self.vector_math)
                found = self._others[name] = forward, compiled
        return found

    def variant(
        self, kinds: tuple[CotangentKind, ...], absent: frozenset[int] = frozenset()
    ) -> tuple[Backward, CompiledLoop]:
        """Return the backward loop for these cotangents, compiled now if need be."""
        key = kinds, absent
        found = self.variants.get(key)
        if found is None:
            with self._lock:
                found = self.variants.get(key)
                if found is None:
                    backward = split_backward(
                        self.joint, self.forward, kinds, self.threads, absent=absent
                    )
                    compiled = compile_loop(
                        backward.loop, backward.plan, vector_math=self.vector_math
                    )
                    found = self.variants[key] = backward, compiled
        return found

    def run_backward(
        self,
        saved: Saved,
        ct_carry: Sequence[torch.Tensor | None],
        ct_ys: Sequence[torch.Tensor | None],
    ) -> Gradients:
        """Return the gradients of init, xs and the closed-over tensors of the joint step."""
        key, given = self.cotangents(ct_carry, ct_ys)
        backward, compiled = self.variant(*key)
        held = dict(zip(saved.sources, saved.tensors, strict=True))

        def tensor(source: Source) -> torch.Tensor:
            if source.kind == "ct":
                return given[source.index]
            if source.kind == "carry":
                return _before(held[source], reverse=saved.reverse)
            if source.kind == "next":
                return _after(held[Source("carry", source.index)], reverse=saved.reverse)
            return held[source]

        results = compiled(
            [
                *self.beginning(backward, ct_carry),
                *map(tensor, backward.rows),
                *map(tensor, backward.consts),
            ],
            saved.steps,
            reverse=not saved.reverse,
            threads=self.threads,
        )
        return self.gradients(backward, results)

    def beginning(
        self, backward: Backward, ct_carry: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor]:
        """Return the carry with which the backward loop begins, in dense memory."""
        begin = [_or_zeros(ct_carry[i], self.joint.carry[i]) for i in backward.carry]
        return begin + [_or_zeros(None, total.step) for _, total in backward.totals]

    def gradients(self, backward: Backward, results: list[torch.Tensor]) -> Gradients:
        """Return the gradients that the results of the backward loop stand for."""
        return collect_gradients(self.joint, backward, results)

    def cotangents(
        self,
        ct_carry: Sequence[torch.Tensor | None],
        ct_ys: Sequence[torch.Tensor | None],
    ) -> tuple[_Key, dict[int, torch.Tensor]]:
        """Return which backward loop the cotangents need, and what is passed for those of ys."""
        kinds: list[CotangentKind] = []
        given: dict[int, torch.Tensor] = {}
        for j, ct in enumerate(ct_ys):
            if self.joint.ct_ys[j] is None or ct is None:
                kinds.append("zero")
            elif ct.numel() > 1 and not any(ct.stride()):
                kinds.append("number")
                given[j] = ct[(0,) * ct.dim()]
            else:
                kinds.append("rows")
                given[j] = ct
        if kinds.count("number") and len(self.variants) >= MOST_VARIANTS:
            # Only that is written out: what is absent stays so, or infinities would meet zeros.
            kinds = ["rows" if kind == "number" else kind for kind in kinds]
            given = {j: ct for j, ct in enumerate(ct_ys) if kinds[j] == "rows" and ct is not None}
        missing = frozenset(i for i, ct in enumerate(ct_carry) if ct is None)
        return (tuple(kinds), self._never_there(tuple(kinds), missing)), given

    def _never_there(
        self, kinds: tuple[CotangentKind, ...], missing: frozenset[int]
    ) -> frozenset[int]:
        """Return which of the missing cotangents of the final carry are missing in every step."""
        found = self._absent.get((kinds, missing))
        if found is None:
            found = never_there(self.joint, kinds, missing)
            self._absent[kinds, missing] = found
        return found


def _before(rows: torch.Tensor, *, reverse: bool) -> torch.Tensor:
    return rows[1:] if reverse else rows[:-1]


def _after(rows: torch.Tensor, *, reverse: bool) -> torch.Tensor:
    return rows[:-1] if reverse else rows[1:]


def _or_zeros(tensor: torch.Tensor | None, like: Node) -> torch.Tensor:
    if tensor is not None:
        return dense(tensor)
    return torch.zeros(like.shape, dtype=torch_dtype(like.dtype))


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in row-major memory, itself if it is."""
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def collect_gradients(
    joint: Joint, backward: Backward, results: Sequence[torch.Tensor]
) -> Gradients:
    """Return the gradients that the results of the backward loop stand for."""
    n = len(backward.carry)
    init: list[torch.Tensor | None] = [None] * len(joint.carry)
    xs: list[torch.Tensor | None] = [None] * len(joint.xs)
    consts: list[torch.Tensor | None] = [None] * len(joint.const_places)
    for i, found in zip(backward.carry, results, strict=False):
        init[i] = found
    rows = results[n + len(backward.totals) :]
    for i, found in zip(backward.xs, rows, strict=True):
        xs[i] = found
    place = {argument: k for k, argument in enumerate(joint.const_places)}
    for (argument, total), found in zip(backward.totals, results[n:], strict=False):
        part, k = total.finished(found), place[argument]
        known = consts[k]
        consts[k] = part if known is None else known + part
    for argument, gradient in enumerate(joint.ct_consts):
        if gradient is not None and consts[place[argument]] is None:
            leaf = joint.consts[place[argument]]
            consts[place[argument]] = torch.zeros(leaf.shape, dtype=torch_dtype(leaf.dtype))
    return init, xs, consts
