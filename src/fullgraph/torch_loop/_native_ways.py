"""Ways around the native driver: the short one for known bodies, and the plain one for refused."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import (
    GradientRefusedError,
    NativeFallbackWarning,
    UnsupportedBodyError,
)
from fullgraph.loops import _eager
from fullgraph.loops._eager_torch import ops_for_this_call
from fullgraph.loops._foreign import whole_driver
from fullgraph.native.cells import shared_cells
from fullgraph.torch_loop._transforms import active_transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.torch_loop._native import NativeEngine

__all__ = ["eager_under_transforms", "plain_scan", "short_way", "with_fallback"]

PyTree = Any
Body = Any


def short_way(
    engine: NativeEngine, scan: Callable[..., tuple[PyTree, PyTree]]
) -> Callable[..., tuple[PyTree, PyTree]]:
    """Return `scan` with a short cut for one tensor of xs and a body that was compiled before.

    It is all that a short loop costs beside its steps, so it looks at nothing twice: what the
    driver checks of the carry was true when the body was captured, and Dynamo's guards say whether
    it still is. Rows are looked at here.
    """
    sites, rows = engine.sites, _Rows()
    most = sys.maxsize if engine.rules.max_steps is None else engine.rules.max_steps
    short = engine.rules.max_elements is None
    compiling = torch.compiler.is_dynamo_compiling

    def try_short(
        body: Body, init: PyTree, xs: torch.Tensor, *, reverse: bool = False
    ) -> tuple[PyTree, PyTree] | None:
        code = id(getattr(body, "__code__", None))
        # What was captured without shared cells has each of them guarded, so it serves all.
        site = sites.get((code, ())) or sites.get((code, shared_cells(body)))
        row = rows.like(xs) if site is not None and active_transform() is None else None
        if site is None or row is None or not short or not 0 < len(xs) <= most:
            return None
        return site[1].try_call(body, init, row, (xs,), len(xs), reverse=reverse)

    def native_scan(
        body: Body,
        init: PyTree,
        xs: PyTree = None,
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[PyTree, PyTree]:
        if not compiling() and type(xs) is torch.Tensor and length is None:
            found = try_short(body, init, xs, reverse=reverse)
            if found is not None:
                return found
        return scan(body, init, xs, length=length, reverse=reverse)

    native_scan.engine = engine  # type: ignore[attr-defined]
    native_scan.try_short = try_short  # type: ignore[attr-defined]
    return whole_driver(native_scan)


class _Rows:
    """Remembers the row of the last call, since calls in a row mostly look alike."""

    def __init__(self) -> None:
        self._last: tuple[torch.dtype, torch.Size, torch.Tensor] | None = None

    def like(self, xs: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor like the rows of `xs`; None if `xs` needs a closer look."""
        shape = xs.shape
        if xs.requires_grad or not xs.is_cpu or not shape or xs.is_neg() or xs.is_sparse:
            return None
        last = self._last
        if last is not None and last[0] is xs.dtype and last[1] == shape:
            return last[2]
        row = torch.empty(shape[1:], dtype=xs.dtype)
        self._last = (xs.dtype, shape, row)
        return row


def with_fallback(run: Callable[..., Any], plain: Callable[..., Any], functions: int) -> Any:
    """Return `run` with plain Python for bodies that cannot be compiled.

    Parameters
    ----------
    run, plain : callable
        The native and the plain loop, of the same arguments.
    functions : int
        How many of the first arguments are functions, whose code is remembered when refused.
    """
    warned: dict[tuple[int, ...], Any] = {}

    def run_or_fall_back(*args: Any, **options: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return run(*args, **options)
        codes = [getattr(f, "__code__", None) or type(f) for f in args[:functions]]
        key = tuple(map(id, codes))
        if key not in warned:
            try:
                return run(*args, **options)
            except (UnsupportedBodyError, GradientRefusedError) as reason:
                if isinstance(reason, UnsupportedBodyError):
                    warned[key] = codes
                warnings.warn(
                    f"a loop runs as plain Python, 100 to 1 000 times slower: {reason}",
                    NativeFallbackWarning,
                    stacklevel=4,
                )
        return plain(*args, **options)

    return run_or_fall_back


def eager_under_transforms(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scan that is plain Python while a transform of torch is active, with a warning.

    Compiled code cannot be transformed; the plain loop can, and gives what the transform means.
    """

    def run_or_step(
        body: Body,
        init: PyTree,
        xs: PyTree = None,
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[PyTree, PyTree]:
        if torch.compiler.is_dynamo_compiling() or (transform := active_transform()) is None:
            found: tuple[PyTree, PyTree] = run(body, init, xs, length=length, reverse=reverse)
            return found
        warnings.warn(
            f"a loop runs as plain Python, 100 to 1 000 times slower: {transform} is active, which "
            "compiled loops cannot be under",
            NativeFallbackWarning,
            stacklevel=4,
        )
        return plain_scan(body, init, xs, length=length, reverse=reverse)

    return run_or_step


def plain_scan(
    body: Body, init: PyTree, xs: PyTree, *, length: int | None, reverse: bool
) -> tuple[PyTree, PyTree]:
    """Run a scan as plain Python."""
    return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=ops_for_this_call())
