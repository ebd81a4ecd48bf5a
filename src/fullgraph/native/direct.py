"""The shortest way through a loop that was captured before, as generated Python.

A small loop takes a fraction of a microsecond, so every list, star argument and attribute on the
way to it is felt. For one specialisation this module writes the straight line: tensors out of the
caller's frame, results allocated, one call. It applies to short runs on one thread; what is larger
goes through `CompiledLoop.__call__`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import optree

from fullgraph.native.emit import UNBOUNDED

if TYPE_CHECKING:
    from fullgraph.native.runtime import CompiledLoop
    from fullgraph.native.while_runtime import CompiledWhile

__all__ = ["Direct", "direct_function", "direct_text", "tree_expression"]

# direct(L, G, xs, steps, first, stride) -> (carry, ys)
Direct: TypeAlias = Callable[[dict[str, Any], dict[str, Any], Any, int, int, int], tuple[Any, Any]]


def tree_expression(tree: Any, leaves: list[str]) -> str | None:
    """Return a Python display that rebuilds `tree` from named leaves, taken in order.

    Only plain tuples, lists, dicts with string keys and None have one; other trees give None.
    """
    if tree is None:
        return "None"
    if type(tree) is tuple or type(tree) is list:
        parts = [tree_expression(child, leaves) for child in tree]
        if any(p is None for p in parts):
            return None
        inside = "".join(f"{p}, " for p in parts)
        return f"({inside})" if type(tree) is tuple else f"[{inside}]"
    if isinstance(tree, (tuple, list, dict)) or not optree.tree_is_leaf(tree):
        return None
    return leaves.pop(0)


def direct_text(
    compiled: CompiledLoop | CompiledWhile, sources: tuple[str, ...], results: Any, order: list[int]
) -> str:
    """Return the source of the direct function of one specialisation.

    Parameters
    ----------
    compiled : CompiledLoop
        The loop.
    sources : tuple of str
        Expressions over ``L`` and ``G`` of the carry and the tensors closed over.
    results : PyTree
        What a first run gave, for its structure.
    order : list of int
        For each of its leaves, the number of the result: final carry first, then ys.
    """
    loop = compiled.loop
    n, m = len(loop.carry), len(loop.xs)
    after = len(loop.ys) if loop.going is None else 2
    inputs = [f"i{k}" for k in range(n + m + len(sources) - n)]
    reads = [*sources[:n], *(f"xs[{k}]" for k in range(m)), *sources[n:]]
    outputs = [f"r{k}" for k in range(n + after)]
    lines = ["def direct(L, G, xs, steps, first, stride):"]
    for name, read in zip(inputs, reads, strict=True):
        lines += [
            f" {name} = {read}",
            f" if not {name}.is_contiguous(): {name} = {name}.contiguous()",
        ]
    leaves = [outputs[i] for i in order]
    returned = tree_expression(results, list(leaves))
    returned = returned or f"unflatten(treedef, [{', '.join(leaves)}])"
    for k, name in enumerate(outputs):
        if k == n and loop.going is not None:
            lines += _unbounded(compiled, inputs, outputs[:n], results, order)
        shape = f"shape{k}" if k < n or loop.going is not None else f"(steps, *shape{k})"
        if shape[0] == "(" and not loop.ys[k - n].shape:
            shape = "(steps,)"
        lines.append(f" {name} = empty({shape}, strides{k}, dtype{k})")
    addresses = _addresses(compiled, inputs, outputs)
    ends = f"0, steps, first, stride, 0, {compiled.program.blocks}, 0"
    lines.append(f" status = run(pack({addresses}, {ends}))")
    lines += [" if status: fail(status)", f" return {returned}"]
    return "\n".join(lines) + "\n"


def _addresses(
    compiled: CompiledLoop | CompiledWhile, inputs: list[str], outputs: list[str]
) -> str:
    loop = compiled.loop
    constants = len(loop.carry) + len(loop.xs) + len(loop.consts) - len(inputs)
    return ", ".join(
        [
            *(f"{name}.data_ptr()" for name in inputs),
            *(f"constant{k}" for k in range(constants)),
            *(f"{name}.data_ptr()" for name in outputs),
        ]
    )


def _unbounded(
    compiled: CompiledLoop | CompiledWhile,
    inputs: list[str],
    outputs: list[str],
    results: Any,
    order: list[int],
) -> list[str]:
    """Return the end of a while loop without a bound, of which only the state is wanted."""
    n = len(outputs)
    leaves = [outputs[i] for i in order if i < n]
    state = tree_expression(results[0], list(leaves))
    state = state or f"unflatten(state_treedef, [{', '.join(leaves)}])"
    return [
        f" if steps == {UNBOUNDED}:",
        f"  status = run(pack({_addresses(compiled, inputs, outputs)}, 0, 0, 0, steps, 0, 1, 0, "
        f"{compiled.program.blocks}, 0))",
        "  if status: fail(status)",
        f"  return {state}, None",
    ]


def direct_function(
    compiled: CompiledLoop | CompiledWhile,
    sources: tuple[str, ...],
    constants: list[Any],
    results: Any,
    order: list[int],
) -> Direct:
    """Return the direct function; see `direct_text`."""
    names: dict[str, Any] = {
        **compiled.direct_names(),
        "unflatten": optree.tree_unflatten,
        "treedef": optree.tree_structure(results),
        "state_treedef": optree.tree_structure(results[0]),
        **{f"constant{k}": t.data_ptr() for k, t in enumerate(constants)},
        "keep_alive": constants,
    }
    exec(direct_text(compiled, sources, results, order), names)  # noqa: S102
    direct: Direct = names["direct"]
    return direct
