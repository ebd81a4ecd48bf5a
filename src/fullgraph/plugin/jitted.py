"""Tagged functions among the arguments of a JAX test, in the form that its module has in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.testing._standin import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

__all__ = ["JittedArgument", "jitted_argument"]


class JittedArgument(StandIn):
    """Calls the jitted form; equals it, and the function itself."""

    _jitted: Callable[..., Any]

    def __init__(self, func: Callable[..., Any], jitted: Callable[..., Any]) -> None:
        super().__init__(func)
        vars(self)["_jitted"] = jitted

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, jitted."""
        return self._jitted(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return other is self._jitted or super().__eq__(other)

    __hash__ = StandIn.__hash__

    def __repr__(self) -> str:
        return f"<jitted {self.__wrapped__!r}>"


def jitted_argument(value: Any, module: ModuleType) -> Any:
    """Return the form of a tagged function that stands in a test's module while it is patched.

    array-api-extra puts it in the module's globals and in those of its ``lazy_xp_modules``. What is
    not found there is returned as it is.
    """
    if isinstance(value, StandIn) or not callable(value):
        return value
    for place in (module, *getattr(module, "lazy_xp_modules", ())):
        candidates: list[Any] = list(vars(place).values())
        for candidate in candidates:
            attributes = _attributes(candidate)
            # a decorator that was given `value`, and has taken over its tag
            wrapped = attributes.get("__wrapped__") is value
            if wrapped and "_lazy_xp_function" in attributes:
                return JittedArgument(value, candidate)
    return value


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object; none of one that has no dictionary."""
    found = getattr(value, "__dict__", None)
    return found if isinstance(found, dict) else {}
