"""The native adapter: a whole scan of CPU torch as one C function."""

from __future__ import annotations

import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

from fullgraph.errors import (
    FullgraphException,
    GradientRefusedError,
    LoopCompilationError,
    MissingBackendError,
    NativeFallbackWarning,
    UnsupportedBodyError,
    UnsupportedLoopError,
    UsageError,
)
from fullgraph.loops import LoopAdapter, _eager
from fullgraph.loops._carry import CarrySpec, output_leaf, split_result, strengthen, weak_leaves
from fullgraph.loops._eager_torch import TorchOps, ops_for_this_call
from fullgraph.loops._foreign import whole_driver
from fullgraph.loops._plan import ScanPlan, plan_scan
from fullgraph.loops._tree import flatten, leaf_path, unflatten
from fullgraph.native.build import find_compiler, unsupported_platform
from fullgraph.native.capture import mark
from fullgraph.native.dispatch import Site, Specialisation
from fullgraph.native.transforms import under_transform

__all__ = ["NativeScan", "torch_native_loop_adapter"]

PyTree = Any
Body = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]

SITES: Final = 256  # bodies an adapter remembers; the least recently used one is forgotten
_OPS: Final = TorchOps()
_CPU: Final = torch.device("cpu")
_TENSORS: Final = (torch.Tensor, torch.nn.Parameter)


