"""A frame's arguments in a few words, the same in every process."""

from __future__ import annotations

import hashlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST = 200
_DEEPEST = 4


def describe_frame(local_values: Mapping[str, Any], *, identities: bool = False) -> str:
    """Describe a frame's local variables, in their order.

    With `identities`, objects that have no description of their own are told apart by address: such
    a text is good within a process and while the objects live.
    """
    parts = [f"{name}={describe(value, identities)}" for name, value in local_values.items()]
    text = ", ".join([*parts, *_global_state()])
    return text if identities else shorten(text)


def _global_state() -> list[str]:
    """Say which of the modes that Dynamo guards on are not at their default."""
    torch = sys.modules["torch"]
    state = []
    if not torch.is_grad_enabled():
        state.append("no grad")
    if torch.is_inference_mode_enabled():
        state.append("inference mode")
    if torch.get_default_dtype() is not torch.float32:
        state.append(f"default {torch.get_default_dtype()}")
    if torch.are_deterministic_algorithms_enabled():
        state.append("deterministic")
    return state


def shorten(text: str) -> str:
    """Cut a long description and end it with a digest of the whole."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[: _LONGEST - 12]}...{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def describe(value: Any, identities: bool = False, depth: int = 0) -> str:
    """Describe one value: tensors and arrays by dtype and shape, Python values by repr."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        if type(value).__module__ == "builtins":
            return repr(value)
    elif _is_tensor(value):
        return _describe_tensor(value)
    elif isinstance(value, list | tuple | set | frozenset) and depth < _DEEPEST:
        inner = ", ".join(describe(item, identities, depth + 1) for item in value)
        return f"{type(value).__name__}({inner})"
    elif isinstance(value, dict) and depth < _DEEPEST:
        inner = ", ".join(f"{k!r}: {describe(v, identities, depth + 1)}" for k, v in value.items())
        return f"{{{inner}}}"
    elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        return f"{name}@{id(value):x}" if identities else name
    elif isinstance(value, types.ModuleType):
        return value.__name__
    elif isinstance(value, types.CellType):
        return "cell"
    return _describe_other(value, identities)


def _is_tensor(value: Any) -> bool:
    # a class has the attributes of its instances, as descriptors
    return (
        not isinstance(value, type)
        and hasattr(value, "untyped_storage")
        and hasattr(value, "requires_grad")
    )


def _describe_tensor(value: Any) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    text = f"{dtype}{list(value.shape)}"
    if str(value.layout) != "torch.strided":
        return f"{text} {value.layout}"
    if not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    if value.device.type != "cpu":
        text += f" {value.device}"
    if value.requires_grad:
        text += " grad"
    kind = type(value)
    return text if kind.__name__ == "Tensor" else f"{kind.__name__} {text}"


def _describe_other(value: Any, identities: bool) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    if isinstance(shape, tuple) and dtype is not None:
        # a NumPy scalar is a value to Dynamo; an array is its dtype and shape
        return f"{kind} {dtype}{list(shape)}" + (f" {value!r}" if shape == () else "")
    return f"{kind}@{id(value):x}" if identities else kind
