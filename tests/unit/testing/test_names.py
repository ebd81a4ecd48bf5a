from __future__ import annotations

import functools
import math
import operator

import numpy as np
import pytest

from fullgraph.testing._names import display_name, is_async


class Thing:
    def method(self):
        pass

    @classmethod
    def of_class(cls):
        pass

    def __call__(self):
        pass


class AsyncThing:
    async def __call__(self):
        pass


def plain():
    pass


async def coroutine():
    pass


async def agen():
    yield 1


@pytest.mark.parametrize(
    ("func", "name"),
    [
        (plain, f"{__name__}:plain"),
        (functools.partial(functools.partial(plain)), f"{__name__}:plain"),
        (Thing().method, f"{__name__}:Thing.method"),
        (Thing.of_class, f"{__name__}:Thing.of_class"),
        (Thing(), f"{__name__}:Thing"),
        (functools.lru_cache(plain), f"{__name__}:plain"),
        (math.sin, "math:sin"),
        (operator.add, "_operator:add"),
        (np.add, "numpy:add"),
    ],
)
def test_names(func, name):
    assert display_name(func) == name


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (coroutine, True),
        (agen, True),
        (functools.partial(coroutine), True),
        (AsyncThing(), True),
        (AsyncThing, False),
        (plain, False),
        (Thing(), False),
        (math.sin, False),
    ],
)
def test_async(func, expected):
    assert is_async(func) is expected