def torch_native_loop_adapter(
    *,
    max_steps: int | None = None,
    max_elements: int | None = None,
    fallback: Literal["raise", "eager"] = "raise",
    threads: int = 1,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopAdapter:
    """Return an adapter that runs scans of CPU torch as one compiled C function each.

    The body is captured once with Dynamo, compiled with the C compiler of the system, and kept on
    disk. A later call checks Dynamo's guards (closures, globals, dtypes, shapes) and runs. The
    number of steps is no part of what is compiled.

    Parameters
    ----------
    max_steps : int, optional
        Refuse scans with more steps.
    max_elements : int, optional
        Refuse scans in which a leaf of carry or x has more elements.
    fallback : {"raise", "eager"}
        What to do with a body that cannot be compiled: raise `UnsupportedBodyError`, or warn once
        for that body and run it as plain Python.
    threads : int
        At most this many threads share the lanes of a large loop.
    vector_math : {"sleef", "libm"}
        Where exp, sin, tanh and the like come from: the vector routines that torch itself uses
        (within 1 ulp), or the C library, which is slower and rounds a little better.

    Returns
    -------
    LoopAdapter
        For `register_loop_adapter` or `use_loop_adapter`; while loops stay eager.

    Raises
    ------
    MissingBackendError
        torch is older than 2.14, or this is not Linux on x86-64.
    CompilerNotFoundError
        There is no C compiler.
    UsageError
        An argument is outside what is accepted.

    Notes
    -----
    Results equal those of the plain loop bit for bit where the body is made of ``+ - * / sqrt``
    (not ``add(alpha=)``, ``lerp``, ``addcmul``, ``addcdiv``); elsewhere they differ by rounding.
    Inputs that require grad are refused while gradients are on. Randomness in a body is refused.
    Integers divided by zero and indices outside raise `NativeRuntimeError` after the loop.

    Examples
    --------
    >>> import torch, fullgraph
    >>> from fullgraph.torch_loop import torch_native_loop_adapter
    >>> with fullgraph.use_loop_adapter("torch", torch_native_loop_adapter()):
    ...     carry, ys = fullgraph.scan(
    ...         lambda c, x: (c + x, c), torch.tensor(0.0), torch.arange(4.0)
    ...     )
    >>> carry.item(), ys.tolist()
    (6.0, [0.0, 0.0, 1.0, 3.0])
    """
    return LoopAdapter(
        scan=NativeScan(max_steps, max_elements, fallback, threads, vector_math).function()
    )


@dataclass(eq=False)
class NativeScan:
    """The scan of one adapter, with everything it has compiled."""

    max_steps: int | None = None
    max_elements: int | None = None
    fallback: str = "raise"
    threads: int = 1
    vector_math: str = "sleef"
    sites: OrderedDict[int, tuple[Any, Site]] = field(default_factory=OrderedDict)
    warned: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        _check_settings(self)
        _check_installation()

    def function(self) -> Callable[..., tuple[PyTree, PyTree]]:
        """Return the scan as a plain function."""
        sites, rows, checked = self.sites, _Rows(), self._checked
        most = self.max_steps if self.max_steps is not None else sys.maxsize
        compiling = torch.compiler.is_dynamo_compiling

        def scan(
            body: Body, init: PyTree, xs: PyTree, *, length: int | None = None, reverse: bool = False
        ) -> tuple[PyTree, PyTree]:
            if compiling():
                return traced_scan(body, init, xs, length=length, reverse=reverse)
            # The short way: one tensor of xs, and a body seen before.
            if type(xs) is torch.Tensor and length is None and not under_transform():
                site = sites.get(id(getattr(body, "__code__", None)))
                if site is not None:
                    row = rows.like(xs)
                    if row is not None:
                        steps = len(xs)
                        found = (
                            site[1].try_call(body, init, row, (xs,), steps, reverse=reverse)
                            if steps <= most
                            else None
                        )
                        if found is not None:
                            return found
            return checked(body, init, xs, length, reverse=reverse)

        scan.native = self  # type: ignore[attr-defined]
        return whole_driver(scan)

    def _checked(
        self, body: Body, init: PyTree, xs: PyTree, length: int | None, *, reverse: bool
    ) -> tuple[PyTree, PyTree]:
        """Check all arguments, then run what was compiled before or compile now."""
        plan = plan_scan(init, xs, length, _OPS, reverse=reverse)
        self._check_bounds(plan, init, xs)
        init = self._strong(body, init, plan)
        x = unflatten(plan.xs_treedef, [row_like(leaf) for leaf in plan.xs])
        site = self._site(body)
        found = site.try_call(body, init, x, plan.xs, plan.length, reverse=reverse)
        if found is not None:
            return found
        try:
            return site.call(body, init, x, plan.xs, plan.length, reverse=reverse)
        except Exception as error:
            reason = _reason(error, body, init, xs, plan)
            if reason is None:
                raise
            if self.fallback == "eager" and isinstance(
                reason, UnsupportedBodyError | GradientRefusedError
            ):
                self._warn(body, reason)
                return _eager.scan(
                    body, init, xs, length=length, reverse=reverse, ops=ops_for_this_call()
                )
            raise reason from error

    def _site(self, body: Body) -> Site:
        """Return where captures of `body` are kept: by its code, which closures share."""
        key = getattr(body, "__code__", None) or type(body)
        known = self.sites.get(id(key))
        if known is None:
            # The key is kept alive, so that its id stays its own.
            known = key, Site(captured_step, self.vector_math, self.threads)
            self.sites[id(key)] = known
            if len(self.sites) > SITES:
                self.sites.popitem(last=False)
        else:
            self.sites.move_to_end(id(key))
        return known[1]

    def specialisations(self) -> list[Specialisation]:
        """Return everything this adapter has compiled and still remembers."""
        return [s for _, site in self.sites.values() for s in site.specialisations]

    def _strong(self, body: Body, init: PyTree, plan: ScanPlan) -> PyTree:
        """Return `init` with Python scalars made tensors of the dtype that the body gives them."""
        if not weak_leaves(plan.init):
            return init
        rows = [
            leaf[0].clone() if plan.length else leaf.new_ones(leaf.shape[1:]) for leaf in plan.xs
        ]

        def after_one_step(tree: PyTree) -> PyTree:
            carry, treedef = flatten(tree)
            own = [v.clone() if isinstance(v, torch.Tensor) else v for v in carry]
            call = lambda: body(unflatten(treedef, own), unflatten(plan.xs_treedef, rows))  # noqa: E731
            return split_result(_OPS.evaluate(call))[0]

        strong = strengthen(plan.init, plan.init_treedef, _OPS, plan.device or _CPU, after_one_step)
        return unflatten(plan.init_treedef, strong)

    def _check_bounds(self, plan: ScanPlan, init: PyTree, xs: PyTree) -> None:
        if under_transform():
            raise UnsupportedLoopError(
                "native loops do not run under torch.func transforms (vmap, grad, jvp). Write the "
                "batch as a dimension of the carry, or use another adapter there."
            )
        if self.max_steps is not None and plan.length > self.max_steps:
            raise UnsupportedLoopError(
                f"this scan has {plan.length} steps, and the adapter was made with "
                f"max_steps={self.max_steps}. Raise max_steps, or scan in several calls."
            )
        for tree, leaves, root, lead in ((init, plan.init, "carry", 0), (xs, plan.xs, "xs", 1)):
            for i, leaf in enumerate(leaves):
                if isinstance(leaf, torch.Tensor):
                    self._check_leaf(tree, i, leaf, root, lead)

    def _check_leaf(self, tree: PyTree, i: int, leaf: torch.Tensor, root: str, lead: int) -> None:
        problem = ""
        if type(leaf) not in _TENSORS:
            problem = f"is {type(leaf).__name__}, a tensor subclass; native loops take plain tensors"
        elif leaf.device.type != "cpu":
            problem = f"is on {leaf.device}, and native loops run on the CPU"
        elif leaf.layout is not torch.strided:
            problem = f"is {leaf.layout}; make it dense"
        elif leaf.is_neg() or leaf.is_conj():
            problem = "is lazily negated or conjugated; call resolve_neg() and resolve_conj()"
        elif self.max_elements is not None:
            size = leaf[0].numel() if lead and leaf.shape[0] else leaf.numel()
            if size > self.max_elements:
                problem = (
                    f"has {size} elements, and the adapter was made with "
                    f"max_elements={self.max_elements}"
                )
        if problem:
            raise UnsupportedLoopError(f"{leaf_path(tree, i, root)} {problem}.")

    def _warn(self, body: Body, reason: Exception) -> None:
        key = getattr(body, "__code__", None) or type(body)
        if id(key) in self.warned:
            return
        self.warned.add(id(key))
        self.sites.setdefault(id(key), (key, Site(captured_step, self.vector_math, self.threads)))
        warnings.warn(
            f"a loop runs as plain Python, 100 to 1 000 times slower: {reason}",
            NativeFallbackWarning,
            stacklevel=6,
        )


def row_like(xs: torch.Tensor) -> torch.Tensor:
    """Return a tensor like one row of `xs`, which only Dynamo's guards look at."""
    return torch.empty(xs.shape[1:], dtype=xs.dtype, requires_grad=xs.requires_grad)


class _Rows:
    """Remembers the row of the last call, since calls in a row mostly look alike."""

    def __init__(self) -> None:
        self._last: tuple[torch.dtype, torch.Size, torch.Tensor] | None = None

    def like(self, xs: torch.Tensor) -> torch.Tensor | None:
        """Return a row like those of `xs`, a plain tensor; None if it needs a closer look."""
        shape = xs.shape
        if xs.requires_grad or not xs.is_cpu or not shape or xs.is_neg() or xs.is_sparse:
            return None
        last = self._last
        if last is not None and last[0] is xs.dtype and last[1] == shape:
            return last[2]
        row = torch.empty(shape[1:], dtype=xs.dtype)
        self._last = (xs.dtype, shape, row)
        return row


def traced_scan(
    body: Body, init: PyTree, xs: PyTree, *, length: int | None, reverse: bool
) -> tuple[PyTree, PyTree]:
    """Run a scan inside a user's own ``torch.compile``."""
    return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=ops_for_this_call())


