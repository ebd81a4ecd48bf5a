"""``a[i]`` and ``a[i] = v`` where ``i`` is a 0-d integer tensor that a step computes.

torch reads such an index as a Python number, which a capture does not have. Here the same indexing
is written with one-element index tensors: reading or writing one row of a dimension, which negative
numbers count from the end, and which is checked against the size when the loop runs.

Dynamo leaves writes to whoever runs its graph, but wants to know what reading gives. For that a
function mode is active while such a step is captured. Dynamo traces the mode like everything else
in the step; that takes a millisecond for each operation, so a step is captured without it first.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["TensorIndices", "needs_tensor_indices", "read", "with_tensor_indices", "write"]

_INTEGERS: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
Function = TypeVar("Function", bound=Callable[..., Any])


class TensorIndices(TorchFunctionMode):
    """While this is active, 0-d integer tensors in an index stay tensors."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `func`, or `read`."""
        del types
        if func is torch.Tensor.__getitem__:
            return read(*args)
        return func(*args, **(kwargs or {}))


def with_tensor_indices(function: Function) -> Function:
    """Return `function`, with the same parameters, run under `TensorIndices`."""
    names = ", ".join(inspect.signature(function).parameters)
    scope = {"TensorIndices": TensorIndices, "captured": function}
    text = f"def {function.__name__}({names}):\n with TensorIndices(): return captured({names})\n"
    exec(text, scope)  # noqa: S102
    return scope[function.__name__]  # type: ignore[return-value]


def needs_tensor_indices(error: BaseException) -> bool:
    """Whether a capture failed because a tensor was read as an index."""
    return "unbacked symbols" in str(error)


def _is_number(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.ndim == 0 and item.dtype in _INTEGERS


def _dimensions(x: torch.Tensor, items: tuple[Any, ...], at: int) -> int:
    """Return how many dimensions of `x` are indexed by the `at`-th of `items`."""
    item = items[at]
    if item is None or isinstance(item, bool):
        return 0
    if item is Ellipsis:
        rest = (_dimensions(x, items, k) for k in range(len(items)) if k != at)
        return x.ndim - sum(rest)
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.ndim
    return 1


def _row(dim: int, index: torch.Tensor) -> tuple[Any, ...]:
    """Return the index of one row of dimension `dim`, which keeps that dimension."""
    return (*(slice(None) for _ in range(dim)), index.reshape(1).to(torch.int64))


def read(x: torch.Tensor, key: Any) -> torch.Tensor:
    """Return ``x[key]``."""
    items = key if type(key) is tuple else (key,)
    plain: list[Any] = []
    rows, dim = x, 0
    for at, item in enumerate(items):
        if _is_number(item):
            rows = rows[_row(dim, item)]
            plain.append(0)
        else:
            plain.append(item)
        dim += _dimensions(x, items, at)
    result: torch.Tensor = rows[tuple(plain)]
    return result


def write(x: torch.Tensor, key: Any, value: Any) -> None:
    """Run ``x[key] = value``."""
    items = key if type(key) is tuple else (key,)
    at = next((k for k, item in enumerate(items) if _is_number(item)), None)
    before = items[:at]
    if at is None or any(isinstance(item, (torch.Tensor, list, bool)) for item in before):
        x[key] = value
        return
    # What comes before is a view; of that, the row is taken out, written, and put back.
    view = x[before] if before else x
    used = sum(_dimensions(x, items, k) for k in range(at))
    kept = view.ndim - (x.ndim - used)
    row = view[_row(kept, items[at])]
    rest = (*(slice(None) for _ in range(kept)), *items[at + 1 :])
    write(row.select(kept, 0), rest or Ellipsis, value)
    view[_row(kept, items[at])] = row
