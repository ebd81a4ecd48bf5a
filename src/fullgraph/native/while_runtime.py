"""One call of a compiled while loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import torch

from fullgraph.native.allocate import empty_strided
from fullgraph.native.emit import UNBOUNDED
from fullgraph.native.loaded import Loaded, load, raise_status

if TYPE_CHECKING:
    from fullgraph.native.ir import Loop
    from fullgraph.native.lanes import Plan

__all__ = ["CompiledWhile", "compile_while"]

_COUNTERS: Final = (((), (), torch.int64), ((), (), torch.bool))


def compile_while(loop: Loop, plan: Plan, *, vector_math: str = "sleef") -> CompiledWhile:
    """Emit, build and load a while loop."""
    return CompiledWhile(loop, plan, *load(loop, plan, vector_math))


@final
@dataclass
class CompiledWhile(Loaded):
    """A while loop that is ready to run."""

    def __post_init__(self) -> None:
        # Two results beside the state: the steps taken, and whether the condition ended the loop.
        self._bind(2 * len(self.loop.carry) + len(self.loop.consts) + len(_COUNTERS))

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
        results += [empty_strided(*spec) for spec in _COUNTERS]
        scratch = self._scratch()
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
        return self._names(*self._carry, *_COUNTERS)

    def direct_steps(self, threads: int) -> int:
        """Return up to how many steps a direct function may run; 0 forbids it."""
        del threads
        return 0 if self.program.scratch else UNBOUNDED