def captured_step(body: Body, init: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
    """Take one step; this is what Dynamo captures."""
    leaves, treedef = flatten(init)
    rows, rows_treedef = flatten(x)
    carry = unflatten(treedef, [mark(leaf, "carry", i) for i, leaf in enumerate(leaves)])
    row = unflatten(rows_treedef, [mark(leaf, "x", i) for i, leaf in enumerate(rows)])
    new, y = split_result(body(carry, row))
    accepted = CarrySpec(carry, _OPS).accept(new)
    outputs, y_treedef = flatten(y)
    arrays = [output_leaf(y, i, leaf, _OPS, _CPU) for i, leaf in enumerate(outputs)]
    return (
        unflatten(treedef, [mark(leaf, "new", i) for i, leaf in enumerate(accepted)]),
        unflatten(y_treedef, [mark(leaf, "y", i) for i, leaf in enumerate(arrays)]),
    )


def _reason(
    error: Exception, body: Body, init: PyTree, xs: PyTree, plan: ScanPlan
) -> Exception | None:
    """Return what a failed capture means to the user; None lets the error pass as it is."""
    if isinstance(error, FullgraphException):
        return None
    inner = getattr(error, "inner_exception", None)
    if isinstance(inner, FullgraphException):
        return inner
    if inner is not None:
        return LoopCompilationError(
            f"the loop compiler failed on this body, which is a bug of fullgraph: "
            f"{type(inner).__name__}: {inner}. Please report it; another adapter, or "
            f"use_loop_adapter({_OPS.name!r}, None), runs the loop meanwhile."
        )
    broken = _broken_body(body, init, xs, plan)
    if broken is not None:
        return broken
    if type(error).__module__.startswith("torch._dynamo") or isinstance(error, RuntimeError):
        first = next((line for line in str(error).splitlines() if line.strip()), "")
        line = _user_line(error)
        return UnsupportedBodyError(
            f"the body cannot become a native loop: it cannot be captured whole: {first}"
            f"{' at ' + line if line else ''}. Compute with tensors only: no printing, no Python "
            "decisions on tensor values (use where or cond), no changes of outer state.",
            "capture",
            line,
        )
    return None


def _broken_body(body: Body, init: PyTree, xs: PyTree, plan: ScanPlan) -> Exception | None:
    """Return the exception that the body raises by itself, in one step of plain Python."""
    rows = unflatten(plan.xs_treedef, [leaf[:1] for leaf in plan.xs])
    try:
        with torch.no_grad():
            _eager.scan(
                body, init, rows, length=min(plan.length, 1), reverse=plan.reverse, ops=TorchOps()
            )
    except Exception as error:  # noqa: BLE001 - handed on as it is
        return error
    return None


def _user_line(error: Exception) -> str:
    stack = getattr(error, "real_stack", None)
    if not stack:
        return ""
    frame = stack[-1]
    return f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"


def _check_settings(scan: NativeScan) -> None:
    if scan.fallback not in ("raise", "eager"):
        raise UsageError(f'fallback must be "raise" or "eager", and is {scan.fallback!r}')
    if scan.vector_math not in ("sleef", "libm"):
        raise UsageError(f'vector_math must be "sleef" or "libm", and is {scan.vector_math!r}')
    for name in ("threads", "max_steps", "max_elements"):
        value = getattr(scan, name)
        least = 1 if name == "threads" else 0
        if value is None and name != "threads":
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{name} must be an int that is at least {least}, and is {value!r}")


def _check_installation() -> None:
    problem = unsupported_platform()
    if problem:
        raise MissingBackendError(problem)
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) < (2, 14):
        raise MissingBackendError(f"native loops need torch >= 2.14; this is {torch.__version__}")
    find_compiler()


