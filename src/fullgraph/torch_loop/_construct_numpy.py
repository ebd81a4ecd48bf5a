"""Constructor of the native adapter for NumPy: arguments first, then platform and torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fullgraph.torch_loop._construct import import_torch
from fullgraph.torch_loop._construct_native import check_choice, check_int

if TYPE_CHECKING:
    from fullgraph.loops import LoopAdapter

__all__ = ["numpy_native_loop_adapter"]


def numpy_native_loop_adapter(
    *,
    max_steps: int | None = None,
    fallback: Literal["raise", "eager"] = "raise",
    threads: int = 1,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopAdapter:
    """Return an adapter that runs a scan of NumPy arrays as one compiled C function.

    Register it for ``numpy`` (`fullgraph.register_loop_adapter`) or use it in a block
    (`fullgraph.use_loop_adapter`). Arrays go in and out without a copy; the body is captured
    through torch, and what is compiled is what `torch_native_loop_adapter` would compile.

    Parameters
    ----------
    max_steps : int, optional
        Longest loop that is taken; by default any.
    fallback : {"raise", "eager"}
        What to do with a body that cannot be compiled, or that torch takes another way than NumPy:
        raise `UnsupportedBodyError`, or warn once for that body (`NativeFallbackWarning`) and run
        it as plain Python.
    threads : int, default 1
        At most this many threads share the lanes of a large loop.
    vector_math : {"sleef", "libm"}
        As for `torch_native_loop_adapter`.

    Returns
    -------
    LoopAdapter
        Its `scan` keeps all rules of `fullgraph.scan`. While loops stay eager.

    Raises
    ------
    UsageError
        (a ValueError) for an argument that is not accepted, and for torch older than 2.14.
    MissingBackendError
        (an ImportError) if torch is not installed, or this is not Linux on x86-64.
    CompilerNotFoundError
        If there is no C compiler.

    Notes
    -----
    Taken: arrays of float64, float32, int64, int32, int16, int8, uint8 and bool, read-only ones as
    well; Python numbers in the carry; trees as everywhere. Copied before the loop are only arrays
    with negative strides or of foreign byte order.

    A body is NumPy code (``np.exp(x)``, ``x.sum(axis=0)``), or array-API code, which is captured on
    tensors. When it is compiled, the first steps, four at most, also run in plain NumPy and one by
    one through what was compiled. Where structure, dtype, shape or values differ, as for
    ``np.sqrt`` of int8 or int32 times float32 in array-API code, that raises
    `UnsupportedBodyError`, naming the leaf and both sides. A difference that none of those steps
    shows in its results is not seen: keep one dtype throughout a body where it matters.

    Refused is a body that reads an array of more than one element from a closure or a global: pass
    it in the carry or as xs. Floating-point warnings of NumPy are not given. An integer that is
    divided by zero raises `NativeRuntimeError`, where NumPy warns and goes on. While a body is
    captured, for about a second, torch's default dtype is float64, in all threads. Scans in bodies
    are loops of the same C function.

    Examples
    --------
    >>> import fullgraph, numpy as np
    >>> with fullgraph.use_loop_adapter("numpy", numpy_native_loop_adapter()):
    ...     carry, ys = fullgraph.scan(
    ...         lambda c, x: (c + np.sqrt(x), c), np.zeros(()), np.asarray([1.0, 4.0, 9.0])
    ...     )
    >>> carry.item(), ys.tolist()
    (6.0, [0.0, 1.0, 3.0])
    """
    check_int("max_steps", max_steps, 0)
    check_int("threads", threads, 1)
    check_choice("fallback", fallback, ("raise", "eager"))
    check_choice("vector_math", vector_math, ("sleef", "libm"))
    import_torch("numpy_native_loop_adapter")
    from fullgraph.torch_loop._numpy_native import numpy_native_adapter

    return numpy_native_adapter(
        max_steps=max_steps, fallback=fallback, threads=threads, vector_math=vector_math
    )
