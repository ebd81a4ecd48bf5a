"""Spare the garbage collector what was loaded before the first compiled test."""

from __future__ import annotations

import gc

__all__ = ["Collector"]


class Collector:
    """Freezes, once, what is alive: half a million objects that each full collection goes through.

    Tracing makes many objects and so many collections; those of the modules that are loaded by then
    took 6 % of the time of SciPy's window tests.
    """

    def __init__(self) -> None:
        self._frozen = False

    def freeze(self) -> None:
        """Freeze, unless that was done, here or by somebody else."""
        if self._frozen or gc.get_freeze_count():
            return
        gc.collect()
        gc.freeze()
        self._frozen = True

    def unfreeze(self) -> None:
        """Undo `freeze`."""
        if self._frozen:
            gc.unfreeze()
            self._frozen = False
