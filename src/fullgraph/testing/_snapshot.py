"""Remember what a call may change, and put it back in place.

When compiling fails half-way, a graph may already have run: the call is replayed eagerly only after
its arguments and the random number generators are as they were. They are restored in place, not
replaced by copies, so that the replay sees the identities and aliases that the caller passed, and
the caller sees what eager code does to them.
"""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import torch

__all__ = ["Snapshot"]

_DEEPEST = 6
_PLAIN = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.FunctionType)


class Snapshot:
    """The state of a call's arguments and of the global random number generators.

    Covered are tensors and NumPy arrays, lists, dicts, sets and tuples of them, attributes of
    other objects, and generators (torch's, NumPy's, Python's). What an object keeps outside of its
    ``__dict__`` is not: a file, an iterator, a C extension's state.
    """

    __slots__ = ("_random", "_saved", "_seen")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._saved: list[tuple[str, Any, Any]] = []
        self._seen: set[int] = set()
        for value in args:
            self._save(value, 0)
        for value in kwargs.values():
            self._save(value, 0)
        self._random = _random_state()

    def _save(self, value: Any, depth: int) -> None:
        if isinstance(value, torch.Tensor):
            self._saved.append(("tensor", value, (_version(value), _copy(value))))
            return
        if isinstance(value, _PLAIN) or depth > _DEEPEST or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, tuple | frozenset):
            for item in value:
                self._save(item, depth + 1)
        elif isinstance(value, list | dict | set):
            self._saved.append(("container", value, value.copy()))
            for item in value.values() if isinstance(value, dict) else value:
                self._save(item, depth + 1)
        elif isinstance(value, torch.Generator):
            self._saved.append(("torch generator", value, value.get_state()))
        elif isinstance(value, random.Random):
            self._saved.append(("python generator", value, value.getstate()))
        else:
            self._save_object(value, depth)

    def _save_object(self, value: Any, depth: int) -> None:
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            if isinstance(value, numpy.ndarray):
                if value.flags.writeable:
                    self._saved.append(("array", value, value.copy()))
                return
            if isinstance(value, numpy.generic | numpy.dtype):
                return
            if isinstance(value, numpy.random.Generator):
                bits = value.bit_generator
                self._saved.append(("numpy bits", bits, bits.state))
                return
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._saved.append(("container", attributes, attributes.copy()))
            for item in attributes.values():
                self._save(item, depth + 1)

    def restore(self) -> None:
        """Put everything back that has changed."""
        for kind, value, saved in self._saved:
            _restore_one(kind, value, saved)
        _restore_random(self._random)


def _restore_one(kind: str, value: Any, saved: Any) -> None:
    if kind == "tensor":
        _restore_tensor(value, *saved)
    elif kind == "array":
        value[...] = saved
    elif kind == "container":
        if isinstance(value, list):
            value[:] = saved
        elif isinstance(value, dict):
            # only what differs: an object's attributes may be read-only to everyone but itself
            for name in [name for name in value if name not in saved]:
                del value[name]
            value.update(saved)
        else:
            value.clear()
            value.update(saved)
    elif kind == "torch generator":
        value.set_state(saved)
    elif kind == "python generator":
        value.setstate(saved)
    else:
        value.state = saved


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version  # noqa: SLF001 - documented, in spite of its name
    except RuntimeError:  # inference tensors have none
        return None


def _copy(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if tensor.is_meta else tensor.detach().clone()


def _restore_tensor(tensor: torch.Tensor, version: int | None, saved: torch.Tensor | None) -> None:
    if saved is None or (version is not None and _version(tensor) == version):
        return
    with torch.no_grad(), torch.inference_mode(tensor.is_inference()):
        if tensor.shape == saved.shape:
            tensor.copy_(saved)
        else:
            tensor.data = saved


def _random_state() -> dict[str, Any]:
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = numpy.random.get_state()
    return state


def _restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        sys.modules["numpy"].random.set_state(state["numpy"])
