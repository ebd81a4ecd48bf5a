"""Skeletons of trees."""

from typing import Any, NamedTuple

import pytest

from fullgraph.torch_loop._skeleton import collect, path_of, rebuild, skeleton_of


class Point(NamedTuple):
    x: Any
    v: Any


TREES = [
    1.5,
    None,
    (1.5,),
    [1.5, None],
    {"b": (1.5, [2.5]), "a": None},
    Point(1.5, {"z": 2.5}),
    (),
]


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_round_trip(tree):
    leaves = []
    skeleton = skeleton_of(tree, leaves)
    assert rebuild(skeleton, leaves) == tree
    again = []
    assert collect(skeleton, tree, again)
    assert again == leaves


@pytest.mark.parametrize("tree", TREES[1:], ids=str)
def test_other_structure(tree):
    skeleton = skeleton_of(tree, [])
    assert not collect(skeleton, "leaf", []) or tree == "leaf"
    assert not collect(skeleton, ((((1,),),),), [])


def test_dict_order_is_no_structure():
    skeleton = skeleton_of({"a": 1.5, "b": 2.5}, [])
    leaves = []
    assert collect(skeleton, {"b": 20.0, "a": 10.0}, leaves)
    assert leaves == [10.0, 20.0]


@pytest.mark.parametrize(
    ("index", "path"),
    [(0, 'carry["b"][0]'), (1, 'carry["b"][1][0]'), (2, "carry[5].x"), (3, "carry[5].v")],
)
def test_paths(index, path):
    skeleton = skeleton_of({"b": (1.5, [2.5]), "a": None, 5: Point(3.5, 4.5)}, [])
    assert path_of(skeleton, index, "carry") == path
