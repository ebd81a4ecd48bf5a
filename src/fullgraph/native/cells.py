"""Closure cells that several functions share, which Dynamo's guards do not tell apart.

Dynamo follows a cell once. If condition and body of a loop close over the same variable, only the
first way to it is guarded; another pair of the same code, whose variables are two, passes the
guards and is served the wrong value (torch 2.13 to 2.15). So captures are kept apart by which cells
are one and the same.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["shared_cells"]

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
    # On the way of every call: most bodies share no cell, and for those nothing is numbered.
    reached = list(functions)
    seen: set[int] = set()
    cells: list[Any] = []
    for function in reached:  # grows on the way
        closure = function.__closure__ if type(function) is FunctionType else _closure(function)
        for cell in closure or ():
            cells.append(cell)
            if id(cell) in seen:
                continue
            seen.add(id(cell))
            try:
                content = cell.cell_contents
            except ValueError:  # not yet assigned
                continue
            kind = type(content)
            if kind is FunctionType:
                reached.append(content)
            elif (kind is list or kind is tuple) and len(content) <= _MOST:
                reached += [f for f in content if type(f) is FunctionType]
    if len(seen) == len(cells):
        return ()
    numbers: dict[int, int] = {}
    return tuple([numbers.setdefault(id(cell), len(numbers)) for cell in cells])


def _closure(function: Any) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = getattr(function, "__closure__", None)
    return found
