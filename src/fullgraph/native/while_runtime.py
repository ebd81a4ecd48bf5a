"""One call of a compiled while loop."""

from __future__ import annotations

import ctypes
import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from fullgraph.native.allocate import contiguous_strides, empty_strided
from fullgraph.native.emit import TRAILER, UNBOUNDED, Program
from fullgraph.native.runtime import load, raise_status, torch_dtype

if TYPE_CHECKING:
    from fullgraph.native.build import Built
    from fullgraph.native.ir import Loop
    from fullgraph.native.lanes import Plan

__all__ = ["CompiledWhile", "compile_while"]


def compile_while(loop: Loop, plan: Plan, *, vector_math: str = "sleef") -> CompiledWhile:
    """Emit, build and load a while loop."""
    return CompiledWhile(loop, plan, *load(loop, plan, vector_math))


@dataclass
class CompiledWhile:
    """A while loop that is ready to run.

    Attributes
    ----------
    loop, plan, program, built
        What it was made from, for `explain_loop`.
    """

    loop: Loop
    plan: Plan
    program: Program
    built: Built

    def __post_init__(self) -> None:
        function = self.built.library.fg_run
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_char_p]
        self._function = function
        loop = self.loop
        addresses = 2 * len(loop.carry) + len(loop.consts) + 2
        self._pack = struct.Struct(f"={addresses + len(TRAILER)}q").pack
        self._carry = [
            (leaf.shape, contiguous_strides(leaf.shape), torch_dtype(leaf.dtype))
            for leaf in loop.carry
        ]

    def __call__(
        self,
        inputs: list[torch.Tensor],
        steps: int,
        *,
        reverse: bool = False,
        threads: int = 1,
    ) -> list[torch.Tensor]:
        """Run until the condition fails, at most `steps` steps.

        Parameters
        ----------
        inputs : list of Tensor
            Carry and closed-over tensors in the order of the loop's inputs, with their dtypes and
            shapes. They are only read.
        steps : int
            How many steps at most; `UNBOUNDED` for any number.
        reverse, threads
            Of no meaning here.

        Returns
        -------
        list of Tensor
            The final carry, the steps taken, and whether the condition ended the loop, all in fresh
            memory.
        """
        del reverse, threads
        inputs = [t if t.is_contiguous() else t.contiguous() for t in inputs]
        results = [empty_strided(*spec) for spec in self._carry]
        results += [torch.empty((), dtype=torch.int64), torch.empty((), dtype=torch.bool)]
        size = self.program.scratch
        scratch = torch.empty(size, dtype=torch.uint8) if size else None
        status = self._function(
            self._pack(
                *[t.data_ptr() for t in inputs],
                *[t.data_ptr() for t in results],
                0,
                steps,
                0,
                1,
                0,
                self.program.blocks,
                0 if scratch is None else scratch.data_ptr(),
            )
        )
        if status:
            raise_status(status, self.built.library)
        return results

    def direct_names(self) -> dict[str, object]:
        """Return what a direct function of this loop calls."""
        names: dict[str, object] = {
            "empty": empty_strided,
            "run": self._function,
            "pack": self._pack,
            "fail": functools.partial(raise_status, library=self.built.library),
        }
        counters = [((), (), torch.int64), ((), (), torch.bool)]
        for k, (shape, strides, dtype) in enumerate((*self._carry, *counters)):
            names |= {f"shape{k}": shape, f"strides{k}": strides, f"dtype{k}": dtype}
        return names

    def direct_steps(self, threads: int) -> int:
        """Return up to how many steps a direct function may run; 0 forbids it."""
        del threads
        return 0 if self.program.scratch else UNBOUNDED
