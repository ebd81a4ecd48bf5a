"""What an adapter takes: rules as data, and the refusal of everything else.

A refusal names the leaf, the rule and the bound, and comes before anything is compiled. All of this
can be traced by Dynamo, because it also runs inside a user's own ``torch.compile``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fullgraph.errors import UnsupportedLoopError
from fullgraph.loops._ops import SCALAR_KINDS, dtype_name
from fullgraph.loops._plan import scan_length
from fullgraph.torch_loop._skeleton import Skeleton, path_of

__all__ = ["Rules", "check_arguments", "check_carried", "check_output", "check_state", "refuse"]

PyTree = Any


@dataclass(frozen=True)
class Rules:
    """Bounds and kinds of input of one adapter.

    Attributes
    ----------
    adapter : str
        Name for messages, ``"torch_compile_loop_adapter"``.
    max_steps, max_elements : int or None
        Longest scan, and most elements of an input, a carry leaf or a stacked output.
    dtypes : tuple of torch.dtype
        What leaves may be.
    one_dtype : bool
        Whether all leaves must share a dtype.
    scalars : bool
        Whether Python numbers may be leaves of the carry.
    empty : bool
        Whether leaves may have no elements.
    zero_steps : bool
        Whether a scan may have no steps.
    namedtuples : bool
        Whether trees may contain named tuples.
    nested : bool
        Whether a body may call a loop of the same adapter.
    advice : str
        What to do about a refusal, the end of each message.
    """

    adapter: str
    max_steps: int | None
    max_elements: int | None
    dtypes: tuple[torch.dtype, ...]
    one_dtype: bool = False
    scalars: bool = True
    empty: bool = True
    zero_steps: bool = True
    namedtuples: bool = True
    nested: bool = True
    advice: str = (
        "Run this loop eagerly with use_loop_adapter(namespace, None), or with another adapter."
    )


def refuse(rules: Rules, what: str) -> UnsupportedLoopError:
    """Return the error for a call that an adapter does not take."""
    return UnsupportedLoopError(f"{rules.adapter}: {what} {rules.advice}")


def check_arguments(
    rules: Rules,
    carry: tuple[Skeleton, list[Any]],
    rows: tuple[Skeleton, list[Any]],
    xs: PyTree,
    length: int | None,
) -> int:
    """Check the flattened arguments of a scan and return its length.

    Raises
    ------
    UnsupportedLoopError
        If the adapter does not take them.
    UsageError
        If the number of steps is missing or contradicted.
    """
    dtype: torch.dtype | None = None
    for root, (skeleton, leaves) in (("carry", carry), ("xs", rows)):
        _check_containers(rules, skeleton, root)
        for index, leaf in enumerate(leaves):
            _check_leaf(rules, leaf, skeleton, index, root)
            if isinstance(leaf, torch.Tensor) and rules.one_dtype:
                if dtype is not None and leaf.dtype != dtype:
                    raise refuse(
                        rules,
                        f"{path_of(skeleton, index, root)} is {dtype_name(leaf.dtype)}, and the "
                        f"leaves before it are {dtype_name(dtype)}. All leaves must have one "
                        f"dtype.",
                    )
                dtype = leaf.dtype
    if not rules.scalars and not carry[1]:
        raise refuse(rules, "the carry has no tensor.")
    steps = scan_length(xs, [tuple(leaf.shape) for leaf in rows[1]], length)
    if steps == 0 and not rules.zero_steps:
        raise refuse(rules, "the scan has 0 steps, and must have at least 1.")
    if rules.max_steps is not None and steps > rules.max_steps:
        raise refuse(rules, f"the scan has {steps} steps, and may have at most {rules.max_steps}.")
    return steps


def check_state(rules: Rules, skeleton: Skeleton, leaves: list[Any], max_steps: int | None) -> None:
    """Check the flattened arguments of a while loop.

    Raises
    ------
    UnsupportedLoopError
        If the adapter does not take them.
    """
    _check_containers(rules, skeleton, "carry")
    for index, leaf in enumerate(leaves):
        _check_leaf(rules, leaf, skeleton, index, "carry")
    most = rules.max_steps
    if most is not None and (max_steps is None or max_steps > most):
        steps = "has no max_steps" if max_steps is None else f"may take {max_steps} steps"
        raise refuse(rules, f"the while loop {steps}, and may take at most {most}.")


def _check_containers(rules: Rules, skeleton: Skeleton, root: str) -> None:
    if isinstance(skeleton, dict):
        for key in skeleton:
            _check_containers(rules, skeleton[key], f'{root}["{key}"]')
    elif isinstance(skeleton, (tuple, list)):
        if type(skeleton) is not tuple and type(skeleton) is not list and not rules.namedtuples:
            raise refuse(
                rules,
                f"{root} is a {type(skeleton).__name__}. Trees are tuples, lists and dicts.",
            )
        for index in range(len(skeleton)):
            _check_containers(rules, skeleton[index], f"{root}[{index}]")


def _check_leaf(rules: Rules, leaf: Any, skeleton: Skeleton, index: int, root: str) -> None:
    if type(leaf) in SCALAR_KINDS and root == "carry":
        if rules.scalars:
            return
        raise refuse(
            rules,
            f"{path_of(skeleton, index, root)} is the Python number {leaf!r}. Leaves must be "
            f"tensors or None.",
        )
    _check_type(rules, leaf, skeleton, index, root)
    what = _fault(rules, leaf)
    if what is not None:
        raise refuse(rules, f"{path_of(skeleton, index, root)} {what}")


def _check_type(rules: Rules, leaf: Any, skeleton: Skeleton, index: int, root: str) -> None:
    if type(leaf) is not torch.Tensor and type(leaf) is not torch.nn.Parameter:
        raise refuse(
            rules,
            f"{path_of(skeleton, index, root)} is a {type(leaf).__name__}. Leaves must be tensors "
            f"(no subclass) or None, in tuples, lists and dicts.",
        )


def _fault(rules: Rules, leaf: torch.Tensor) -> str | None:
    """Return what is wrong with a tensor, or None."""
    if leaf.device.type != "cpu":
        return f"is on {leaf.device}. Tensors must be on the CPU."
    if leaf.layout != torch.strided:
        return f"has the layout {leaf.layout}. Tensors must be dense."
    if leaf.dtype not in rules.dtypes:
        allowed = " or ".join([dtype_name(dtype) for dtype in rules.dtypes])
        return f"is {dtype_name(leaf.dtype)}. Tensors must be {allowed}."
    if leaf.numel() == 0 and not rules.empty:
        return f"has shape {tuple(leaf.shape)} and no elements. Tensors must have some."
    if rules.max_elements is not None and leaf.numel() > rules.max_elements:
        return f"has {leaf.numel()} elements. A tensor may have at most {rules.max_elements}."
    return None


def check_carried(rules: Rules, carry: Skeleton, leaves: list[Any]) -> None:
    """Check the carry after one step: a body may close over a subclass, whose results are of it."""
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            _check_type(rules, leaf, carry, index, "the new carry")


def check_output(rules: Rules, y: Skeleton, leaves: list[Any], steps: int) -> None:
    """Check the y of one step: its kinds, and its size once stacked."""
    _check_containers(rules, y, "y")
    for index, leaf in enumerate(leaves):
        if type(leaf) in SCALAR_KINDS and rules.scalars:
            continue
        _check_leaf(rules, leaf, y, index, "y")
        if rules.max_elements is not None and leaf.numel() * steps > rules.max_elements:
            raise refuse(
                rules,
                f"{path_of(y, index, 'y')} has {leaf.numel()} elements in each of {steps} steps, "
                f"{leaf.numel() * steps} stacked. A stacked output may have at most "
                f"{rules.max_elements}.",
            )
