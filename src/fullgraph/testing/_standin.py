"""A callable that stands where a function stood, and cannot be told from it by comparing."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StandIn"]


class StandIn:
    """Compares, hashes, binds, is copied and has the attributes of the function it wraps."""

    __wrapped__: Callable[..., Any]

    def __init__(self, func: Callable[..., Any]) -> None:
        # into the dictionary, where they hide the attributes of the class
        vars(self)["__wrapped__"] = func
        for name in ("__module__", "__doc__"):
            vars(self)[name] = getattr(func, name, None)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        # in a class it is a method where the function would be one
        if instance is None or not hasattr(type(self.__wrapped__), "__get__"):
            return self
        return types.MethodType(self, instance)  # type: ignore[arg-type] # those below have a call

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _memo: object) -> Self:
        return self

    def __getattr__(self, name: str) -> Any:
        if "__wrapped__" not in vars(self):  # not set yet: while it is being made
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __eq__(self, other: object) -> bool:
        return self.__wrapped__ == (other.__wrapped__ if isinstance(other, StandIn) else other)

    def __hash__(self) -> int:
        return hash(self.__wrapped__)
