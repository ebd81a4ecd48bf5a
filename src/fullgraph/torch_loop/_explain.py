"""explain_loop: what the native adapter makes of a body, or why it refuses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from fullgraph.errors import GradientRefusedError, UnsupportedBodyError, UsageError
from fullgraph.native.compiler import find_compiler
from fullgraph.native.ir import Loop, Map, Nested, Node
from fullgraph.native.printer import format_loop
from fullgraph.torch_loop._driver import TorchLoopDriver
from fullgraph.torch_loop._explain_text import as_text
from fullgraph.torch_loop._native import NativeEngine, native_rules
from fullgraph.torch_loop._native_step import NAME
from fullgraph.torch_loop._native_while import NativeWhile

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.native.dispatch import Specialisation

__all__ = ["LoopExplanation", "explain", "explain_while"]

PyTree = Any


@dataclass(frozen=True)
class LoopExplanation:
    """What became of a loop body.

    Attributes
    ----------
    refused : str
        Why the body cannot be compiled, or ``""``.
    operation, line : str
        What is refused, and the user's line.
    captured : str
        The body as loop IR, one value a line.
    operations : dict of str to int
        How often each operation occurs.
    lanes, block : int
        Number of independent lanes (0: none), and how many run together.
    written_out : bool
        Whether a step is scalar statements rather than loops over arrays.
    c_text : str
        The C file.
    flags : tuple of str
        Compiler flags.
    compiler : str
        First line of the compiler's version.
    library : str
        Path of the shared object.
    capture_seconds, build_seconds : float
        From Dynamo's graph to IR, and from IR to a loaded function.
    cache_hit : bool
        Whether the shared object was there already.
    backward, backward_c_text : str
        The loop that goes back, as loop IR and as C; empty where no input requires grad.
    backward_lanes : int
        Number of its independent lanes.
    saved_bytes : int
        What the explained call kept for its gradient, measured: rows of the carry and of other
        values, not arguments and results.
    segment : int
        Steps between two saved carries, 0 where the body is not checkpointed.
    """

    refused: str = ""
    operation: str = ""
    line: str = ""
    captured: str = ""
    operations: dict[str, int] | None = None
    lanes: int = 0
    block: int = 0
    written_out: bool = False
    c_text: str = ""
    flags: tuple[str, ...] = ()
    compiler: str = ""
    library: str = ""
    capture_seconds: float = 0.0
    build_seconds: float = 0.0
    cache_hit: bool = False
    backward: str = ""
    backward_c_text: str = ""
    backward_lanes: int = 0
    saved_bytes: int = 0
    segment: int = 0

    def __str__(self) -> str:
        return as_text(self)


def explain(
    body: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]],
    init: PyTree,
    xs: PyTree,
    length: int | None,
    vector_math: Literal["sleef", "libm"],
) -> LoopExplanation:
    """Compile a scan and say how; see `fullgraph.torch_loop.explain_loop`."""
    rules = native_rules(None, None)
    engine = NativeEngine(rules, 1, vector_math)
    driver = TorchLoopDriver(rules, engine)
    return _told(lambda: driver.scan(body, init, xs, length=length), engine.specialisations)


def explain_while(
    cond: Callable[[PyTree], Any],
    body: Callable[[PyTree], PyTree],
    init: PyTree,
    vector_math: Literal["sleef", "libm"],
) -> LoopExplanation:
    """Compile a while loop and say how; see `fullgraph.torch_loop.explain_loop`."""
    loops = NativeWhile(native_rules(None, None), vector_math)
    return _told(lambda: loops.compile(cond, body, init), loops.specialisations)


def _told(
    compile_it: Callable[[], Any], specialisations: Callable[[], list[Specialisation]]
) -> LoopExplanation:
    try:
        compile_it()
    except UnsupportedBodyError as refusal:
        return LoopExplanation(str(refusal), refusal.operation, refusal.line)
    except GradientRefusedError as refusal:
        return LoopExplanation(str(refusal), f"{NAME}: gradients")
    every = specialisations()
    if not every:
        raise UsageError("explain_loop: the loop has no steps, so nothing is compiled for it.")
    found = every[-1]
    compiled = found.compiled
    return LoopExplanation(
        captured=format_loop(compiled.loop),
        operations=_operations(compiled.loop),
        lanes=compiled.plan.lanes,
        block=compiled.plan.block,
        written_out=compiled.plan.unroll,
        c_text=compiled.program.text,
        flags=compiled.built.flags,
        compiler=find_compiler().version,
        library=str(compiled.built.path),
        capture_seconds=found.capture_seconds,
        build_seconds=found.build_seconds,
        cache_hit=compiled.built.cached,
        **_gradient_of(found),
    )


def _gradient_of(found: Specialisation) -> dict[str, Any]:
    """Return what is told about the gradient, for a call that has just run."""
    if found.gradient is None:
        return {}
    loops = found.gradient[0]
    backward, compiled = loops.variant(loops.rows_only())
    return {
        "backward": format_loop(backward.loop),
        "backward_c_text": compiled.program.text,
        "backward_lanes": compiled.plan.lanes,
        "saved_bytes": loops.latest_saved[1],
        "segment": loops.latest_saved[2],
    }


def _operations(loop: Loop) -> dict[str, int]:
    counts: dict[str, int] = {}

    def count(nodes: tuple[Node, ...]) -> None:
        for node in nodes:
            name = node.fn if isinstance(node, Map) else type(node).__name__.lower()
            if name not in ("input", "constant"):
                counts[name] = counts.get(name, 0) + 1
            if isinstance(node, Nested):
                count(node.loop.nodes)

    count(loop.nodes)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
