"""Random trees and random bodies against a plain loop in NumPy.

A body is a small random program: each carry leaf becomes a mix of itself, of the sum of another
leaf and of the sum of an x leaf; y is a random choice of leaves, old and new. Both the program and
the trees are drawn; the oracle interprets the program in a Python loop.
"""

from __future__ import annotations

import copy
import importlib

import jax
import numpy as np
import optree
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fullgraph

SHAPES = st.sampled_from([(), (1,), (2,), (2, 3)])


def trees(leaf, *, least=0):
    """Trees of leaves in tuples, lists and dicts, with None among them."""
    branches = st.recursive(
        leaf | st.none(),
        lambda child: (
            st.lists(child, min_size=1, max_size=3)
            | st.tuples(child)
            | st.tuples(child, child)
            | st.dictionaries(st.sampled_from("abcd"), child, min_size=1, max_size=3)
        ),
        max_leaves=4,
    )
    return branches.filter(lambda tree: least <= len(optree.tree_leaves(tree)) <= 6)


@st.composite
def programs(draw):
    """Draw shapes of carry and xs, a length, and what the body computes."""
    carry = draw(trees(SHAPES.map(Shape), least=1))
    xs = draw(trees(SHAPES.map(Shape)))
    carries, rows = len(optree.tree_leaves(carry)), len(optree.tree_leaves(xs))
    mixes = [
        (
            draw(st.sampled_from([0.5, -0.25, 1.0])),
            draw(st.integers(0, carries - 1)),
            draw(st.integers(0, rows - 1)) if rows else None,
        )
        for _ in range(carries)
    ]
    picks = draw(st.lists(st.tuples(st.booleans(), st.integers(0, carries - 1)), max_size=3))
    shape_of_y = draw(st.sampled_from(["tuple", "dict", "list"]))
    return carry, xs, draw(st.integers(1, 4)), mixes, picks, shape_of_y, draw(st.booleans())


class Shape:
    """A leaf that stands for an array of this shape."""

    def __init__(self, shape):
        self.shape = shape

    def __repr__(self):
        return f"Shape{self.shape}"


def filled(tree, seed, lead=()):
    random = np.random.default_rng(seed)
    return optree.tree_map(lambda leaf: random.normal(size=(*lead, *leaf.shape)), tree)


def make_body(program, xp):
    _, _, _, mixes, picks, shape_of_y, _ = program

    def body(carry, x):
        leaves, treedef = optree.tree_flatten(carry)
        rows = optree.tree_leaves(x)
        new = []
        for leaf, (factor, other, row) in zip(leaves, mixes, strict=True):
            value = leaf * factor + xp.sum(leaves[other]) * 0.125
            new.append(value if row is None else value - xp.sum(rows[row]) * 0.25)
        chosen = [(new if fresh else leaves)[index] for fresh, index in picks]
        if shape_of_y == "dict":
            y = {str(i): value for i, value in enumerate(chosen)}
        else:
            y = tuple(chosen) if shape_of_y == "tuple" else [*chosen, None]
        return optree.tree_unflatten(treedef, new), y

    return body


def plain_loop(body, carry, xs, length, *, reverse):
    rows, treedef = optree.tree_flatten(xs)
    order = range(length)
    ys = [None] * length
    for step in reversed(order) if reverse else order:
        carry, ys[step] = body(carry, optree.tree_unflatten(treedef, [row[step] for row in rows]))
    return carry, optree.tree_map(lambda *values: np.stack(values), *ys)


def check(program, name):
    carry_shapes, xs_shapes, length, *_, reverse = program
    xp = importlib.import_module(name)
    init, xs = filled(carry_shapes, 0), filled(xs_shapes, 1, (length,))
    want = plain_loop(make_body(program, np), init, xs, length, reverse=reverse)
    to = xp.from_numpy if name == "torch" else lambda a: xp.asarray(np.array(a))
    arguments = [optree.tree_map(lambda a: to(np.asarray(a)), tree) for tree in (init, xs)]
    before = copy.deepcopy((init, xs))
    found = fullgraph.scan(
        make_body(program, xp), *arguments, length=length, reverse=reverse, xp=xp
    )
    assert optree.tree_structure(found) == optree.tree_structure(want)
    for one, other in zip(optree.tree_leaves(found), optree.tree_leaves(want), strict=True):
        host = np.asarray(one)
        assert host.dtype == other.dtype
        assert host.shape == other.shape
        np.testing.assert_allclose(host, other, rtol=1e-13, atol=1e-13)
    for one, other in zip(optree.tree_leaves(arguments), optree.tree_leaves(before), strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)
    if name != "jax.numpy":
        hosts = [np.asarray(leaf) for leaf in optree.tree_leaves((found, arguments))]
        results = len(optree.tree_leaves(found))
        for index, one in enumerate(hosts[:results]):
            assert not any(np.shares_memory(one, other) for other in hosts[index + 1 :])


EAGER = settings(max_examples=60, deadline=None, derandomize=True)
TRACED = settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("name", ["numpy", "torch", "array_api_strict"])
@EAGER
@given(program=programs())
def test_eager(name, program):
    check(program, name)


@TRACED
@given(program=programs())
def test_jax(program):
    with jax.enable_x64(True):
        check(program, "jax.numpy")


@EAGER
@given(
    start=st.integers(0, 30),
    step=st.integers(1, 7),
    stop=st.integers(0, 40),
    bound=st.none() | st.integers(0, 12),
)
def test_while_loop_counts_as_python_does(start, step, stop, bound):
    state, steps = start, 0
    while state < stop and steps != bound:
        state, steps = state + step, steps + 1
    init = {"n": np.asarray(start), "k": (np.asarray(0), None)}
    found = fullgraph.while_loop(
        lambda s: s["n"] < stop,
        lambda s: {"k": (s["k"][0] + 1, None), "n": s["n"] + step},
        init,
        max_steps=bound,
    )
    if bound is not None:
        assert (int(found.steps), bool(found.done)) == (steps, state >= stop)
        found = found.state
    assert (int(found["n"]), int(found["k"][0])) == (state, steps)


DRIFT = st.sampled_from(["dtype", "shape", "structure", "none"])


@EAGER
@given(program=programs(), drift=DRIFT, data=st.data())
def test_any_drift_of_any_leaf_is_named(program, drift, data):
    carry_shapes, xs_shapes, length, *_ = program
    init, xs = filled(carry_shapes, 0), filled(xs_shapes, 1, (length,))
    leaves, treedef = optree.tree_flatten(init)
    index = data.draw(st.integers(0, len(leaves) - 1))
    body = make_body(program, np)

    def drifting(carry, x):
        new, y = body(carry, x)
        changed, _ = optree.tree_flatten(new)
        if drift == "dtype":
            changed[index] = changed[index].astype("float32")
        elif drift == "shape":
            changed[index] = np.zeros((*leaves[index].shape, 2))
        elif drift == "none":
            changed[index] = None
        else:
            return ("wrapped", new), y
        return optree.tree_unflatten(treedef, changed), y

    path = "carry" + optree.tree_accessors(init)[index].codify("").replace("'", '"')
    with pytest.raises(fullgraph.errors.CarryError) as caught:
        fullgraph.scan(drifting, init, xs, length=length)
    if drift in ("dtype", "shape"):
        assert str(caught.value).startswith(path + " goes into the body")
    else:
        assert str(caught.value).startswith("the carry goes into the body as")
