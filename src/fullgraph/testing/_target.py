"""What can be told about a callable, and about the inputs of a call, without compiling it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

import optree
import torch

from fullgraph.testing._dynamo.breaks import is_machinery
from fullgraph.testing._records import BreakSite

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["has_tensor_inputs", "is_python", "not_yet_run", "placed", "unseen"]


def _code(func: Any) -> Any:
    """Return the code object below a callable; None if it is not written in Python."""
    while isinstance(func, functools.partial):
        func = func.func
    with contextlib.suppress(ValueError):  # a chain of __wrapped__ that bites its tail
        func = inspect.unwrap(func)
    if isinstance(func, torch.nn.Module):
        func = type(func).forward
    found = getattr(func, "__code__", None) or getattr(func, "__func__", None)
    if found is None and not isinstance(func, type):
        found = inspect.getattr_static(type(func), "__call__", None)
    return getattr(found, "__code__", found if inspect.iscode(found) else None)


def is_python(func: Any) -> bool:
    """Whether there is Python code that Dynamo could trace: not so for a ufunc or C function."""
    return _code(func) is not None


def placed(site: BreakSite, func: Any, name: str) -> BreakSite:
    """Return `site` at the function itself where no line of the user's was captured."""
    if not is_machinery(site.file):
        return site
    code = _code(func)
    outside = code is None or is_machinery(code.co_filename)
    if outside and not site.file.startswith(_HOME):
        return site  # a line of torch is the best there is for a function of torch
    return dataclasses.replace(
        site,
        file=f"<{name}>" if code is None else code.co_filename,
        line=0 if code is None else code.co_firstlineno,
        function=name.rpartition(":")[2],
        callers=(),
    )


_HOME = __file__.removesuffix("_target.py")


def unseen(func: Any, name: str) -> BreakSite:
    """Return the site of a call for which Dynamo neither traced nor ran anything."""
    site = BreakSite(
        file=__file__,
        line=0,
        function="",
        reason="Dynamo did not look at this call",
        explanation="torch.compile is disabled (TORCHDYNAMO_DISABLE, a stance, "
        "torch.compiler.disable), or a torch.compile of your own has skipped or compiled it before",
        skips_frame=True,
    )
    return placed(site, func, name)


def not_yet_run(result: Any, func: Any, name: str) -> BreakSite | None:
    """Return the site of a result whose items the caller computes later, out of any graph."""
    if not isinstance(result, map | filter | types.GeneratorType):
        return None
    site = BreakSite(
        file=__file__,
        line=0,
        function="",
        reason=f"returns a {type(result).__name__}, which is run after the compiled call",
        explanation="its items are computed when somebody goes through it, eagerly",
        hints=("Return a list.",),
        skips_frame=True,
    )
    return placed(site, func, name)


def has_tensor_inputs(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether a tensor is among the arguments of a call, or in what the callable carries."""
    carried = [getattr(func, "__self__", None), func]
    if isinstance(func, functools.partial):
        carried += [func.func, func.args, func.keywords]
    for cell in getattr(func, "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a cell that is still empty
            carried.append(cell.cell_contents)
    return isinstance(func, torch.nn.Module) or _has_tensors((args, kwargs, carried))


def _has_tensors(tree: Any) -> bool:
    """Whether a tensor or a module is among the leaves of `tree`, or in the attributes of one."""
    kinds = torch.Tensor | torch.nn.Module
    leaves = optree.tree_leaves(tree)
    if any(isinstance(leaf, kinds) for leaf in leaves):
        return True
    attributes: Any = [
        list(getattr(leaf, "__dict__", {}).values())
        for leaf in leaves
        if not isinstance(leaf, type | types.ModuleType | types.FunctionType)
    ]
    return any(isinstance(value, kinds) for value in optree.tree_leaves(attributes))
