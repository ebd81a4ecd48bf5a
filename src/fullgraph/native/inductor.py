"""Loops inside a user's own ``torch.compile``: Inductor calls the compiled loop as one operation.

While Dynamo traces, a loop goes into the graph as torch's scan operator with `mark` in its body.
Inductor would rewrite that operator step by step; before it does, the scans marked by us are
replaced here with `fullgraph::native_loop`. This is the only file that touches Inductor, and only
on versions where the place is known; elsewhere loops are unrolled while they are traced.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from typing import Any, Final

import torch

from fullgraph.errors import LoopCompilationError
from fullgraph.native.capture import refuse_gradient
from fullgraph.native.convert import Converter
from fullgraph.native.lanes import make_plan
from fullgraph.native.loaded import torch_dtype
from fullgraph.native.runtime import CompiledLoop, compile_loop
from fullgraph.native.verify import verify

__all__ = ["CAPTURING", "can_inline", "is_capturing", "replace_scans"]

KNOWN_TORCH: Final = ((2, 14), (2, 15))
_REWRITE: Final = "decompose_scan_to_while_loop"


class _Capturing(threading.local):
    """Whether this thread captures a body for a native loop, where Inductor plays no part."""

    active = False


CAPTURING: Final = _Capturing()

_LIBRARY = torch.library.Library("fullgraph", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("native_loop(Tensor[] inputs, int carries, int threads, str key) -> Tensor[]")  # type: ignore[no-untyped-call]
# Compiled loops by the hash of their C text, which is what a compiled graph holds on to.
_LOOPS: dict[str, tuple[CompiledLoop, list[torch.Tensor]]] = {}


def _loop(key: str) -> tuple[CompiledLoop, list[torch.Tensor]]:
    found = _LOOPS.get(key)
    if found is None:
        raise LoopCompilationError(
            "a compiled graph refers to a native loop of another process; call "
            "torch._dynamo.reset() and compile again"
        )
    return found


def _run(inputs: list[torch.Tensor], carries: int, threads: int, key: str) -> list[torch.Tensor]:
    compiled, constants = _loop(key)
    return compiled([*inputs, *constants], inputs[carries].shape[0], threads=threads)


def _fake(inputs: list[torch.Tensor], carries: int, threads: int, key: str) -> list[torch.Tensor]:
    del threads
    loop = _loop(key)[0].loop
    steps = inputs[carries].shape[0]
    shapes = [*(n.shape for n in loop.carry), *((steps, *y.shape) for y in loop.ys)]
    dtypes = [torch_dtype(n.dtype) for n in (*loop.carry, *loop.ys)]
    return [torch.empty(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True)]


_LIBRARY.impl("native_loop", _run, "CPU")  # type: ignore[no-untyped-call]
torch.library.register_fake("fullgraph::native_loop", _fake, lib=_LIBRARY)
torch.library.register_autograd("fullgraph::native_loop", refuse_gradient, lib=_LIBRARY)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def can_inline() -> bool:
    """Return whether a scan in the graph being traced will end as one native call.

    Called while Dynamo traces; it runs then, once, and sees to it that Inductor is prepared.
    """
    return CAPTURING.active or _prepared()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def is_capturing() -> bool:
    """Return whether the graph being traced is the body of a loop of ours. Called by Dynamo."""
    return CAPTURING.active


@functools.lru_cache(maxsize=1)
def _prepared() -> bool:
    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) not in KNOWN_TORCH:
        return False
    from torch._inductor.fx_passes import post_grad

    rewrite = getattr(post_grad, _REWRITE, None)
    if rewrite is None:
        return False

    @functools.wraps(rewrite)
    def ours_first(gm: torch.fx.GraphModule) -> Any:
        replace_scans(gm)
        return rewrite(gm)

    setattr(post_grad, _REWRITE, ours_first)
    return True


def replace_scans(gm: torch.fx.GraphModule) -> None:
    """Replace every scan that carries our mark with a call of the compiled loop."""
    scan = torch.ops.higher_order.scan
    for node in list(gm.graph.find_nodes(op="call_function", target=scan)):
        body, init, xs, extra = node.args[:4]
        subgraph = getattr(gm, body.target)
        settings = _settings(subgraph)
        if settings is None:
            continue
        converter = Converter(subgraph)
        loop = converter.loop(len(init), len(xs))
        verify(loop)
        threads, vector_math = settings
        compiled = compile_loop(loop, make_plan(loop, threads=threads), vector_math=vector_math)
        key = hashlib.sha256(compiled.program.text.encode()).hexdigest()
        _LOOPS[key] = (compiled, converter.constants)
        inputs = [*init, *xs, *(extra[i] for i in converter.used_consts)]
        with gm.graph.inserting_before(node):
            call = gm.graph.call_function(
                torch.ops.fullgraph.native_loop.default, (inputs, len(init), threads, key)
            )
            call.meta.update(node.meta)
        node.replace_all_uses_with(call)
        gm.graph.erase_node(node)
    gm.recompile()


def _settings(subgraph: torch.fx.GraphModule) -> tuple[int, str] | None:
    """Return threads and vector math of a scan of ours, which its marks spell out."""
    for node in subgraph.graph.nodes:
        if node.op == "call_function" and node.target is torch.ops.fullgraph.mark.default:
            return int(node.args[2]), str(node.args[1])
    return None
