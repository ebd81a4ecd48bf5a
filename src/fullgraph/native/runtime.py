"""One call of a compiled scan: pointers, outputs, slices of steps, threads."""

from __future__ import annotations

import functools
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import torch

from fullgraph.errors import NativeMemoryError
from fullgraph.native.allocate import contiguous_strides, empty_strided
from fullgraph.native.large import LARGE_BYTES, large_tensor
from fullgraph.native.loaded import Loaded, load, raise_status, torch_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fullgraph.native.ir import Loop
    from fullgraph.native.lanes import Plan

__all__ = ["CompiledLoop", "compile_loop", "stacked_rows"]

SLICE_SECONDS: Final = 0.1  # a long loop runs in slices of about this, so that Ctrl-C is heard
FIRST_SLICE_WORK: Final = 20_000_000  # additions that are safely shorter than that
CHECKED_BYTES: Final = 64 << 20  # results of this size are compared with the memory that is free
THREAD_WORK: Final = 2_000_000  # additions below which threads cost more than they give


def compile_loop(loop: Loop, plan: Plan, *, vector_math: str = "sleef") -> CompiledLoop:
    """Emit, build and load a scan."""
    return CompiledLoop(loop, plan, *load(loop, plan, vector_math))


@functools.lru_cache(maxsize=8)
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """Return the helpers of this process; a forked child gets its own."""
    del process
    return ThreadPoolExecutor(threads, thread_name_prefix="fullgraph-native")


def _available_memory() -> int | None:
    """Return how many bytes this process can still take, where the system says."""
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)  # noqa: PERF401
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
        if limit.isdigit():
            found.append(int(limit) - int(used))
    except OSError:
        pass
    return min(found, default=None)


