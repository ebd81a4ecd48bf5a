"""Closure cells that several functions share, which Dynamo's guards do not tell apart.

Dynamo follows a cell once. If condition and body of a loop close over the same variable, only the
first way to it is guarded; another pair of the same code, whose variables are two, passes the
guards and is served the wrong value (torch 2.13 to 2.15). So captures are kept apart by which cells
are one and the same.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["fixed_cells", "shared_cells"]

_MOST = 16  # elements of a closed-over sequence that are looked at for functions


def shared_cells(*functions: Any) -> tuple[int, ...]:
    """Return which closure cells of functions, and of functions they close over, are the same.

    Returns
    -------
    tuple of int
        A number for each cell, equal for one cell; empty where no cell is met twice.

    Examples
    --------
    >>> def pair(a, b):
    ...     return (lambda: a), (lambda: b)
    >>> shared_cells(*pair(1, 2))
    ()
    >>> def sharing(a):
    ...     return (lambda: a), (lambda: a)
    >>> shared_cells(*sharing(1))
    (0, 0)
    """
    reached = list(functions)
    numbers: dict[int, int] = {}
    pattern: list[int] = []
    for function in reached:  # grows on the way
        for cell in getattr(function, "__closure__", None) or ():
            known = len(numbers)
            pattern.append(numbers.setdefault(id(cell), known))
            if pattern[-1] == known:
                _add_functions(cell, reached)
    return tuple(pattern) if len(numbers) < len(pattern) else ()


def fixed_cells(function: Any) -> tuple[str, ...]:
    """Return Dynamo's names (parts of sources) of closure cells that one code object never changes.

    Code of this package that makes a code object of its own for each value of a variable says so
    with an attribute, ``fullgraph_fixed``, which holds the names of such variables. What is reached
    through them needs no guards.
    """
    names = getattr(function, "fullgraph_fixed", ())
    free = function.__code__.co_freevars if names else ()
    return tuple(f"body.__closure__[{free.index(n)}].cell_contents" for n in names)


def _add_functions(cell: Any, reached: list[Any]) -> None:
    try:
        content = cell.cell_contents
    except ValueError:  # not yet assigned
        return
    kind = type(content)
    if kind is FunctionType:
        reached.append(content)
    elif kind in (list, tuple) and len(content) <= _MOST:
        reached += [f for f in content if type(f) is FunctionType]
