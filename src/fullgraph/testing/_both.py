"""One call made twice, eagerly and compiled, from the same state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import optree
import torch

from fullgraph.errors import CaptureError
from fullgraph.testing._compare import assert_same, copied
from fullgraph.testing._dynamo.tracing import quiet_notices
from fullgraph.testing._snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Both", "Result"]


@dataclass(frozen=True, slots=True)
class Result:
    """What one of the two calls left."""

    value: Any = None
    arguments: Any = None
    gradients: tuple[torch.Tensor | None, ...] = ()
    error: Exception | None = None


class Both:
    """Calls a function twice and compares."""

    def __init__(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, grad: bool
    ) -> None:
        self._func, self._grad = func, grad
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
        except CaptureError:
            raise
        except Exception as error:  # noqa: BLE001 - handed on: both calls must raise alike
            return Result(error=error)
        gradients = self._gradients(value) if self._grad else ()
        return Result(copied(value), copied((args, kwargs)), gradients)

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
                [output.sum() for output in outputs], self._leaves, allow_unused=True
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
            ("gradient", actual.gradients, expected.gradients),
        ):
            assert_same(mine, theirs, what=what, name=name, rtol=rtol, atol=atol)
