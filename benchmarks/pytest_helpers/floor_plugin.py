"""The floor that Dynamo sets: tagged functions under a bare torch.compile, nothing else.

A pytest plugin for `suites.py`. Every tagged function is compiled once for the whole run by
``torch.compile(func, backend="eager", dynamic=False)`` with the limits that fullgraph's plugin
uses. Two settings are needed for correct results, and are given to the floor as well: no redundant
default device, and no tracing of NumPy. Nothing is counted, compared or explained.
"""

from __future__ import annotations

import contextlib
import functools
import os

import pytest
import torch
import torch._dynamo

from fullgraph.plugin.copies import Copies
from fullgraph.testing._discover import tagged_targets
from fullgraph.testing._dynamo.device import has_redundant_default, plain_default_device

_compiled = {}


def _compile(func):
    if id(func) not in _compiled:
        bare = torch.compile(
            func,
            backend="eager",
            dynamic=False,
            isolate_recompiles=True,
            recompile_limit=int(os.environ.get("FLOOR_LIMIT", "256")),
        )

        @functools.wraps(func)
        def call(*args, **kwargs):
            if has_redundant_default():
                with plain_default_device():
                    return bare(*args, **kwargs)
            return bare(*args, **kwargs)

        _compiled[id(func)] = (func, call)
    return _compiled[id(func)][1]


def _dispatch(original, request, xp, rest):
    if "torch" not in xp.__name__:
        return original(request, xp=xp, **rest)

    @contextlib.contextmanager
    def patched():
        undo = []
        for target in list(tagged_targets(request.module)):
            if isinstance(target.owner, type):
                continue  # methods: none in the measured suites
            undo.append((target.owner, target.name, target.raw))
            setattr(target.owner, target.name, _compile(target.func))
        try:
            yield
        finally:
            for owner, name, raw in reversed(undo):
                setattr(owner, name, raw)

    return patched()


def pytest_configure(config):
    torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    torch._dynamo.config.trace_numpy = False
    copies = Copies(_dispatch)
    copies.take_over_all()
    config.add_cleanup(copies.restore)


@pytest.hookimpl(trylast=True)
def pytest_report_header():
    return "floor: bare torch.compile"
