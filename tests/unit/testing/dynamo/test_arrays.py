from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fullgraph.errors import NothingCompiledError
from fullgraph.testing import check_compiled, compiled
from fullgraph.testing._dynamo.arrays import arrays_kept


def adds(a, v):
    v = v + 1
    a += 1
    return v * 2


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_in_place_operation_on_an_array_happens_once(mode):
    array = np.zeros(2)
    call = compiled(adds, mode=mode)
    for n in range(1, 4):
        assert call(array, torch.zeros(2)).tolist() == [2, 2]
        assert array.tolist() == [n, n]
    with pytest.raises(NothingCompiledError, match="Dynamo gave the function up"):
        check_compiled(adds, (np.zeros(2), torch.zeros(2)), mode="compile", graph_breaks=True)


class Odd:
    @property
    def __class__(self):
        raise RuntimeError("asked for its class")


def test_what_is_kept():
    inside = {
        "list": [np.zeros(2)],
        "dict": {"k": np.zeros(2)},
        "object": SimpleNamespace(a=np.zeros(2)),
        "fixed": np.zeros(2),
        "module": sys,
        "odd": Odd(),
    }
    inside["fixed"].flags.writeable = False
    with pytest.raises(ValueError, match="stop"), arrays_kept(inside):
        inside["list"][0] += 1
        inside["dict"]["k"] += 1
        inside["object"].a += 1
        raise ValueError("stop")
    found = [inside["list"][0], inside["dict"]["k"], inside["object"].a]
    assert [array.tolist() for array in found] == [[0, 0]] * 3
