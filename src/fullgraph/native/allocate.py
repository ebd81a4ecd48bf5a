"""Uninitialised CPU tensors, by the quickest way this torch has.

``torch._C._dynamo.guards._empty_strided_cpu`` is what torch's own compiled code calls; it saves
about a microsecond a tensor. It is private, so the public function takes its place where it is
missing or does not do what it is known to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import torch

__all__ = [
    "Allocator",
    "contiguous_strides",
    "empty_strided",
    "find_allocator",
    "public_allocator",
]

Allocator: TypeAlias = Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]


def public_allocator(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Allocate through the public API."""
    return torch.empty_strided(shape, strides, dtype=dtype, device="cpu")


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a row-major tensor."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def find_allocator() -> Allocator:
    """Return the private allocator if it is there and works, else the public one."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)  # noqa: SLF001
    private: Allocator | None = getattr(guards, "_empty_strided_cpu", None)
    if private is None:
        return public_allocator
    try:
        made = private((2, 3), (3, 1), torch.float64)
    except (TypeError, RuntimeError):
        return public_allocator
    right = made.shape == (2, 3) and made.stride() == (3, 1) and made.dtype == torch.float64
    return private if right else public_allocator


empty_strided: Final[Allocator] = find_allocator()