def _in_words(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


@final
@dataclass
class CompiledLoop(Loaded):
    """A scan that is ready to run."""

    def __post_init__(self) -> None:
        loop = self.loop
        self._bind(2 * len(loop.carry) + len(loop.xs) + len(loop.consts) + len(loop.ys))
        self._ys = [
            (y.shape, (y.size, *contiguous_strides(y.shape)), torch_dtype(y.dtype)) for y in loop.ys
        ]
        self._step_bytes = sum(y.size * y.dtype.size for y in loop.ys)
        # Steps that one call may do without a look at the clock.
        work = FIRST_SLICE_WORK // self.plan.work
        self._small = work
        self._blocks = self.program.blocks
        self._alone = self._blocks == 1

    def __call__(
        self,
        inputs: list[torch.Tensor],
        steps: int,
        *,
        reverse: bool = False,
        threads: int = 1,
        targets: Mapping[int, torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """Run `steps` steps.

        Parameters
        ----------
        inputs : list of Tensor
            Carry, xs and closed-over tensors in the order of the loop's inputs, with their dtypes
            and shapes, xs with `steps` in front. They are only read.
        steps : int
            How many steps.
        reverse : bool
            Step from the last row to the first.
        threads : int
            At most this many threads work on blocks of lanes.
        targets : mapping of int to Tensor, optional
            Where some ys go, by number; they must be contiguous.

        Returns
        -------
        list of Tensor
            The final carry, then the stacked ys, all in fresh memory except `targets`.
        """
        self.check_memory(steps)
        inputs = [t if t.is_contiguous() else t.contiguous() for t in inputs]
        results = [empty_strided(*spec) for spec in self._carry]
        given = targets or {}
        results += [
            given[j] if j in given else stacked_rows(steps, *spec)
            for j, spec in enumerate(self._ys)
        ]
        first, stride = (steps - 1, -1) if reverse else (0, 1)
        if steps <= self._small and (threads == 1 or self._alone):
            scratch = self._scratch()
            status = self._function(
                self._pack(
                    *[t.data_ptr() for t in inputs],
                    *[t.data_ptr() for t in results],
                    0,
                    steps,
                    first,
                    stride,
                    0,
                    self.program.blocks,
                    0 if scratch is None else scratch.data_ptr(),
                )
            )
        else:
            status = self._sliced(inputs, results, steps, (first, stride), threads)
        if status:
            raise_status(status, self.built.library)
        return results

    def run_steps(
        self,
        before: list[int],
        rest: list[int],
        after: list[int],
        ys: list[int],
        steps: tuple[int, int],
        order: tuple[int, int],
    ) -> None:
        """Run some steps on addresses, which the caller has checked and keeps alive.

        Parameters
        ----------
        before, after : list of int
            The carry before and after these steps, in different memory.
        rest : list of int
            xs and closed-over tensors.
        ys : list of int
            Where ys go.
        steps : (int, int)
            From which step to which.
        order : (int, int)
            Step ``t`` reads and writes row ``order[0] + order[1] * t``.
        """
        begin, end = steps
        if end - begin <= self._small and not self.program.scratch:
            pack = self._pack(*before, *rest, *after, *ys, begin, end, *order, 0, self._blocks, 0)
            if status := self._function(pack):
                raise_status(status, self.built.library)
            return
        scratch = self._scratch()
        heap = 0 if scratch is None else scratch.data_ptr()
        cuts = range(begin, end, max(1, self._small)) if end - begin > self._small else (begin,)
        spare = [] if len(cuts) == 1 else [empty_strided(*spec) for spec in self._carry]
        other = [t.data_ptr() for t in spare]
        for i, cut in enumerate(cuts):
            until = end if i + 1 == len(cuts) else cuts[i + 1]
            target = after if (len(cuts) - i) % 2 else other
            status = self._function(
                self._pack(*before, *rest, *target, *ys, cut, until, *order, 0, self._blocks, heap)
            )
            if status:
                raise_status(status, self.built.library)
            before = target

    def direct_names(self) -> dict[str, object]:
        """Return what a direct function of this loop calls."""
        return self._names(*self._carry, *self._ys)

    def direct_steps(self, threads: int) -> int:
        """Return up to how many steps a direct function may run; 0 forbids it."""
        if self.program.scratch or not (threads == 1 or self._alone):
            return 0
        return min(self._small, LARGE_BYTES // max(self._step_bytes, 1))

    def _parts(self, steps: int, threads: int) -> int:
        if threads <= 1:
            return 1
        return max(1, min(threads, self.program.blocks, steps * self.plan.work // THREAD_WORK))

    def _sliced(
        self,
        inputs: list[torch.Tensor],
        results: list[torch.Tensor],
        steps: int,
        order: tuple[int, int],
        threads: int,
    ) -> int:
        """Run slices of steps, each on several threads; between slices Python can interrupt."""
        n = len(self._carry)
        before = [t.data_ptr() for t in inputs[:n]]
        rest = [t.data_ptr() for t in inputs[n:]]
        ys = [t.data_ptr() for t in results[n:]]
        spare = [torch.empty_like(t) for t in results[:n]]
        targets = [[t.data_ptr() for t in results[:n]], [t.data_ptr() for t in spare]]
        parts = self._parts(steps, threads)
        cuts = [self.program.blocks * i // parts for i in range(parts + 1)]
        scratch = [self._scratch() for _ in range(parts)]
        heaps = [0 if s is None else s.data_ptr() for s in scratch]
        length = max(1, FIRST_SLICE_WORK // self.plan.work)
        begin, turn, status = 0, 0, 0
        while True:
            end = min(steps, begin + length)
            began = time.perf_counter()
            status |= self._on_threads(
                [
                    self._pack(
                        *before, *rest, *targets[turn], *ys, begin, end, *order,
                        cuts[i], cuts[i + 1], heap,
                    )
                    for i, heap in enumerate(heaps)
                ]
            )  # fmt: skip
            before, begin = targets[turn], end
            if status or begin >= steps:
                break
            turn = 1 - turn
            spent = time.perf_counter() - began
            length = max(1, min(4 * length, int(length * SLICE_SECONDS / max(spent, 1e-6))))
        if turn == 1:
            results[:n] = spare
        return status

    def _on_threads(self, arrays: list[bytes]) -> int:
        if len(arrays) == 1:
            return int(self._function(arrays[0]))
        pool = _pool(len(arrays) - 1, os.getpid())
        futures: list[Future[int]] = [pool.submit(self._function, a) for a in arrays[1:]]
        try:
            status = int(self._function(arrays[0]))
        finally:  # memory that a helper writes must outlive it
            results = [f.result() for f in futures]
        for result in results:
            status |= result
        return status

    def check_memory(self, steps: int, what: str = "the ys", advice: str = "") -> None:
        """Look whether rows of so many steps fit into the free memory.

        Raises
        ------
        NativeMemoryError
            They do not; nothing was allocated.
        """
        needed = steps * self._step_bytes
        if needed < CHECKED_BYTES:
            return
        available = _available_memory()
        if available is not None and needed > available:
            raise NativeMemoryError(
                f"{what} of {steps} steps need {_in_words(needed)} "
                f"({_in_words(self._step_bytes)} a step) and {_in_words(available)} are free; "
                f"{advice or 'return less from the body, or scan in several calls'}"
            )


def stacked_rows(
    steps: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return memory for `steps` rows of `shape`."""
    size = steps * strides[0] * dtype.itemsize
    if size >= LARGE_BYTES:
        try:
            return large_tensor((steps, *shape), strides, dtype, size)
        except OSError as error:
            raise NativeMemoryError(
                f"the ys of {steps} steps need {_in_words(size)}, and the system says: {error}; "
                "return less from the body, or scan in several calls"
            ) from error
    return empty_strided((steps, *shape), strides, dtype)
