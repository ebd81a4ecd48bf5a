"""Trees as plain Python that Dynamo can trace: a skeleton holds leaf numbers where leaves were.

A skeleton is made of tuples, lists, dicts, named tuples and None, with ints as leaves. Dynamo
guards on it by value, which it cannot do for an optree treespec that was made outside the trace.
"""

from __future__ import annotations

from typing import Any

from fullgraph.loops._tree import is_namedtuple

__all__ = ["Skeleton", "collect", "path_of", "rebuild", "skeleton_of"]

PyTree = Any
Skeleton = Any


def skeleton_of(tree: PyTree, leaves: list[Any]) -> Skeleton:
    """Return the skeleton of a tree, and append its leaves to `leaves`.

    Examples
    --------
    >>> leaves = []
    >>> skeleton_of({"x": (1.5, None), "v": [2.5]}, leaves), leaves
    ({'x': (0, None), 'v': [1]}, [1.5, 2.5])
    """
    if tree is None:
        return None
    if isinstance(tree, tuple):
        children = [skeleton_of(child, leaves) for child in tree]
        return _like(tree, children)
    if type(tree) is list:
        return [skeleton_of(child, leaves) for child in tree]
    if type(tree) is dict:
        return {key: skeleton_of(child, leaves) for key, child in tree.items()}
    leaves.append(tree)
    return len(leaves) - 1


def _like(node: Any, children: list[Any]) -> Any:
    """Return children in a tuple of the type of `node`, which may be torch's (what sort gives)."""
    if type(node) is tuple:
        return tuple(children)
    return type(node)(*children) if is_namedtuple(node) else type(node)(children)


def rebuild(skeleton: Skeleton, leaves: list[Any]) -> PyTree:
    """Return the tree of a skeleton with these leaves.

    Examples
    --------
    >>> rebuild({"x": (0, None), "v": [1]}, [1.5, 2.5])
    {'x': (1.5, None), 'v': [2.5]}
    """
    if skeleton is None:
        return None
    if type(skeleton) is int:
        return leaves[skeleton]
    if isinstance(skeleton, tuple):
        children = [rebuild(child, leaves) for child in skeleton]
        return _like(skeleton, children)
    if type(skeleton) is list:
        return [rebuild(child, leaves) for child in skeleton]
    return {key: rebuild(child, leaves) for key, child in skeleton.items()}


def collect(skeleton: Skeleton, tree: PyTree, leaves: list[Any]) -> bool:
    """Append the leaves of a tree in the order of a skeleton; False if the structures differ."""
    if skeleton is None:
        return tree is None
    if type(skeleton) is int:
        leaves.append(tree)
        return tree is not None and not isinstance(tree, (tuple, list, dict))
    if type(skeleton) is not type(tree):
        return False
    if isinstance(skeleton, dict):
        if skeleton.keys() != tree.keys():
            return False
        return all(collect(skeleton[key], tree[key], leaves) for key in skeleton)
    if len(skeleton) != len(tree):
        return False
    return all(collect(skeleton[index], tree[index], leaves) for index in range(len(skeleton)))


def path_of(skeleton: Skeleton, index: int, root: str) -> str | None:
    """Return the name of leaf number `index`, such as ``carry["velocity"][1]``."""
    if type(skeleton) is int:
        return root if skeleton == index else None
    if skeleton is None:
        return None
    if isinstance(skeleton, dict):
        parts = [(f'["{k}"]' if isinstance(k, str) else f"[{k!r}]", v) for k, v in skeleton.items()]
    elif is_namedtuple(skeleton):
        parts = [(f".{k}", v) for k, v in zip(skeleton._fields, skeleton, strict=True)]
    else:
        parts = [(f"[{i}]", child) for i, child in enumerate(skeleton)]
    for part, child in parts:
        found = path_of(child, index, root + part)
        if found is not None:
            return found
    return None
