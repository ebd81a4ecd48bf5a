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
_PLAIN = (bool, int, float, complex, str, bytes)
_CONTAINERS = (list, tuple, set, frozenset)


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
    """Describe one value: tensors and arrays by dtype and shape, Python values by repr.

    No code of the user's runs: attributes and representations of unknown objects are not asked for.
    """
    if value is None or type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        return f"{name}@{id(value):x}" if identities else name
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        # a NumPy scalar is a value to Dynamo; an array is its dtype and shape
        text = f"{type(value).__name__} {value.dtype}{list(value.shape)}"
        return f"{text} {value!r}" if isinstance(value, numpy.generic) else text
    if type(value) in _CONTAINERS and depth < _DEEPEST:
        inner = ", ".join(describe(item, identities, depth + 1) for item in value)
        return f"{type(value).__name__}({inner})"
    if type(value) is dict and depth < _DEEPEST:
        inner = ", ".join(
            f"{describe(k, identities, depth + 1)}: {describe(v, identities, depth + 1)}"
            for k, v in value.items()
        )
        return f"{{{inner}}}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return f"{kind}@{id(value):x}" if identities else kind


def _describe_tensor(value: Any) -> str:
    dtype = str(value.dtype).removeprefix("torch.")
    text = f"{dtype}{list(value.shape)}"
    if str(value.layout) != "torch.strided":
        text += f" {value.layout}"
    elif not value.is_contiguous():
        text += f" strides {list(value.stride())}"
    if value.device.type != "cpu":
        text += f" {value.device}"
    if value.requires_grad:
        text += " grad"
    kind = type(value)
    return text if kind.__name__ == "Tensor" else f"{kind.__name__} {text}"
