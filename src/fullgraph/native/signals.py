"""How Ctrl-C reaches a while loop in C.

Nobody knows beforehand how long a while loop runs, so it cannot be cut into slices as a scan is.
Instead it asks Python now and then, through functions of the C API that are bound when it is
loaded, to run the handlers of pending signals. What a handler raises is kept by the generated code
and raised here, once it has returned.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["attach_signals", "raise_interruption"]

_CALLS: Final = (
    "PyGILState_Ensure",
    "PyErr_CheckSignals",
    "PyErr_Fetch",
    "PyGILState_Release",
    "PyErr_Restore",
)


def attach_signals(library: ctypes.CDLL) -> None:
    """Give a loaded loop the functions it asks for signals."""
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, n), ctypes.c_void_p).value for n in _CALLS]
    attach = library.fg_attach
    attach.restype, attach.argtypes = None, [ctypes.c_void_p]
    attach((ctypes.c_void_p * len(addresses))(*addresses))


def raise_interruption(library: ctypes.CDLL) -> None:
    """Raise what a signal handler raised while a loop of `library` ran in this thread."""
    # Called with the GIL held, which is what a PyDLL does; it raises the exception that is set.
    function = ctypes.PYFUNCTYPE(None)(("fg_raise", library))
    function()
