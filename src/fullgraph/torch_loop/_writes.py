"""Refuse a body that writes into a tensor that it neither was handed nor made itself.

Compiled code may write it in another order or number than a loop does, and a rehearsal writes it
once more: the values would be wrong without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from fullgraph.loops._tree import flatten
from fullgraph.torch_loop._rules import Rules, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.errors import UnsupportedLoopError

__all__ = ["NoOutsideWrites"]


class NoOutsideWrites(TorchFunctionMode):
    """Inside the block, writing into a tensor from outside of it raises `UnsupportedLoopError`.

    Parameters
    ----------
    rules : Rules
        Of the adapter that refuses.

    Notes
    -----
    Methods that write by their name (``add_``, ``__setitem__``, ``+=``, ``out=``) are refused
    before they do; any other write is found by version counters at the end of the block.
    """

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self._rules = rules
        self._made: dict[int, torch.Tensor] = {}
        self._outside: dict[int, tuple[torch.Tensor, int]] = {}
        self._storages: set[int] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note which tensors come from outside, and refuse to write into one."""
        del types
        kwargs = kwargs or {}
        for leaf in _tensors((args, kwargs)):
            if id(leaf) not in self._made and id(leaf) not in self._outside:
                self._outside[id(leaf)] = leaf, _version(leaf)
                self._storages.add(_storage(leaf))
        for leaf in _tensors((_written(func, args), kwargs.get("out"))):
            if leaf.numel() and _storage(leaf) in self._storages:
                raise self._refusal(leaf)
        result = func(*args, **kwargs)
        for leaf in _tensors(result):
            if id(leaf) not in self._outside:
                self._made[id(leaf)] = leaf  # and keep it alive: identities are used again
        return result

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Look for writes that no name gave away."""
        super().__exit__(kind, *rest)  # type: ignore[no-untyped-call]
        for leaf, version in self._outside.values():
            if kind is None and _version(leaf) != version:
                raise self._refusal(leaf)

    def _refusal(self, leaf: torch.Tensor) -> UnsupportedLoopError:
        return refuse(
            self._rules,
            f"the body writes into a tensor of shape {tuple(leaf.shape)} that it closes over. Pass "
            f"it in the carry, and return the new value.",
        )


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def _written(func: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """Return the argument that a function writes into by its name."""
    name = getattr(func, "__name__", "")
    augmented = name.startswith("__i") and name.endswith("__") and name not in _NO_WRITES
    in_place = name.endswith("_") and not name.endswith("__")
    return args[:1] if augmented or in_place or name == "__setitem__" else None


_NO_WRITES = {"__index__", "__int__", "__invert__", "__init__", "__iter__"}


def _version(leaf: torch.Tensor) -> int:
    return -1 if leaf.is_inference() else leaf._version  # noqa: SLF001 - documented by torch


def _storage(leaf: torch.Tensor) -> int:
    return leaf.untyped_storage().data_ptr() if leaf.layout is torch.strided else id(leaf)
