"""Generated code for trees does what optree does, or steps aside."""

from collections import OrderedDict
from typing import Any, NamedTuple

import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullgraph.loops import _codec
from fullgraph.loops._codec import codec_for, source_of

TREES = st.recursive(
    st.integers() | st.none(),
    lambda child: (
        st.lists(child, max_size=3)
        | st.lists(child, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["b", "a", "it's", '"', 3, 1.5]), child, max_size=3)
    ),
    max_leaves=8,
)


class Pair(NamedTuple):
    x: Any
    v: Any


def codec(tree):
    return codec_for(tree, optree.tree_structure(tree))


@given(tree=TREES, other=TREES)
def test_as_optree(tree, other):
    leaves, treedef = optree.tree_flatten(tree)
    made = codec(tree)
    assert made.flatten(tree) == leaves
    rebuilt = made.unflatten(leaves)
    assert rebuilt == tree
    assert str(rebuilt) == str(tree)  # the order of dict keys too
    if optree.tree_structure(other) != treedef:
        found = made.flatten(other)
        # None, or leaves among which there are containers: the check of leaves then refuses.
        assert found is None or not all(type(leaf) is int for leaf in found)


@pytest.mark.parametrize("tree", [Pair(1, 2), [Pair(1, 2)], OrderedDict(a=1), (OrderedDict(a=1),)])
def test_other_containers_go_through_optree(tree):
    assert source_of(tree) is None
    made = codec(tree)
    assert made.flatten(tree) is None
    assert made.unflatten(optree.tree_leaves(tree)) == tree
    assert type(made.unflatten(optree.tree_leaves(tree))) is type(tree)


def test_keys_written_in_another_order_get_their_own_code():
    first, second = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert list(codec(first).unflatten([1, 2])) == ["a", "b"]
    assert list(codec(second).unflatten([1, 2])) == ["b", "a"]
    assert codec(first).flatten(second) == [1, 2]


def test_made_once_and_not_kept_without_bound(monkeypatch):
    monkeypatch.setattr(_codec, "_CODECS", {})
    monkeypatch.setattr(_codec, "_MOST_CODECS", 3)
    assert codec((1, 2)) is codec((3, 4))
    for n in range(9):
        codec((1,) * n)
    assert len(_codec._CODECS) <= 3


def test_keys_are_data_and_no_code():
    tree = {"'] or __import__('os').abort() or t['": 1}
    assert codec(tree).flatten(tree) == [1]


@pytest.mark.parametrize("wrap", [lambda t: [t], lambda t: (t,), lambda t: {"k": t}])
@pytest.mark.parametrize("depth", [63, 64, 65, 250])
def test_deep_trees(wrap, depth):
    tree = 1
    for _ in range(depth):
        tree = wrap(tree)
    made = codec(tree)
    assert made.flatten(tree) == ([1] if depth <= 64 else None)
    assert made.unflatten([1]) == tree
