"""Memory of large results, used again once no tensor holds it.

A long scan writes its ys once, front to back, and the kernel hands out fresh memory page by page
meanwhile: zeroing pages takes as long as computing what goes there. So the memory of a large result
is a mapping of its own, and serves the next one when the tensor is gone. While it waits it is the
kernel's for the taking (``MADV_FREE``), so that keeping it costs other programs nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import weakref
from typing import Final

import torch

__all__ = ["KEPT_BYTES", "LARGE_BYTES", "kept", "large_tensor"]

LARGE_BYTES: Final = 8 << 20  # from here on
KEPT_BYTES: Final = 256 << 20  # waiting memory beyond this is given back
_HUGE_PAGE: Final = 2 << 20

# Mappings that no tensor uses, latest last. The list is changed by single operations, which neither
# threads nor the collector can interrupt: memory comes back whenever a tensor dies.
_free: list[mmap.mmap] = []


def large_tensor(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, size: int
) -> torch.Tensor:
    """Return an uninitialised tensor on memory that may have been a result before.

    Parameters
    ----------
    shape, strides, dtype
        As for ``torch.empty_strided``; dense.
    size : int
        How many bytes that is.
    """
    memory = _take(-(-size // _HUGE_PAGE) * _HUGE_PAGE)
    view = memoryview(memory)
    flat = torch.frombuffer(view, dtype=dtype, count=size // dtype.itemsize)
    weakref.finalize(view, _keep, memory).atexit = False
    # Not a view of `flat`: results are tensors in their own right.
    return torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), 0, shape, strides)


def kept() -> int:
    """Return how many bytes wait for the next result."""
    return sum(map(len, _free))


def _take(size: int) -> mmap.mmap:
    for memory in reversed(_free):
        if size <= len(memory) <= 2 * size:
            try:
                _free.remove(memory)
            except ValueError:  # another thread was quicker
                continue
            return memory
    # Private: a forked child must not write into its parent's results.
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    _advise(made, "MADV_HUGEPAGE")
    return made


def _keep(memory: mmap.mmap) -> None:
    _advise(memory, "MADV_FREE")
    _free.append(memory)
    while kept() > KEPT_BYTES:
        try:
            oldest = _free.pop(0)
        except IndexError:
            return
        oldest.close()


def _advise(memory: mmap.mmap, advice: str) -> None:
    """Tell the kernel about `memory`; it may not know the advice, or not take it."""
    number = getattr(mmap, advice, None)
    if number is not None:
        with contextlib.suppress(OSError):
            memory.madvise(number)
