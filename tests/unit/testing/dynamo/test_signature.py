from __future__ import annotations

import functools
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from fullgraph.testing._dynamo.signature import (
    describe,
    describe_frame,
    describe_globals,
    shorten,
)


class Thing:
    def __init__(self, flag):
        self.flag = flag


def closure_over(value):
    return lambda: value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (1.5, "1.5"),
        ("a", "'a'"),
        (torch.ones(2, 3), "float32[2, 3]"),
        (torch.ones(2, 3).mT, "float32[3, 2] strides [1, 3]"),
        (torch.ones(2, requires_grad=True), "float32[2] grad"),
        (torch.ones(2, device="meta"), "float32[2] meta"),
        (torch.ones(2, 2).to_sparse(), "float32[2, 2] torch.sparse_coo"),
        (torch.nn.Parameter(torch.ones(1)), "Parameter float32[1] grad"),
        ([1, (2,)], "list(1, tuple(2))"),
        ({"a": 1}, "{'a': 1}"),
        (np.ones(2), "numpy.ndarray float64[2]"),
        (np.float64(2), "numpy.float64 float64[] np.float64(2.0)"),
        (sys, "sys"),
        (Thing(1), f"{__name__}.Thing"),
        (Thing, f"{__name__}.Thing"),
    ],
)
def test_descriptions(value, text):
    assert describe(value) == text


def test_long_descriptions_are_cut_and_stay_distinct():
    one, two = "a" * 500, "a" * 499 + "b"
    assert len(shorten(one)) <= 200
    assert shorten(one) != shorten(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Thing(1), Thing(2)),
        (closure_over(1), closure_over(2)),
        (functools.partial(max, 1), functools.partial(max, 2)),
        (object(), object()),
        ([Thing(1)], [Thing(2)]),
    ],
)
def test_with_identities_what_dynamo_tells_apart_is_told_apart(one, two):
    assert describe(one) == describe(two)
    assert describe(one, []) != describe(two, [])
    assert describe(one, []) == describe(one, [])


def test_objects_of_equal_attributes_are_alike_and_opaque_ones_are_kept_alive():
    alive = []
    assert describe(Thing(1), alive) == describe(Thing(1), alive)
    assert not [item for item in alive if isinstance(item, Thing)]
    thing = object()
    describe(thing, alive)
    assert any(item is thing for item in alive)


def test_a_recursive_object_ends():
    thing = Thing(None)
    thing.flag = thing
    assert describe(thing, [])


def test_objects_that_refuse_to_be_read():
    class Refusing:
        @property
        def dtype(self):
            raise RuntimeError("no")

    class Lazy:
        def __getattr__(self, name):
            raise ValueError(name)

    for thing in (Refusing(), Lazy(), torch.Tensor, Refusing):
        assert describe(thing)
        assert describe(thing, [])


def test_global_state_is_part_of_it():
    with torch.no_grad():
        assert "no grad" in describe_frame({})
    with torch.inference_mode():
        assert "inference mode" in describe_frame({})
    assert describe_frame({"v": 1}) == "v=1"


def test_plain_globals():
    names = ("FLAG", "torch", "missing", "rate")
    assert describe_globals(names, {"FLAG": True, "torch": torch, "rate": 2}) == "FLAG=True, rate=2"


def test_the_same_in_every_process():
    code = (
        "from fractions import Fraction\n"
        "import torch\n"
        "from fullgraph.testing._dynamo.signature import describe_frame\n"
        "print(describe_frame({'v': torch.ones(2), 'a': Fraction(1, 2), 's': 'x' * 400}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == describe_frame(
        {"v": torch.ones(2), "a": Fraction(1, 2), "s": "x" * 400}
    )
