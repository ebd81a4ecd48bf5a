"""Remember what a call may change, and put it back in place.

When compiling fails half-way, a graph may already have run: the call is replayed eagerly only after
its arguments and the random number generators are as they were. They are restored in place, not
replaced by copies, so that the replay sees the identities and aliases that the caller passed, and
the caller sees what eager code does to them.
"""

from __future__ import annotations

import collections
import functools
import random
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Snapshot"]

_DEEPEST = 6
_PLAIN = (str, bytes, int, float, complex, type(None), type, types.ModuleType, types.FunctionType)


class Snapshot:
    """The state of a call's inputs and of the global random number generators.

    Covered are tensors (and their ``grad``) and NumPy arrays, lists, dicts, sets, deques,
    bytearrays and tuples of them, attributes and slots of other objects, and generators (torch's,
    NumPy's, Python's): among the arguments, and in what the callable carries, which is the object
    of a bound method, the parts of a partial and the variables of a closure. Not covered: global
    variables, and what an object keeps outside of its attributes, as a file, an iterator or a C
    extension does.
    """

    __slots__ = ("_random", "_saved", "_seen")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        func: Callable[..., Any] | None = None,
    ) -> None:
        self._saved: list[tuple[Callable[[Any, Any], None], Any, Any]] = []
        self._seen: set[int] = set()
        for value in args:
            self._save(value, 0)
        for value in kwargs.values():
            self._save(value, 0)
        if func is not None:
            self._save_callable(func)
        self._random = _random_state()

    def _save_callable(self, func: Any) -> None:
        if isinstance(func, functools.partial):
            self._save((func.func, func.args, func.keywords), 0)
            self._save_callable(func.func)
        elif isinstance(func, types.MethodType):
            self._save(func.__self__, 0)
            self._save_callable(func.__func__)
        elif isinstance(func, types.FunctionType):
            for cell in func.__closure__ or ():
                try:
                    value = cell.cell_contents
                except ValueError:  # still empty
                    continue
                self._saved.append((_restore_cell, cell, value))
                self._save(value, 0)
        else:
            self._save(func, 0)

    def _save(self, value: Any, depth: int) -> None:
        if isinstance(value, _PLAIN) or id(value) in self._seen:
            return
        if isinstance(value, torch.Tensor):
            self._seen.add(id(value))
            self._save_tensor(value)
            return
        if depth > _DEEPEST:
            return
        self._seen.add(id(value))
        if isinstance(value, tuple | frozenset):
            for item in value:
                self._save(item, depth + 1)
        elif (restore := _restorer(value)) is not None:
            self._saved.append((restore, value, value.copy()))
            if not isinstance(value, bytearray):
                for item in value.values() if isinstance(value, dict) else value:
                    self._save(item, depth + 1)
        elif isinstance(value, torch.Generator):
            self._saved.append((_restore_generator, value, value.get_state()))
        elif isinstance(value, random.Random):
            self._saved.append((random.Random.setstate, value, value.getstate()))
        elif not self._save_numpy(value):
            self._save_attributes(value, depth)

    def _save_tensor(self, tensor: torch.Tensor) -> None:
        part = _without_repeats(tensor)
        version = _version(tensor)
        copy = None if tensor.is_meta else part.detach().clone()
        self._saved.append((_restore_tensor, tensor, (version, copy)))
        if tensor.requires_grad and tensor.is_leaf:
            grad = tensor.grad
            self._saved.append((_restore_grad, tensor, grad))
            if grad is not None:
                self._save(grad, 0)

    def _save_numpy(self, value: Any) -> bool:
        """Save what is NumPy's; say whether it was."""
        numpy = sys.modules.get("numpy")
        if numpy is None:
            return False
        if isinstance(value, numpy.ndarray):
            if value.flags.writeable:
                self._saved.append((_restore_array, value, value.copy()))
            return True
        if isinstance(value, numpy.random.Generator | numpy.random.RandomState):
            bits = getattr(value, "bit_generator", None) or value._bit_generator  # noqa: SLF001
            self._saved.append((_restore_bits, bits, bits.state))
            return True
        return isinstance(value, numpy.generic | numpy.dtype)

    def _save_attributes(self, value: Any, depth: int) -> None:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._save(attributes, depth)
        if names := slot_names(value):
            slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
            self._saved.append((_restore_slots, value, slots))
            for item in slots.values():
                self._save(item, depth + 1)

    def restore(self) -> None:
        """Put everything back that has changed."""
        for restore, value, saved in self._saved:
            restore(value, saved)
        _restore_random(self._random)


