"""Constructors of the torch adapters: arguments first, then torch and its version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fullgraph.errors import MissingBackendError, UsageError

if TYPE_CHECKING:
    from fullgraph.loops import LoopAdapter

__all__ = ["import_torch", "torch_compile_loop_adapter"]

MAX_STEPS = 128
MAX_ELEMENTS = 1_048_576
OLDEST_TORCH = (2, 14)


def import_torch(adapter: str) -> Any:
    """Import torch for an adapter, or say why it cannot be had.

    Raises
    ------
    MissingBackendError
        (an ImportError) if torch is not installed.
    UsageError
        (a ValueError) if torch is too old.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingBackendError(
            f"{adapter} needs torch, which is not installed: pip install 'fullgraph[torch]'."
        ) from error
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_TORCH:
        raise UsageError(
            f"{adapter} needs torch 2.14 or newer, and this is torch {torch.__version__}. Without "
            f"an adapter loops run eagerly on this torch, as before."
        )
    return torch


def _bounded_int(name: str, value: Any, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise UsageError(
            f"{name} must be an int (no bool, no NumPy integer) from 1 to {most:_}, and is "
            f"{value!r}."
        )
    return value


def torch_compile_loop_adapter(*, max_steps: int = 128, max_elements: int = 65_536) -> LoopAdapter:
    """Return an adapter that unrolls short scans of CPU tensors and compiles them with Inductor.

    Register it for ``array_api_compat.torch`` (`fullgraph.register_loop_adapter`) or use it in a
    block (`fullgraph.use_loop_adapter`). It is an opt-in to native compilation: the first call of
    each specialisation runs Dynamo, AOTAutograd, Inductor and a C++ compiler, in a time that grows
    with the number of steps: seconds for ten steps, minutes for a hundred.

    Parameters
    ----------
    max_steps : int, default 128
        Longest scan that is taken, from 1 to 128.
    max_elements : int, default 65536
        Most elements of one input, carry leaf or stacked output, from 1 to 1048576.

    Returns
    -------
    LoopAdapter
        Its `scan` keeps all rules of `fullgraph.scan`; its `checkpoint` is None; its `while_loop`
        runs unbounded loops eagerly and refuses bounded ones, which cannot stop early here.

    Raises
    ------
    UsageError
        (a ValueError) for a bound out of range, and for torch older than 2.14.
    MissingBackendError
        (an ImportError) if torch is not installed.

    Notes
    -----
    Taken: trees of tensors and None in tuples, lists and dicts; one dtype, float32 or float64;
    tensors on the CPU; a positive static length. Everything else is refused before compiling with
    `UnsupportedLoopError`, which names the leaf, the rule and the bound.

    The loop is captured whole and statically. A graph break raises `LoopCaptureError`; compilation
    that is switched off (by environment, configuration, stance or context) and a failing compiler
    raise `LoopCompilationError`. There is no eager fallback. When a specialisation is compiled the
    body also runs once in plain Python on the first row, which is what finds in-place writes and
    changed carries; afterwards only compiled code runs. A body that writes into a tensor it closes
    over is refused then.

    Gradients are of first order; a second derivative raises. An adapter compiles at most 64
    specialisations (shapes, lengths, structures, values closed over) and then raises
    `SpecialisationLimitError`. Inside a user's own ``torch.compile`` the loop is unrolled into that
    graph, under the same bounds. The adapter keeps no tensor alive and may be called from several
    threads. A body that draws random numbers draws Inductor's, not those of an eager loop.

    Examples
    --------
    >>> adapter = torch_compile_loop_adapter(max_steps=16)
    >>> adapter.checkpoint is None
    True
    """
    steps = _bounded_int("max_steps", max_steps, MAX_STEPS)
    elements = _bounded_int("max_elements", max_elements, MAX_ELEMENTS)
    import_torch("torch_compile_loop_adapter")
    from fullgraph.torch_loop._inductor import bounded_adapter

    return bounded_adapter(max_steps=steps, max_elements=elements)
