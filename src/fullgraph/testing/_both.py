"""One call made twice, eagerly and compiled, from the same state."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optree
import torch

from fullgraph.errors import CaptureError, UsageError
from fullgraph.testing._adaptors import is_generator_function
from fullgraph.testing._compare import assert_same, copied
from fullgraph.testing._compiled import CompiledFunction
from fullgraph.testing._dynamo.tracing import quiet_notices
from fullgraph.testing._names import display_name
from fullgraph.testing._snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Both", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one of the two calls left."""

    value: Any = None
    arguments: Any = None
    carried: Any = None
    gradients: tuple[torch.Tensor | None, ...] = ()
    error: Exception | None = None


class Both:
    """Calls a function twice and compares."""

    def __init__(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, grad: bool
    ) -> None:
        self._func, self._grad = func, grad
        self._lazy = is_generator_function(func)
        self._leaves: list[torch.Tensor] = []
        if isinstance(func, torch.nn.Module):
            self._leaves += [p for p in func.parameters() if p.requires_grad] if grad else []
        tree: tuple[tuple[Any, ...], dict[str, Any]] = (args, kwargs)
        self._args: tuple[Any, ...]
        self._kwargs: dict[str, Any]
        self._args, self._kwargs = self._differentiable(tree) if grad else tree
        self._saved = Snapshot(self._args, self._kwargs, func)

    def _differentiable(self, tree: Any) -> Any:
        """Return `tree` with floating tensors replaced by ones whose gradient can be asked for.

        They are no leaves of the autograd graph: code that writes into its arguments can run.
        """

        def replace(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor) or not leaf.dtype.is_floating_point:
                return leaf
            origin = leaf.detach().clone().requires_grad_()
            self._leaves.append(origin)
            return origin

        return optree.tree_map(replace, tree, none_is_leaf=True)

    def _call(self, func: Callable[..., Any]) -> Result:
        args, kwargs = self._args, self._kwargs
        if self._grad:
            tree: Any = (args, kwargs)
            branched: Any = optree.tree_map(self._branch, tree, none_is_leaf=True)
            args, kwargs = branched
        try:
            value = func(*args, **kwargs)
            value = list(value) if self._lazy else value
        except CaptureError:
            raise
        except Exception as error:  # noqa: BLE001 - handed on: both calls must raise alike
            return Result(error=error)
        _refuse_lazy(value, display_name(self._func))
        gradients = self._gradients(value) if self._grad else ()
        carried = copied(_carried(self._func))
        return Result(copied(value), copied((args, kwargs)), carried, gradients)

    def _branch(self, leaf: Any) -> Any:
        return leaf.clone() if any(leaf is origin for origin in self._leaves) else leaf

    def _gradients(self, value: Any) -> tuple[torch.Tensor | None, ...]:
        outputs = [
            leaf
            for leaf in optree.tree_leaves(value, none_is_leaf=True)
            if isinstance(leaf, torch.Tensor) and leaf.requires_grad
        ]
        if not outputs or not self._leaves:
            return (None,) * len(self._leaves)
        with quiet_notices():  # a backend may compile the backward graph here
            return torch.autograd.grad(
                [_real(output).sum() for output in outputs], self._leaves, allow_unused=True
            )

    def eager(self) -> Result:
        """Call the function itself, and put back what it changed."""
        try:
            return self._call(self._func)
        finally:
            self._saved.restore()

    def compiled(self, call: Callable[..., Any]) -> Result:
        """Call the compiled function."""
        return self._call(call)

    def compare(
        self,
        actual: Result,
        expected: Result,
        *,
        name: str,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        """Raise a `MismatchError` where the two results differ."""
        for what, mine, theirs in (
            ("result", actual.value, expected.value),
            ("argument", actual.arguments, expected.arguments),
            ("state", actual.carried, expected.carried),
            ("gradient", actual.gradients, expected.gradients),
        ):
            assert_same(mine, theirs, what=what, name=name, rtol=rtol, atol=atol)


def _real(output: torch.Tensor) -> torch.Tensor:
    """Return a complex tensor as real and imaginary parts: a gradient is that of a real number."""
    return torch.view_as_real(output.resolve_conj()) if output.is_complex() else output


def _carried(func: Callable[..., Any]) -> Any:
    """Return what a module, a callable object or a bound method may change beside its arguments."""
    while isinstance(func, CompiledFunction):  # its record is not the user's
        func = func.__wrapped__
    owner = getattr(func, "__self__", func)
    if isinstance(owner, torch.nn.Module):
        return {**dict(owner.named_parameters()), **dict(owner.named_buffers())}
    plain = type | types.ModuleType | types.FunctionType | types.BuiltinFunctionType
    return None if isinstance(owner, plain) else owner


def _refuse_lazy(value: Any, name: str) -> None:
    """Raise for a result that is computed only when somebody goes through it."""
    for leaf in optree.tree_leaves(value):
        if isinstance(leaf, Iterator):
            raise UsageError(
                f"{name} returns a {type(leaf).__name__}, whose items are computed after the "
                "compiled call has ended, outside of it: return a list, or check a function that "
                "goes through them"
            )
