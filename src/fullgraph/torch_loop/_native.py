"""The native engine: a whole scan of CPU torch as one C function."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import torch

from fullgraph.errors import (
    MissingBackendError,
)
from fullgraph.loops import LoopAdapter, _eager
from fullgraph.loops._carry import split_result, strengthen, weak_leaves
from fullgraph.loops._eager_torch import TorchOps, ops_for_this_call
from fullgraph.loops._tree import flatten, unflatten
from fullgraph.native.capture import mark
from fullgraph.native.cells import fixed_cells, shared_cells
from fullgraph.native.compiler import find_compiler, unsupported_platform
from fullgraph.native.dispatch import Site, Specialisation
from fullgraph.native.gradient.nested import DIFFERENTIATED
from fullgraph.native.inductor import can_inline, is_capturing
from fullgraph.torch_loop._checkpoint import checkpoint
from fullgraph.torch_loop._driver import (
    FlatScan,
    NeedsRehearsal,
    TorchLoopDriver,
)
from fullgraph.torch_loop._native_step import NAME, SITES, as_tensor, reason_of, step_of
from fullgraph.torch_loop._native_ways import (
    eager_under_transforms,
    plain_scan,
    short_way,
    with_fallback,
)
from fullgraph.torch_loop._native_while import NativeWhile, plain_while, short_while
from fullgraph.torch_loop._quiet import quiet_compilation
from fullgraph.torch_loop._rules import Rules, check_output
from fullgraph.torch_loop._skeleton import rebuild, skeleton_of

__all__ = ["NAME", "NativeEngine", "captured_step", "native_adapter", "native_rules"]

PyTree = Any
Body = Callable[[PyTree, PyTree], tuple[PyTree, PyTree]]

DTYPES: Final = (
    *(torch.float64, torch.float32, torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint8, torch.bool),
)
_OPS: Final = TorchOps()
_CPU: Final = torch.device("cpu")


def native_adapter(
    *,
    max_steps: int | None,
    max_elements: int | None,
    fallback: str,
    threads: int,
    vector_math: str,
) -> LoopAdapter:
    """Return the adapter that `torch_native_loop_adapter` documents."""
    problem = unsupported_platform()
    if problem:
        raise MissingBackendError(f"{NAME}: {problem}")
    find_compiler()
    rules = native_rules(max_steps, max_elements)
    engine = NativeEngine(rules, threads, vector_math)
    driver = TorchLoopDriver(rules, engine)
    loops = NativeWhile(rules, vector_math)
    scan, while_loop = driver.scan, loops.run
    if fallback == "eager":
        scan = with_fallback(driver.scan, plain_scan, 1)
        while_loop = with_fallback(loops.run, plain_while, 2)
    return LoopAdapter(
        scan=short_way(engine, eager_under_transforms(scan)),
        checkpoint=checkpoint,
        while_loop=short_while(loops, while_loop),
    )


def native_rules(max_steps: int | None, max_elements: int | None) -> Rules:
    """Return what the adapter takes."""
    return Rules(
        adapter=NAME,
        max_steps=max_steps,
        max_elements=max_elements,
        dtypes=DTYPES,
    )


class NativeEngine:
    """Runs scans natively and keeps what it has compiled.

    Parameters
    ----------
    rules : Rules
        What the adapter takes.
    threads : int
    vector_math : str
        As for the adapter.
    watch_state : bool
        As for `Site`.
    """

    def __init__(
        self, rules: Rules, threads: int, vector_math: str, *, watch_state: bool = True
    ) -> None:
        self.rules = rules
        self._watch_state = watch_state
        self._threads = threads
        self._vector_math = vector_math
        # By the id of the body's code, which is kept alive beside (closures share their code), and
        # the cells that functions of its closure share.
        self.sites: OrderedDict[tuple[int, tuple[int, ...]], tuple[Any, Site]] = OrderedDict()

    def scan(self, call: FlatScan, *, rehearsed: bool) -> tuple[list[Any], PyTree]:
        """Run a scan that was captured before, or capture it now."""
        if not call.length:  # the carry is `init`, with its gradient
            return _unrolled(call)
        init, x = self._arguments(call)
        site = self.site(call.body)
        run = (call.body, init, x, [leaf.resolve_neg() for leaf in call.xs], call.length)
        around = call.checkpointed
        segment = 0 if around is None else around.every or -1
        results = site.try_call(*run, reverse=call.reverse, segment=segment)
        if results is None:
            if not rehearsed:
                raise NeedsRehearsal
            try:
                with quiet_compilation():
                    results = site.call(*run, reverse=call.reverse, segment=segment)
            except Exception as error:
                reason = reason_of(error)
                if reason is error:
                    raise
                raise reason from error
        self._check_size(call, results[1])
        leaves: list[Any] = []
        skeleton_of(results[0], leaves)
        return leaves, results[1]

    def inline_scan(self, call: FlatScan) -> tuple[list[Any], PyTree]:
        """Emit a scan into the graph that somebody else's ``torch.compile`` is capturing."""
        if call.length == 0 or not call.init or not can_inline():
            return _unrolled(call)
        return inlined_scan(call, self._strong(call), self._threads, self._vector_math)

    def site(self, body: Body) -> Site:
        """Return where captures of `body` are kept."""
        code = getattr(body, "__code__", None) or type(body)
        key = id(code), shared_cells(body)
        known = self.sites.get(key)
        if known is None:
            fixed = fixed_cells(body)
            site = Site(
                captured_step,
                self._vector_math,
                self._threads,
                fixed=fixed,
                watch_state=self._watch_state,
            )
            known = code, site
            self.sites[key] = known
            if len(self.sites) > SITES:
                self.sites.popitem(last=False)
        return known[1]

    def specialisations(self) -> list[Specialisation]:
        """Return everything that was compiled and is still remembered."""
        return [s for _, site in self.sites.values() for s in site.specialisations]

    def _arguments(self, call: FlatScan) -> tuple[PyTree, PyTree]:
        """Return the carry with strong leaves, and a tree like one row of xs."""
        rows = [torch.empty(leaf.shape[1:], dtype=leaf.dtype) for leaf in call.xs]
        for row, leaf in zip(rows, call.xs, strict=True):
            row.requires_grad_(leaf.requires_grad)
        init = [
            leaf.resolve_neg() if isinstance(leaf, torch.Tensor) else leaf
            for leaf in self._strong(call)
        ]
        return rebuild(call.carry, init), rebuild(call.row, rows)

    @staticmethod
    def _strong(call: FlatScan) -> list[Any]:
        """Return the leaves of the carry, Python scalars as tensors of the dtype they take."""
        if not weak_leaves(call.init):
            return call.init
        leaves, treedef = flatten(rebuild(call.carry, call.init))
        strong = strengthen(leaves, treedef, _OPS, _CPU, _one_step(call))
        ordered: list[Any] = []
        skeleton_of(unflatten(treedef, strong), ordered)
        return ordered

    def _check_size(self, call: FlatScan, ys: PyTree) -> None:
        """Apply the bound on stacked outputs, once their size is known."""
        if self.rules.max_elements is None:
            return
        leaves: list[Any] = []
        skeleton = skeleton_of(ys, leaves)
        rows = [torch.empty(leaf.shape[1:], dtype=leaf.dtype) for leaf in leaves]
        check_output(self.rules, skeleton, rows, call.length)


