"""NumPy arrays keep their values while a frame is traced.

With ``trace_numpy`` off, Dynamo carries out ``an_array += 1`` on the array itself while it traces,
breaks the graph there, and lets Python do it once more (torch 2.14 and 2.15): without this every
first call would add twice.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_DEEPEST = 3
_OPAQUE = (
    *(str, bytes, int, float, complex, type(None), type),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
)


@contextlib.contextmanager
def arrays_kept(values: Mapping[str, Any]) -> Iterator[None]:
    """Put the arrays among a frame's variables, and in what they hold, back as they were."""
    saved = [(array, array.copy()) for array in _arrays(list(values.values()), 0, set())]
    try:
        yield
    finally:
        for array, copy in saved:
            array[...] = copy


def _arrays(value: Any, depth: int, seen: set[int]) -> Iterator[Any]:
    numpy = sys.modules.get("numpy")
    kind = type(value)  # not isinstance, which may ask an object of the user's for its class
    if numpy is None or depth > _DEEPEST or issubclass(kind, _OPAQUE) or id(value) in seen:
        return
    seen.add(id(value))
    if issubclass(kind, numpy.ndarray):
        if value.flags.writeable:
            yield value
    elif issubclass(kind, list | tuple | set):
        for item in value:
            yield from _arrays(item, depth + 1, seen)
    elif issubclass(kind, dict):
        for item in list(value.values()):
            yield from _arrays(item, depth + 1, seen)
    else:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            yield from _arrays(attributes, depth, seen)
