"""NumPy arrays through native loops: torch shares their memory, and captures the body.

A body is captured on arrays, which Dynamo reads as the same operations of torch, or, if it is
array-API code, on tensors. NumPy decides what it means: whatever is compiled is held against the
first steps of NumPy before it runs any further.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import torch

from fullgraph.errors import FullgraphException, MissingBackendError, UnsupportedBodyError
from fullgraph.loops import LoopAdapter, _eager, use_loop_adapter
from fullgraph.loops._carry import weak_leaves
from fullgraph.loops._eager_numpy import NumpyOps
from fullgraph.loops._foreign import whole_driver
from fullgraph.loops._ops import dtype_name
from fullgraph.loops._plan import plan_scan
from fullgraph.loops._torch_cond import is_traced
from fullgraph.loops._tree import unflatten
from fullgraph.native.compiler import find_compiler, unsupported_platform
from fullgraph.torch_loop._driver import FlatScan, NeedsRehearsal, apart
from fullgraph.torch_loop._failures import translate
from fullgraph.torch_loop._native import NativeEngine, native_adapter, native_rules
from fullgraph.torch_loop._native_ways import with_fallback
from fullgraph.torch_loop._numpy_arrays import (
    array_of,
    mapped,
    output_tensor,
    shared_tensor,
    tensor_again,
    with_own_code,
)
from fullgraph.torch_loop._numpy_check import compare_step, disagreement, magnitude, outside_array
from fullgraph.torch_loop._rules import check_arguments, refuse
from fullgraph.torch_loop._skeleton import collect, path_of, rebuild, skeleton_of

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterator

    from fullgraph.torch_loop._rules import Rules

__all__ = ["NAME", "numpy_native_adapter"]

PyTree = Any
Body = Any

NAME: Final = "numpy_native_loop_adapter"
#: So many steps are held against NumPy: in one, a number may be too round to show a dtype.
_TRIAL: Final = 4
_OPS: Final = NumpyOps()


def numpy_native_adapter(
    *, max_steps: int | None, fallback: str, threads: int, vector_math: str
) -> LoopAdapter:
    """Return the adapter that `numpy_native_loop_adapter` documents."""
    problem = unsupported_platform()
    if problem:
        raise MissingBackendError(f"{NAME}: {problem}")
    find_compiler()
    rules = replace(native_rules(max_steps, None), adapter=NAME)
    engine = NativeEngine(rules, threads, vector_math, watch_state=False)
    inner = native_adapter(
        max_steps=None,
        max_elements=None,
        fallback="raise",
        threads=threads,
        vector_math=vector_math,
    )
    scan: Callable[..., Any] = _NumpyScan(rules, engine, inner).run
    if fallback == "eager":
        scan = with_fallback(scan, _plain_scan, 1)

    def numpy_scan(
        body: Body,
        init: PyTree,
        xs: PyTree = None,
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[PyTree, PyTree]:
        found: tuple[PyTree, PyTree] = scan(body, init, xs, length=length, reverse=reverse)
        return found

    numpy_scan.engine = engine  # type: ignore[attr-defined]
    return LoopAdapter(scan=whole_driver(numpy_scan))


def _plain_scan(
    body: Body, init: PyTree, xs: PyTree, *, length: int | None, reverse: bool
) -> tuple[PyTree, PyTree]:
    return _eager.scan(body, init, xs, length=length, reverse=reverse, ops=_OPS)


def _on_arrays(body: Body) -> Callable[..., Any]:
    """Return a body on tensors that hands arrays to `body`. Traceable."""

    def on_arrays(carry: PyTree, x: PyTree) -> Any:
        new, y = body(mapped(array_of, carry), mapped(array_of, x))
        return mapped(tensor_again, new), mapped(output_tensor, y)

    return with_own_code(cast("types.FunctionType", on_arrays), body)


def _on_tensors(body: Body) -> Callable[..., Any]:
    """Return a body on tensors that hands those to `body`. Traceable."""

    def on_tensors(carry: PyTree, x: PyTree) -> Any:
        new, y = body(carry, x)
        return mapped(tensor_again, new), mapped(output_tensor, y)

    return with_own_code(cast("types.FunctionType", on_tensors), body)


def _showing_carry(body: Body) -> Callable[..., Any]:
    """Return a body that keeps its carry, and stacks what `body` would have made of it."""

    def showing_carry(carry: PyTree, x: PyTree) -> Any:
        return carry, mapped(output_tensor, body(carry, x)[0])

    return with_own_code(cast("types.FunctionType", showing_carry), body)


class _NumpyScan:
    """Scans of NumPy arrays.

    Parameters
    ----------
    rules : Rules
        What is taken.
    engine : NativeEngine
        What runs it.
    inner : LoopAdapter
        For loops in bodies that are captured on tensors.
    """

    def __init__(self, rules: Rules, engine: NativeEngine, inner: LoopAdapter) -> None:
        self._rules = rules
        self._engine = engine
        self._inner = inner
        self._compiling = threading.RLock()
        self._trying = 0  # how many captures are not compared yet: other threads must not run them

    def run(
        self,
        body: Body,
        init: PyTree,
        xs: PyTree = None,
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[PyTree, PyTree]:
        """Run a scan; see `fullgraph.scan`."""
        if is_traced():  # by a user's own torch.compile, which has NumPy's meaning to itself
            return _plain_scan(body, init, xs, length=length, reverse=reverse)
        plan = plan_scan(init, xs, length, _OPS, reverse=reverse)
        if plan.length == 0:  # nothing to compile, but a step on ones, for the dtypes of ys
            return _plain_scan(body, init, xs, length=length, reverse=reverse)
        if weak_leaves(plan.init):
            with use_loop_adapter("numpy", None):
                carry = _eager.start_scan(body, plan, _OPS)[1]
            init = unflatten(plan.init_treedef, carry)
        call = self._flatten(body, init, xs, length, reverse=reverse)
        leaves, ys = self._run(call)
        new, ys = apart(call, leaves, ys)
        return mapped(array_of, new), mapped(array_of, ys)

    def _flatten(
        self, body: Body, init: PyTree, xs: PyTree, length: int | None, *, reverse: bool
    ) -> FlatScan:
        found = []
        for root, tree in (("carry", init), ("xs", xs)):
            leaves: list[Any] = []
            skeleton = skeleton_of(tree, leaves)
            tensors = [self._tensor(leaf, skeleton, i, root) for i, leaf in enumerate(leaves)]
            found.append((skeleton, tensors))
        carry, rows = found
        tree = rebuild(*rows)
        steps = check_arguments(self._rules, carry, rows, tree, length)
        return FlatScan(body, carry[0], rows[0], carry[1], rows[1], steps, reverse, self._rules)

    def _tensor(self, leaf: Any, skeleton: Any, index: int, root: str) -> Any:
        if not _OPS.is_array(leaf):  # plan_scan has seen to leaves, but knows more containers
            raise refuse(
                self._rules,
                f"{path_of(skeleton, index, root)} is a {type(leaf).__name__}. Leaves must be "
                f"arrays or None, in tuples, lists and dicts.",
            )
        known = [dtype_name(dtype) for dtype in self._rules.dtypes]
        if leaf.dtype.name not in known:
            raise refuse(
                self._rules,
                f"{path_of(skeleton, index, root)} is {leaf.dtype.name}. Arrays must be "
                f"{' or '.join(known)}.",
            )
        return shared_tensor(leaf)

    def _run(self, call: FlatScan) -> tuple[list[Any], PyTree]:
        """Run what was compiled before, or compile, compare and run."""
        if self._trying:
            with self._compiling:
                pass
        ways = _on_arrays(call.body), _on_tensors(call.body)
        with use_loop_adapter("torch", self._inner):  # as in captures, whose guards may ask
            for way in ways:
                try:
                    return self._engine.scan(replace(call, body=way), rehearsed=False)
                except NeedsRehearsal:
                    continue
        trial = _numpy_steps(call)
        name = outside_array(call.body)
        if name is not None:
            raise _outside_error(f"the NumPy array {name!r}")
        with self._compiling:
            self._trying += 1
            try:
                return self._compile_a_way(call, ways, trial)
            finally:
                self._trying -= 1

    def _compile_a_way(
        self, call: FlatScan, ways: tuple[Body, Body], trial: list[_Step]
    ) -> tuple[list[Any], PyTree]:
        """Compile the first way of a body that can be captured, and run it."""
        failures: list[Exception] = []
        for way in ways:
            try:
                self._compile(replace(call, body=way), trial)
            except _NotCapturedError as failure:
                failures.append(failure.reason)
                continue
            with _capturing(self._inner):  # for a torch whose entries cannot be read
                return self._engine.scan(replace(call, body=way), rehearsed=True)
        on_arrays, on_tensors = map(str, failures)
        raise UnsupportedBodyError(
            f"{NAME}: read as NumPy code, {on_arrays} Read as array-API code on tensors, "
            f"{on_tensors}",
            "capture",
        ) from failures[0]

    def _compile(self, call: FlatScan, trial: list[_Step]) -> None:
        """Compile a way of a body with one step, and compare some steps with NumPy's."""
        try:
            self._compare(call, trial)
        except UnsupportedBodyError as failure:
            self._forget(call.body)
            if "CarryChangedError" in str(failure):
                self._show_carry(call, trial[0], failure)
            if "Boolean value of Tensor" in str(failure):
                raise _outside_error("a NumPy array") from failure
            if failure.operation == "disagreement":
                raise
            raise _NotCapturedError(failure) from None
        except BaseException as failure:
            self._forget(call.body)
            if isinstance(failure, FullgraphException) or not isinstance(failure, Exception):
                raise
            raise translate(NAME, failure) from failure

    def _compare(self, call: FlatScan, trial: list[_Step]) -> None:
        for step in trial:
            one = replace(call, init=step.init, xs=step.xs, length=1)
            with _capturing(self._inner):
                leaves, ys = self._engine.scan(one, rehearsed=True)
            scale = max(map(magnitude, map(array_of, (*one.init, *one.xs))), default=0.0)
            new = mapped(array_of, rebuild(call.carry, leaves))
            compare_step(step.carry, new, scale, "carry")
            compare_step(step.ys, mapped(array_of, ys), scale, "y")

    def _show_carry(self, call: FlatScan, step: _Step, failure: Exception) -> None:
        """Say which leaf of the carry torch gives another form."""
        showing = _showing_carry(call.body)
        one = replace(call, body=showing, init=step.init, xs=step.xs, length=1)
        try:
            with _capturing(self._inner):
                ys = self._engine.scan(one, rehearsed=True)[1]
        except Exception:  # noqa: BLE001 - the failure that is known says enough
            raise disagreement("carry", "one form", "another", "Cast in the body") from failure
        finally:
            self._forget(showing)
        first = mapped(lambda leaf: leaf.numpy()[0], ys)
        compare_step(step.carry, first, float("inf"), "carry")

    def _forget(self, body: Body) -> None:
        """Drop what was compiled of a body, which a later call must not find."""
        code = body.__code__
        for key in [key for key in self._engine.sites if key[0] == id(code)]:
            del self._engine.sites[key]


