"""Names and drawings of trees."""

from typing import Any, NamedTuple

import optree
import pytest

from fullgraph.loops._tree import describe, leaf_path, same_structure


class Point(NamedTuple):
    x: Any
    v: Any


TREE = {"velocity": (1, 2), "a": None, "point": Point(3, [4]), 5: {"z": 6}}


def test_paths_are_in_the_order_of_optree():
    tree = {"velocity": (1, 2), "a": None, "point": Point(3, [4])}
    leaves = optree.tree_leaves(tree)
    paths = [leaf_path(tree, i, "carry") for i in range(len(leaves))]
    assert paths == [
        'carry["point"].x',
        'carry["point"].v[0]',
        'carry["velocity"][0]',
        'carry["velocity"][1]',
    ]
    for leaf, path in zip(leaves, paths, strict=True):
        assert eval(path, {"carry": tree}) == leaf


def test_paths_with_keys_of_several_types():
    leaves = optree.tree_leaves(TREE)
    for index, leaf in enumerate(leaves):
        assert eval(leaf_path(TREE, index, "carry"), {"carry": TREE}) == leaf


def test_path_of_a_bare_leaf():
    assert leaf_path(1.0, 0, "carry") == "carry"


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (1.0, "*"),
        (None, "None"),
        ((1,), "(*,)"),
        ((), "()"),
        ([1, None], "[*, None]"),
        ({"b": 1, "a": (2, 3)}, '{"a": (*, *), "b": *}'),
        (Point(1, None), "Point(x=*, v=None)"),
    ],
)
def test_describe(tree, text):
    assert describe(tree) == text


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": (2, None)}, {"b": (3, None), "a": 4}, True),
        ((1, 2), [1, 2], False),
        ((1, 2), (1,), False),
        ((1, None), (1, 2), False),
        (None, None, True),
        (1, (1,), False),
        ({"a": 1}, {"b": 1}, False),
        (Point(1, 2), Point(3, 4), True),
        (Point(1, 2), (1, 2), False),
    ],
)
def test_same_structure(first, second, same):
    assert same_structure(first, second) is same
