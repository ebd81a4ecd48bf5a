"""What is given to torch.compile in place of a callable that Dynamo does not compile as it is."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from fullgraph.errors import UsageError
from fullgraph.testing._names import display_name

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["is_generator_function", "traceable"]

_MOST_ITEMS = 1000


def is_generator_function(func: Any) -> bool:
    return inspect.isgeneratorfunction(inspect.unwrap(func)) if callable(func) else False


def traceable(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return what to give to torch.compile for `func`.

    Dynamo compiles Python functions, bound methods and modules. Whatever else can be called (a
    ufunc, a partial, a builtin, an object) is called from a function of ours; a generator function
    is run to its end there, since Dynamo traces a generator only where it is consumed.
    """
    if is_generator_function(func):
        name = display_name(func)

        @functools.wraps(func)
        def consumed(*args: Any, **kwargs: Any) -> Any:
            items = []
            for item in func(*args, **kwargs):
                items.append(item)
                if len(items) > _MOST_ITEMS:
                    raise UsageError(
                        f"{name} gave more than {_MOST_ITEMS} items: a generator is run to its "
                        "end, so an endless one is eager only: tag it with torch_compile=False"
                    )
            return items

        return consumed
    if inspect.isfunction(func) or inspect.ismethod(func) or isinstance(func, torch.nn.Module):
        return func

    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return call
