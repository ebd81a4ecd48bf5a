"""Trees of arrays: optree flattens them; here they are named and drawn for error messages.

optree's own ``tree_flatten_with_path`` breaks a graph that Dynamo is capturing, and a path is
wanted only when something is wrong. So paths come from plain recursion here, in optree's leaf
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "describe",
    "flatten",
    "is_leaf",
    "is_namedtuple",
    "leaf_path",
    "same_structure",
    "sorted_keys",
    "type_name",
    "unflatten",
]

PyTree = Any

# Names with plain types, and no call of their own: these are the hot part of every step.
flatten: Callable[[PyTree], tuple[list[Any], Any]] = optree.tree_flatten
unflatten: Callable[[Any, Iterable[Any]], PyTree] = optree.tree_unflatten
is_leaf: Callable[[PyTree], bool] = optree.tree_is_leaf


def is_namedtuple(node: Any) -> bool:
    """Whether `node` is an instance of a class made by ``namedtuple`` or ``NamedTuple``."""
    return isinstance(node, tuple) and hasattr(node, "_fields")


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """Return the named children of a container in leaf order, None for a leaf."""
    if node is None:
        return []
    if isinstance(node, tuple) and is_namedtuple(node):
        fields = node._fields  # type: ignore[attr-defined]
        return [(f".{name}", child) for name, child in zip(fields, node, strict=True)]
    if isinstance(node, (tuple, list)):
        return [(f"[{i}]", child) for i, child in enumerate(node)]
    if isinstance(node, dict):
        return [(f"[{_key(key)}]", node[key]) for key in sorted_keys(node)]
    if optree.tree_is_leaf(node):
        return None
    children, _, entries, _ = optree.tree_flatten_one_level(node)
    return [(f"[{entry!r}]", child) for entry, child in zip(entries, children, strict=True)]


def _key(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)


def sorted_keys(node: dict[Any, Any]) -> list[Any]:
    """Return the keys of a dict in the order in which optree puts its leaves."""
    try:
        return sorted(node)
    except TypeError:  # optree's order for keys of several types
        return sorted(node, key=lambda k: (f"{type(k).__module__}.{type(k).__qualname__}", k))


def _named_leaves(tree: PyTree, prefix: str) -> list[str]:
    children = _children(tree)
    if children is None:
        return [prefix]
    return [name for part, child in children for name in _named_leaves(child, prefix + part)]


def leaf_path(tree: PyTree, index: int, root: str) -> str:
    """Return the Python expression of leaf number `index` of `tree`, which is called `root`.

    Examples
    --------
    >>> leaf_path({"velocity": (1.0, 2.0), "a": None}, 1, "carry")
    'carry["velocity"][1]'
    """
    return _named_leaves(tree, root)[index]


def describe(tree: PyTree) -> str:
    """Draw the structure of a tree with ``*`` for each leaf.

    Examples
    --------
    >>> describe({"x": [1.0, None], "y": (2.0,)})
    '{"x": [*, None], "y": (*,)}'
    """
    if tree is None:
        return "None"
    children = _children(tree)
    if children is None:
        return "*"
    parts = [describe(child) for _, child in children]
    if isinstance(tree, dict):
        pairs = [f"{_key(k)}: {v}" for k, v in zip(sorted_keys(tree), parts, strict=True)]
        name = "" if type(tree) is dict else type(tree).__name__
        text = "{" + ", ".join(pairs) + "}"
        return f"{name}({text})" if name else text
    if is_namedtuple(tree):
        pairs = [f"{f}={v}" for f, v in zip(tree._fields, parts, strict=True)]
        return f"{type(tree).__name__}({', '.join(pairs)})"
    inside = ", ".join(parts)
    if isinstance(tree, list):
        return f"[{inside}]"
    if type(tree) is tuple:
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    return f"{type(tree).__name__}({inside})"


def type_name(value: Any) -> str:
    """Return the qualified name of a value's type, without the module of builtins."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def same_structure(first: PyTree, second: PyTree) -> bool:
    """Whether two trees have one structure, whatever the order in which dict keys were written.

    Under Dynamo two equal dicts with keys in another order have unequal treespecs; this plain
    recursion is what decides there.
    """
    if first is None or second is None:
        return first is second
    if isinstance(first, dict):
        if type(first) is not type(second) or first.keys() != second.keys():
            return False
        return all(same_structure(first[key], second[key]) for key in first)
    if isinstance(first, (tuple, list)):
        if type(first) is not type(second) or len(first) != len(second):
            return False
        pairs = zip(first, second, strict=True)
        return all(same_structure(a, b) for a, b in pairs)
    return not isinstance(second, (dict, tuple, list))