def _one_step(call: FlatScan) -> Callable[[PyTree], PyTree]:
    """Return the carry after one step as a function of the carry, run plainly on copies."""
    first = call.length - 1 if call.reverse else 0
    rows = [
        leaf[first].clone() if call.length else leaf.new_ones(leaf.shape[1:]) for leaf in call.xs
    ]

    def after(tree: PyTree) -> PyTree:
        carry, treedef = flatten(tree)
        own = [v.clone() if isinstance(v, torch.Tensor) else v for v in carry]

        def step() -> Any:
            return call.body(unflatten(treedef, own), rebuild(call.row, rows))

        return split_result(ops_for_this_call().evaluate(step))[0]

    return after


def _unrolled(call: FlatScan) -> tuple[list[Any], PyTree]:
    """Trace a scan step by step."""
    carry, ys = _eager.scan(
        call.body,
        rebuild(call.carry, call.init),
        rebuild(call.row, call.xs),
        length=call.length,
        reverse=call.reverse,
        ops=ops_for_this_call(),
    )
    leaves: list[Any] = []
    skeleton_of(carry, leaves)
    return leaves, ys


def inlined_scan(
    call: FlatScan, init: list[Any], threads: int, vector_math: str
) -> tuple[list[Any], PyTree]:
    """Emit torch's scan operator, marked, which keeps the body as a graph of its own.

    The operator refuses results that share memory with anything; fresh copies cure that, and cost
    nothing once compiled. Where there is no x it counts.
    """
    from torch._higher_order_ops import scan

    def fresh(leaf: torch.Tensor) -> torch.Tensor:
        return leaf.clone(memory_format=torch.contiguous_format)

    way = (
        vector_math + DIFFERENTIATED if is_capturing() and torch.is_grad_enabled() else vector_math
    )

    def step(carry: list[Any], row: list[Any]) -> tuple[list[Any], list[Any]]:
        # The mark says whose scan this is and how it is meant; it has no gradient on purpose.
        marked = [mark(leaf, way, threads) for leaf in carry]
        new, y = step_of(call.body, call.carry, call.row, marked, row if call.xs else [])
        outputs: list[Any] = []
        skeleton_of(y, outputs)
        return [fresh(leaf) for leaf in new], [fresh(as_tensor(leaf)) for leaf in outputs]

    # Traced once more outside of the operator, for the structure of y; the compiler drops it.
    rows = [fresh(leaf[0]) for leaf in call.xs]
    y = step_of(call.body, call.carry, call.row, [fresh(leaf) for leaf in init], rows)[1]
    skeleton = skeleton_of(y, [])
    xs = call.xs or [torch.arange(call.length)]
    begin = [fresh(leaf) for leaf in init]
    if is_capturing():
        return _nested_scan(call, step, begin, xs, skeleton)
    carry, ys = scan(step, begin, xs, reverse=call.reverse)
    return list(carry), rebuild(skeleton, list(ys))


