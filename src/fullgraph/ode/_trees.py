"""Trees of the state as plain containers: Dynamo traces those, and no treespec from outside.

A skeleton is the tree with the number of each leaf in its place.
"""

from __future__ import annotations

from typing import Any

from fullgraph.loops._tree import is_namedtuple

__all__ = ["collected", "filled"]

PyTree = Any


def filled(skeleton: PyTree, leaves: list[Any]) -> PyTree:
    """Return the tree with these leaves.

    Examples
    --------
    >>> filled({"x": (0, None), "v": [1]}, [1.5, 2.5])
    {'x': (1.5, None), 'v': [2.5]}
    """
    if skeleton is None:
        return None
    if type(skeleton) is int:
        return leaves[skeleton]
    if isinstance(skeleton, dict):
        return {key: filled(child, leaves) for key, child in skeleton.items()}
    children = [filled(child, leaves) for child in skeleton]
    if isinstance(skeleton, list):
        return children
    return type(skeleton)(*children) if is_namedtuple(skeleton) else tuple(children)


def collected(skeleton: PyTree, tree: PyTree, leaves: list[Any]) -> bool:
    """Put the leaves of a tree where the skeleton counts them; False if the structures differ."""
    if skeleton is None:
        return tree is None
    if type(skeleton) is int:
        leaves[skeleton] = tree
        return tree is not None and not isinstance(tree, (tuple, list, dict))
    if type(skeleton) is not type(tree) or len(skeleton) != len(tree):
        return False
    if isinstance(skeleton, dict):
        if skeleton.keys() != tree.keys():
            return False
        return all(collected(skeleton[key], tree[key], leaves) for key in skeleton)
    return all(collected(child, tree[i], leaves) for i, child in enumerate(skeleton))
