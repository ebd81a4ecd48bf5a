"""Which backend a test will run on, read from its parameters before any fixture has run."""

from __future__ import annotations

import enum
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

__all__ = ["UNKNOWN", "backend_of_item", "backend_of_value", "namespace_fixture"]

UNKNOWN = "?"
"""Nothing in the test's parameters says which namespace its fixture will yield."""

_KNOWN = {
    "torch": "torch",
    "jax": "jax",
    "numpy": "numpy",
    "cupy": "cupy",
    "dask": "dask",
    "sparse": "sparse",
    "mparray": "mparray",
    "ndonnx": "ndonnx",
    "array_api_strict": "array_api_strict",
}


def namespace_fixture(item: pytest.Function, names: tuple[str, ...]) -> str | None:
    """Return the first of `names` that is a fixture of the test."""
    return next((name for name in names if name in item.fixturenames), None)


def backend_of_item(item: pytest.Function, fixture: str) -> str:
    """Return "torch", "jax", another library, or `UNKNOWN`.

    Looked at are the parameter of the fixture itself, then those of the fixtures that it uses.
    """
    callspec = getattr(item, "callspec", None)
    params: dict[str, Any] = callspec.params if callspec is not None else {}
    for name in _with_dependencies(item, fixture):
        if name in params and (backend := backend_of_value(params[name])) is not None:
            return backend
    return UNKNOWN


def _with_dependencies(item: pytest.Function, fixture: str) -> Iterator[str]:
    definitions: Any = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    seen: set[str] = set()
    waiting = [fixture]
    while waiting:
        name = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield name
        for definition in definitions.get(name, ()):
            waiting.extend(definition.argnames)


def backend_of_value(value: Any) -> str | None:
    """Return the library that a module, its name, or an enum member of that value stands for."""
    if isinstance(value, enum.Enum):
        value = value.value if isinstance(value.value, str | ModuleType) else value.name.lower()
    if isinstance(value, ModuleType):
        return _of_name(value.__name__) or "other"
    if isinstance(value, str):
        return _of_name(value.partition(":")[0])
    name = getattr(value, "__name__", None)  # a wrapper that stands for a namespace
    return _of_name(name) if isinstance(name, str) else None


def _of_name(name: str) -> str | None:
    parts = name.split(".")
    if "array_api_compat" in parts:  # vendored copies too
        parts = parts[parts.index("array_api_compat") + 1 :] or ["numpy"]
    return _KNOWN.get(parts[0])
