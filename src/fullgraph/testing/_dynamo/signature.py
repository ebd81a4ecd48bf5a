"""A frame's arguments in a few words, the same in every process."""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LONGEST = 200
_DEEPEST = 4
_PLAIN = (bool, int, float, complex, str, bytes)
_CONTAINERS = (list, tuple, set, frozenset)


def describe_frame(local_values: Mapping[str, Any], *, identities: list[Any] | None = None) -> str:
    """Describe a frame's local variables, in their order.

    With `identities` the text tells apart what Dynamo may tell apart: objects by their attributes,
    closures by their variables, and by address what has no description. The list receives the
    latter: the text is good while they live.
    """
    parts = [f"{name}={describe(value, identities)}" for name, value in local_values.items()]
    text = ", ".join([*parts, *_global_state()])
    return shorten(text) if identities is None else text


def describe_globals(names: Iterable[str], namespace: Mapping[str, Any]) -> str:
    """Describe the plain values among the global variables that a frame reads."""
    plain = bool | int | float | complex | str | bytes | None
    found = [name for name in names if isinstance(namespace.get(name, namespace), plain)]
    return ", ".join(f"{name}={namespace[name]!r}" for name in found)


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


def describe(value: Any, identities: list[Any] | None = None, depth: int = 0) -> str:
    """Describe one value: tensors and arrays by dtype and shape, Python values by repr."""
    if value is None or type(value) in _PLAIN:
        return repr(value)
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType):
        name = f"{value.__module__}.{value.__qualname__}"
        return name if identities is None else name + _told_apart(value, identities, depth)
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, torch.Tensor):
        return _describe_tensor(value)
    if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
        # a NumPy scalar is a value to Dynamo; an array is its dtype and shape
        text = f"{_kind(value)} {value.dtype}{list(value.shape)}"
        return f"{text} {value!r}" if isinstance(value, numpy.generic) else text
    if isinstance(value, _CONTAINERS) and depth < _DEEPEST:
        inner = ", ".join(describe(item, identities, depth + 1) for item in value)
        return f"{type(value).__name__}({inner})"
    if isinstance(value, dict) and depth < _DEEPEST:
        inner = ", ".join(
            f"{describe(k, identities, depth + 1)}: {describe(v, identities, depth + 1)}"
            for k, v in value.items()
        )
        return f"{{{inner}}}"
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.CellType):
        return _describe_cell(value, identities, depth)
    kind = _kind(value)
    return kind if identities is None else kind + _told_apart(value, identities, depth)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _describe_cell(cell: types.CellType, identities: list[Any] | None, depth: int) -> str:
    if identities is None or depth >= _DEEPEST:
        return "cell"
    try:
        return f"cell({describe(cell.cell_contents, identities, depth + 1)})"
    except ValueError:  # still empty
        return "cell()"


def _told_apart(value: Any, identities: list[Any], depth: int) -> str:
    """Tell an object from others of its kind: by contents if it has them, else by address."""
    if isinstance(value, types.FunctionType):
        identities.append(value.__code__)
        inside: Any = (value.__closure__, value.__defaults__, value.__kwdefaults__)
        return f"@{id(value.__code__):x}{describe(inside, identities, depth + 1)}"
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return describe(parts, identities, depth + 1)
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict) and attributes and depth < _DEEPEST:
        return describe(attributes, identities, depth + 1)
    identities.append(value)
    return f"@{id(value):x}"


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
