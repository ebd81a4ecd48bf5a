"""The `compare` option of a run: every compiled call made eagerly too."""

from __future__ import annotations

import torch

from fullgraph.testing import Mode
from fullgraph.testing._torch_call import CompiledCall


def test_what_a_callable_carries_is_put_back_between_the_calls():
    seen: list[int] = []
    total = torch.zeros(2)

    def f(v):
        seen.append(len(seen))
        total.add_(1)
        return v + len(seen)

    call = CompiledCall(f, Mode.COMPILE, compare=True)
    assert call((torch.zeros(2),), {}).tolist() == [1, 1]
    assert seen == [0]
    assert total.tolist() == [1, 1]