_slots: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def slot_names(value: Any) -> tuple[str, ...]:
    """Return the names of an object's attributes that do not live in its ``__dict__``."""
    kind = type(value)
    found = _slots.get(kind)
    if found is None:
        found = _slots[kind] = tuple(
            name
            for cls in kind.__mro__
            if "__slots__" in vars(cls)
            for name, member in vars(cls).items()
            if isinstance(member, types.MemberDescriptorType)
        )
    return found


def _restorer(value: Any) -> Callable[[Any, Any], None] | None:
    """Return how a container takes back a copy of itself; None if it is no container."""
    if isinstance(value, list | bytearray):
        return _restore_sequence
    if isinstance(value, dict):
        return _restore_dict
    if isinstance(value, set | collections.deque):
        return _restore_collection
    return None


def _restore_sequence(value: Any, saved: Any) -> None:
    value[:] = saved


def _restore_array(value: Any, saved: Any) -> None:
    value[...] = saved


def _restore_dict(value: dict[Any, Any], saved: dict[Any, Any]) -> None:
    # only what differs: an object's attributes may be read-only to everyone but itself
    for name in [name for name in value if name not in saved]:
        del value[name]
    value.update(saved)
    if any(one is not two for one, two in zip(value, saved, strict=True)):  # order has changed
        for name in saved:
            value[name] = value.pop(name)


def _restore_collection(value: Any, saved: Any) -> None:
    value.clear()
    (value.update if isinstance(value, set) else value.extend)(saved)


def _restore_cell(cell: Any, saved: Any) -> None:
    cell.cell_contents = saved


def _restore_slots(value: Any, saved: dict[str, Any]) -> None:
    for name in slot_names(value):
        if name in saved:
            object.__setattr__(value, name, saved[name])  # of a frozen dataclass too
        elif hasattr(value, name):
            object.__delattr__(value, name)


def _restore_generator(value: torch.Generator, saved: torch.Tensor) -> None:
    value.set_state(saved)


def _restore_bits(bits: Any, saved: Any) -> None:
    bits.state = saved


def _restore_grad(tensor: torch.Tensor, saved: torch.Tensor | None) -> None:
    tensor.grad = saved


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return tensor._version  # noqa: SLF001 - documented, in spite of its name
    except RuntimeError:  # inference tensors have none
        return None


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view without the dimensions along which an expanded tensor repeats its memory."""
    if tensor.layout is not torch.strided or 0 not in tensor.stride():
        return tensor
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.layout is not torch.strided or one.shape != two.shape or one.dtype != two.dtype:
        return one.layout is not torch.strided  # no NumPy view of it, no `.data` to write into
    flat = (_flat_bytes(one), _flat_bytes(two))
    return torch.equal(*flat)


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    plain = tensor.detach().resolve_conj().resolve_neg()
    # a copy has the strides that a view of other size needs; an expanded tensor of one element, or
    # of none, is contiguous with a stride of 0
    return plain.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def _restore_tensor(tensor: torch.Tensor, saved: tuple[int | None, torch.Tensor | None]) -> None:
    version, copy = saved
    if copy is None:
        return
    # in this order: leaving inference mode switches gradients on
    with torch.inference_mode(tensor.is_inference()), torch.no_grad():
        part = _without_repeats(tensor)
        # A write through `.data` or a NumPy view does not count; copying back does, and autograd
        # may have saved the tensor, so what has not changed is left alone.
        if version is not None and _version(tensor) == version and _same_bits(part, copy):
            return
        if part.shape == copy.shape:
            part.copy_(copy)
        else:
            tensor.data = copy


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
