"""Backends that count: every graph that is compiled and every run of it is charged to its call."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.testing._dynamo.calls import current
from fullgraph.testing._dynamo.program import program

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BACKENDS = ("trace", "aot_eager", "inductor")


def check_backend(name: str) -> str:
    """Return `name` if it is a backend of ours, else raise a `UsageError` that lists them."""
    if name not in BACKENDS:
        raise UsageError(
            f"unknown backend {name!r}: accepted are {', '.join(map(repr, BACKENDS))}; "
            "use 'trace' to prove what is captured, 'inductor' to run what users run"
        )
    return name


def counting_backend(name: str) -> Callable[..., Any]:
    """Return the torch.compile backend called `name`, with counters around it."""
    compile_graph = program if name == "trace" else _of_torch(name)

    def backend(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        run = compile_graph(graph, example_inputs)
        if not any(node.op.startswith("call_") for node in graph.graph.nodes):
            return run  # fullgraph hands on graphs without an operation, compile mode none
        log = current()
        if log is not None:
            log.graphs_compiled += 1

        return _counted(run)

    return backend


def _counted(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run` with each run of it, and what it raises, told to the running call.

    What a graph changes is learnt from its first complete run: it has no branches, so that later
    runs change the same. Until then it is taken to change something.
    """
    known = False
    changes = True

    def counted(*inputs: Any) -> Any:
        nonlocal known, changes
        log = current()
        if log is not None:
            log.saw_graph(changes=changes)
        before = None if known else _state(inputs)
        try:
            result = run(*inputs)
        except Exception as error:
            if log is not None:
                log.graph_error = error
            raise
        if not known:
            changes = before is None or before != _state(inputs)
            known = True
        return result

    return counted


def _state(inputs: Sequence[Any]) -> tuple[list[int], bytes] | None:
    """Return what tells whether a graph has changed something; None if that cannot be told."""
    import torch

    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return None  # random state of its own
    try:
        versions = [tensor._version for tensor in tensors]  # noqa: SLF001 - documented
    except RuntimeError:  # inference tensors have none
        return None
    return versions, torch.get_rng_state().numpy().tobytes()


def _of_torch(name: str) -> Callable[..., Any]:
    from torch._dynamo import lookup_backend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # on import, of torch about itself
        found: Callable[..., Any] = lookup_backend(name)
    return found
