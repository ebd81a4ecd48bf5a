"""A generated file, loaded, with what it calls bound: what scans and while loops share."""

from __future__ import annotations

import ctypes
import functools
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fullgraph.errors import NativeRuntimeError
from fullgraph.native.allocate import contiguous_strides, empty_strided
from fullgraph.native.build import Built, build
from fullgraph.native.compiler import find_compiler, vector_isa
from fullgraph.native.emit import TRAILER, Program, emit
from fullgraph.native.scalar import DIVISION_BY_ZERO, INTERRUPTED, OUT_OF_BOUNDS, SINGULAR
from fullgraph.native.signals import attach_signals, raise_interruption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fullgraph.native.dtypes import DType
    from fullgraph.native.ir import Loop
    from fullgraph.native.lanes import Plan

__all__ = ["Loaded", "load", "raise_status", "torch_dtype"]

# How a result is allocated: shape, strides and dtype.
_Spec = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return torch's name of an IR dtype."""
    found = getattr(torch, dtype.name)
    assert isinstance(found, torch.dtype)
    return found


@functools.lru_cache(maxsize=1)
def _torch_library() -> ctypes.CDLL:
    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


def _addresses(symbols: Sequence[str]) -> list[int] | None:
    """Return the addresses of vector routines in torch's own library, if all are there."""
    try:
        library = _torch_library()
        found = [ctypes.cast(getattr(library, s), ctypes.c_void_p).value for s in symbols]
    except (OSError, AttributeError):
        return None
    return [address for address in found if address is not None]


def load(loop: Loop, plan: Plan, vector_math: str) -> tuple[Program, Built]:
    """Emit, build and load `loop`, and bind what it calls."""
    isa = vector_isa(find_compiler()) if vector_math == "sleef" else ""
    program = emit(loop, plan, isa=isa)
    table = _addresses(program.symbols)
    if table is None:  # a torch without these routines: the C library computes them
        program = emit(loop, plan)
        table = []
    built = build(program.text)
    if table:
        bind = built.library.fg_bind
        bind.restype, bind.argtypes = None, [ctypes.c_void_p]
        bind((ctypes.c_void_p * len(table))(*table))
    if "fg_interrupted" in program.text:
        attach_signals(built.library)
    return program, built


@dataclass
class Loaded:
    """A loop whose C function is there to be called.

    Attributes
    ----------
    loop, plan, program, built
        What it was made from, for `explain_loop`.
    """

    loop: Loop
    plan: Plan
    program: Program
    built: Built

    def _bind(self, addresses: int) -> None:
        """Look the function up; it takes so many addresses in front of the trailer."""
        self._function = self.built.library.fg_run
        self._function.restype, self._function.argtypes = ctypes.c_int64, [ctypes.c_char_p]
        self._pack = struct.Struct(f"={addresses + len(TRAILER)}q").pack
        self._carry: list[_Spec] = [
            (leaf.shape, contiguous_strides(leaf.shape), torch_dtype(leaf.dtype))
            for leaf in self.loop.carry
        ]

    def _scratch(self) -> torch.Tensor | None:
        size = self.program.scratch
        return torch.empty(size, dtype=torch.uint8) if size else None

    def _names(self, *results: _Spec) -> dict[str, object]:
        """Return what a direct function calls that allocates these results."""
        names: dict[str, object] = {
            "empty": empty_strided,
            "run": self._function,
            "pack": self._pack,
            "fail": functools.partial(raise_status, library=self.built.library),
        }
        for k, (shape, strides, dtype) in enumerate(results):
            names |= {f"shape{k}": shape, f"strides{k}": strides, f"dtype{k}": dtype}
        return names


def raise_status(status: int, library: ctypes.CDLL) -> None:
    """Raise what the status of a generated function says.

    Raises
    ------
    NativeRuntimeError
        A step failed.
    BaseException
        What a signal handler raised while the loop ran, KeyboardInterrupt for Ctrl-C.
    """
    if status & INTERRUPTED:
        raise_interruption(library)
    reasons = []
    if status & DIVISION_BY_ZERO:
        reasons.append("an integer was divided by zero")
    if status & OUT_OF_BOUNDS:
        reasons.append("an index was outside its tensor")
    if status & SINGULAR:
        reasons.append("a matrix was singular, or not positive definite")
    raise NativeRuntimeError(f"in a step of the loop {' and '.join(reasons)}")