def _nested_scan(
    call: FlatScan, step: Callable[..., Any], init: list[Any], xs: list[Any], skeleton: PyTree
) -> tuple[list[Any], PyTree]:
    """Emit a scan into the body of a loop of ours.

    torch must not differentiate it, we do: so gradients are off around the operator, and around
    nothing else. The mark in its body says whether they were on.
    """
    from torch._higher_order_ops import scan

    rows = [torch.flip(leaf, [0]) for leaf in xs] if call.reverse else [leaf.clone() for leaf in xs]
    with torch.no_grad():
        carry, ys = scan(step, init, rows)
    found = [torch.flip(leaf, [0]) for leaf in ys] if call.reverse else list(ys)
    return list(carry), rebuild(skeleton, found)


def captured_step(body: Body, init: PyTree, x: PyTree) -> tuple[PyTree, PyTree]:
    """Take one step; this is what Dynamo captures."""
    leaves: list[Any] = []
    rows: list[Any] = []
    skeleton, row_skeleton = skeleton_of(init, leaves), skeleton_of(x, rows)
    carry = [mark(leaf, "carry", i) for i, leaf in enumerate(leaves)]
    row = [mark(leaf, "x", i) for i, leaf in enumerate(rows)]
    new, y = step_of(body, skeleton, row_skeleton, carry, row)
    outputs: list[Any] = []
    y_skeleton = skeleton_of(y, outputs)
    return (
        rebuild(skeleton, [mark(leaf, "new", i) for i, leaf in enumerate(new)]),
        rebuild(y_skeleton, [mark(as_tensor(leaf), "y", i) for i, leaf in enumerate(outputs)]),
    )
