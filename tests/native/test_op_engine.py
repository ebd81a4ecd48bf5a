"""A real consumer: op_engine's explicit methods run natively through its loop seam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

op_engine = pytest.importorskip("op_engine", reason="an optional test extra")

from op_engine import CoreSolver, ModelCore, loop_ops  # noqa: E402
from op_engine.core_solver import RunConfig  # noqa: E402

TIMES = np.linspace(0.0, 2.0, 9)
START = torch.tensor([[0.9], [0.1], [0.0]], dtype=torch.float64)


def sir(time, state):
    s, i = state[0], state[1]
    infections, recoveries = 1.7 * s * i, 0.4 * i
    return torch.stack((-infections, infections - recoveries, recoveries))


def solve(method, fixed_loop):
    core = ModelCore(3, 1, TIMES)
    core.set_initial_state(START)
    config = RunConfig(method=method, fixed_loop=fixed_loop, fixed_max_step=0.05)
    CoreSolver(core).run(sir, config=config)
    return core.state_array


@pytest.mark.parametrize("method", ["euler", "heun", "rk4", "dopri5"])
def test_explicit_methods(native, monkeypatch, method):
    monkeypatch.setattr(loop_ops, "_LOOP_ADAPTERS", {})
    for name in ("torch", "array_api_compat.torch"):
        loop_ops.register_loop_adapter(name, loop_ops.LoopAdapter(scan=native.adapter.scan))
    eager = solve(method, "unroll")
    assert native.compiled == 0
    found = solve(method, "scan")
    assert native.compiled == 1
    torch.testing.assert_close(found, eager, rtol=1e-13, atol=1e-15)
