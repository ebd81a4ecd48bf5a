"""Values on the command line: arrays by dtype and shape, Python literals, names to import."""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from typing import Any

from fullgraph.errors import UsageError

__all__ = ["imported", "parse_keyword", "parse_value"]

_ARRAY = re.compile(r"(?P<dtype>[a-z]+\d*)\[(?P<shape>[\d,\s]*)\](?:=(?P<fill>\w+))?")
_FILLS = ("normal", "ones", "zeros", "arange")
_SEED = 20240

GRAMMAR = """\
float64[3,4] (values drawn from a fixed seed), float64[3]=arange (or ones, zeros), a Python literal
such as 2 or (1, 2) or 'sum', or @module:name for an object to import"""


def parse_value(text: str, position: int = 0) -> Any:
    """Return what `text` stands for; arrays are torch tensors.

    Parameters
    ----------
    text : str
        See `GRAMMAR`.
    position : int, optional
        Number of the argument: two arrays of one kind get different values.

    Raises
    ------
    UsageError
        If it is none of these.
    """
    match = _ARRAY.fullmatch(text.strip())
    if match:
        shape = [int(size) for size in match["shape"].split(",") if size.strip()]
        return _tensor(match["dtype"], shape, match["fill"] or "normal", _SEED + position)
    if text.startswith("@"):
        return imported(text[1:])
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError):
        raise UsageError(f"cannot read the value {text!r}: write {GRAMMAR}") from None


def parse_keyword(text: str, position: int = 0) -> tuple[str, Any]:
    """Return the name and the value of ``name=value``."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip().isidentifier():
        raise UsageError(f"cannot read the keyword argument {text!r}: write name=value")
    return name.strip(), parse_value(value, position)


def _tensor(dtype: str, shape: list[int], fill: str, seed: int) -> Any:
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise UsageError(f"{dtype} is no dtype of torch: write e.g. float64[3,4] or int64[5]")
    if fill not in _FILLS:
        raise UsageError(f"cannot fill an array by {fill!r}: accepted are {', '.join(_FILLS)}")
    if fill == "arange":
        count = int(torch.tensor(shape).prod()) if shape else 1
        return torch.arange(count).to(kind).reshape(shape)
    if fill != "normal":
        return getattr(torch, fill)(shape, dtype=kind)
    generator = torch.Generator().manual_seed(seed)
    if kind.is_floating_point or kind.is_complex:
        wide = torch.complex128 if kind.is_complex else torch.float64
        return torch.randn(shape, generator=generator, dtype=wide).to(kind)
    return torch.randint(2 if kind is torch.bool else 10, shape, generator=generator).to(kind)


def imported(text: str) -> Any:
    """Return the object that ``module:name`` or ``module`` names, looked up from here too.

    Raises
    ------
    UsageError
        If there is no such module or name. An error inside the module comes out as itself.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, names = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise UsageError(f"there is no module {error.name!r} (looked for {text!r})") from None
    for name in filter(None, names.split(".")):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(f"{text!r}: {module} has no {name!r}") from None
    return found