class _NotCapturedError(Exception):
    """A way of a body that cannot be captured; another may."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


@contextlib.contextmanager
def _capturing(inner: LoopAdapter) -> Iterator[None]:
    """Let torch have NumPy's default dtype while it captures: an integer divided is float64.

    Loops in the body stay loops.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad(), use_loop_adapter("torch", inner):
            yield
    finally:
        torch.set_default_dtype(before)


def _outside_error(what: str) -> UnsupportedBodyError:
    return UnsupportedBodyError(
        f"the body cannot become a native loop: it reads {what} that it neither carries nor gets "
        f"as x, which torch cannot watch for changes. Pass it in the carry, and return it "
        f"unchanged, or as xs.",
        "outside array",
    )


class _Step(NamedTuple):
    """One step of plain NumPy: what went in, as leaves, and what came out, as trees."""

    init: list[torch.Tensor]
    xs: list[torch.Tensor]
    carry: PyTree
    ys: PyTree


def _numpy_steps(call: FlatScan) -> list[_Step]:
    """Take the first steps in plain NumPy, one by one, under all of its rules."""
    steps, init = list[_Step](), call.init
    for number in range(min(call.length, _TRIAL)):
        place = call.length - 1 - number if call.reverse else number
        xs = [leaf[place : place + 1] for leaf in call.xs]
        before = rebuild(call.carry, [leaf.numpy() for leaf in init])
        rows = rebuild(call.row, [leaf.numpy() for leaf in xs])
        with np.errstate(all="ignore"), use_loop_adapter("numpy", None):
            carry, ys = _plain_scan(call.body, before, rows, length=1, reverse=False)
        steps.append(_Step(init, xs, carry, ys))
        leaves: list[Any] = []
        collect(call.carry, carry, leaves)
        init = [shared_tensor(leaf) for leaf in leaves]
    return steps
