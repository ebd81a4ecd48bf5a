"""A joint step becomes a forward loop that saves rows and a backward loop that reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from fullgraph.native.gradient.choose import choose_saved
from fullgraph.native.gradient.sums import Total, running_sums, sum_of_lanes
from fullgraph.native.ir import Broadcast, Constant, Input, Iota, Loop, Node, topological
from fullgraph.native.lanes import Plan, make_plan
from fullgraph.native.rewrite import is_zero, substitute, sum_of, without, zeros_like
from fullgraph.native.verify import verify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fullgraph.native.gradient.joint import Joint

__all__ = [
    "Backward",
    "CotangentKind",
    "Forward",
    "Source",
    "never_there",
    "split_backward",
    "split_forward",
    "split_nested",
    "split_plain",
    "split_replay",
]

# What a cotangent of ys is: rows of its own, one number everywhere, or absent.
CotangentKind = Literal["rows", "number", "zero"]


@dataclass(frozen=True)
class Source:
    """What the runtime passes for an input of a loop.

    Attributes
    ----------
    kind : str
        For rows: ``"carry"`` before the step, ``"next"`` after it, ``"y"`` of the forward loop,
        ``"x"``, ``"ct"`` of a y. For closed-over tensors: ``"const"``, a leaf of the first carry
        (``"init"``), or the only number of a cotangent (``"ct"``).
    index : int
        Which one.
    """

    kind: Literal["carry", "next", "y", "x", "ct", "const", "init"]
    index: int


@dataclass(frozen=True)
class Forward:
    """The loop that saves.

    Attributes
    ----------
    loop : Loop
        Its ys are those of the step, then values saved, then the new carry where it is saved.
    consts : tuple of int
        Its closed-over tensors, as numbers of those of the joint step.
    saved : tuple of Node
        All its ys except the carry, as nodes of the joint step.
    carries : tuple of int
        Leaves of the carry that are saved in every step.
    """

    loop: Loop
    consts: tuple[int, ...]
    saved: tuple[Node, ...]
    carries: tuple[int, ...]


@dataclass(frozen=True)
class Backward:
    """The loop that goes back.

    Attributes
    ----------
    loop : Loop
        Carries the cotangents of `carry`, then the running sums of `totals`.
    plan : Plan
        How it is written out.
    rows, consts : tuple of Source
        Its xs and its closed-over tensors.
    carry : tuple of int
        Leaves of the forward carry that have a cotangent.
    xs : tuple of int
        Leaves of the forward xs whose cotangents are its ys.
    totals : tuple of (int, Total)
        Arguments of the captured graph, and the sums that their gradients are made of.
    """

    loop: Loop
    plan: Plan
    rows: tuple[Source, ...]
    consts: tuple[Source, ...]
    carry: tuple[int, ...]
    xs: tuple[int, ...]
    totals: tuple[tuple[int, Total], ...]


def split_forward(joint: Joint) -> Forward:
    """Return the forward loop, after choosing what it saves."""
    gradients = [g for g in (*joint.ct_carry, *joint.ct_xs, *joint.ct_consts) if g is not None]
    cotangents: set[Node] = {c for c in (*joint.ct_new, *joint.ct_ys) if c is not None}
    results = [n for n in (*joint.new, *joint.ys) if not isinstance(n, Input | Constant | Iota)]
    saved = tuple(dict.fromkeys((*joint.ys, *choose_saved(gradients, cotangents, results))))
    # A y may be there twice: the user's stay as they are, in front.
    extra = [n for n in saved if n not in joint.ys]
    reached = _reached(gradients, {*results, *extra} - cotangents)
    carries = tuple(
        i
        for i, (before, after) in enumerate(zip(joint.carry, joint.new, strict=True))
        if before is not after
        and (before in reached or (after in reached and after in results and after not in saved))
    )
    ys = (*joint.ys, *extra)
    return _forward(joint, ys, ys, carries)


def split_plain(joint: Joint) -> Forward:
    """Return the forward loop that saves nothing."""
    return _forward(joint, joint.ys, (), ())


def split_replay(joint: Joint, forward: Forward) -> Forward:
    """Return the forward loop that saves what `forward` does, and gives no ys."""
    return _forward(joint, forward.saved[len(joint.ys) :], forward.saved, forward.carries)


def _forward(
    joint: Joint, ys: tuple[Node, ...], saved: tuple[Node, ...], carries: tuple[int, ...]
) -> Forward:
    """Return the step as a loop with these ys, followed by the new carry where it is saved."""
    used = [c for c in joint.consts if c in set(topological((*joint.new, *ys)))]
    inputs = _Inputs()
    for c in joint.carry:
        inputs.carry(c)
    for x in joint.xs:
        inputs.row(x, Source("x", x.index))
    for k in used:
        inputs.const(k, Source("const", k.index))
    # In one go, so that what results share is computed once.
    made = substitute((*joint.new, *ys, *(joint.new[i] for i in carries)), inputs.replaced)
    loop = inputs.loop(made[: len(joint.new)], made[len(joint.new) :])
    return Forward(loop, tuple(c.index for c in used), saved, carries)


def split_backward(
    joint: Joint,
    forward: Forward,
    kinds: Sequence[CotangentKind],
    threads: int = 1,
    *,
    absent: frozenset[int] = frozenset(),
) -> Backward:
    """Return the backward loop for cotangents of ys of these kinds, written out for `threads`.

    Gradients of tensors that all lanes share are summed over lanes after the loop where that gives
    the loop lanes, or less to add up. Leaves of the carry that are `absent` have no cotangent in
    any step, see `never_there`.
    """
    apart = _backward(joint, forward, kinds, threads, lanes_apart=True, absent=absent)
    if apart.plan.lanes:
        return apart
    together = _backward(joint, forward, kinds, threads, lanes_apart=False, absent=absent)
    if together.plan.lanes or _summed(together) < _summed(apart):
        return together
    return apart


def never_there(
    joint: Joint, kinds: Sequence[CotangentKind], missing: Iterable[int]
) -> frozenset[int]:
    """Return the leaves of the carry that have no cotangent in any step.

    Parameters
    ----------
    kinds : sequence of str
        What the cotangents of ys are.
    missing : iterable of int
        Leaves of the final carry without a cotangent.
    """
    found = frozenset(i for i in missing if joint.active[i])
    while found:
        leaves = sorted(found)
        gradients = [joint.ct_carry[i] for i in leaves]
        roots, gone = without([g for g in gradients if g is not None], _absent(joint, kinds, found))
        rest = iter(roots)
        still = frozenset(
            i for i, g in zip(leaves, gradients, strict=True) if g is None or next(rest) in gone
        )
        if still == found:
            break
        found = still
    return found


def _absent(joint: Joint, kinds: Sequence[CotangentKind], carry: frozenset[int]) -> list[Node]:
    """Return the cotangents of a step that are absent."""
    ys = [ct for ct, kind in zip(joint.ct_ys, kinds, strict=True) if kind == "zero"]
    return [ct for ct in (*ys, *(joint.ct_new[i] for i in sorted(carry))) if ct is not None]


def split_nested(
    joint: Joint,
    forward: Forward,
    kinds: Sequence[CotangentKind] | None = None,
    absent: frozenset[int] = frozenset(),
) -> Backward:
    """Return the backward of a loop that is inside of another one, where no lanes are."""
    every: list[CotangentKind] = ["zero" if ct is None else "rows" for ct in joint.ct_ys]
    return _backward(joint, forward, kinds or every, 1, lanes_apart=False, absent=absent)


def _summed(backward: Backward) -> int:
    return sum(total.step.size for _, total in backward.totals)


def _reached(roots: Sequence[Node], ends: set[Node]) -> set[Node]:
    """Return the nodes that are looked at on the way back from `roots` to `ends`, with these."""
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            if node not in ends:
                stack += node.inputs
    return found


@dataclass
class _Inputs:
    """The inputs of a loop being made, and which nodes of the joint step they stand for."""

    replaced: dict[Node, Node] = field(default_factory=dict)
    carries: list[Input] = field(default_factory=list)
    xs: list[tuple[Input, Source]] = field(default_factory=list)
    consts: list[tuple[Input, Source]] = field(default_factory=list)

    def carry(self, node: Node) -> Input:
        made = Input(dtype=node.dtype, shape=node.shape, role="carry", index=len(self.carries))
        self.carries.append(made)
        self.replaced[node] = made
        return made

    def row(self, node: Node, source: Source) -> None:
        made = Input(dtype=node.dtype, shape=node.shape, role="x", index=len(self.xs))
        self.xs.append((made, source))
        self.replaced[node] = made

    def const(self, node: Node, source: Source, shape: tuple[int, ...] | None = None) -> None:
        whole = node.shape if shape is None else shape
        made = Input(dtype=node.dtype, shape=whole, role="const", index=len(self.consts))
        self.consts.append((made, source))
        self.replaced[node] = (
            made if shape is None else Broadcast(dtype=node.dtype, shape=node.shape, arg=made)
        )

    def loop(
        self, carry_out: Sequence[Node], ys: Sequence[Node], *, signed_zeros: bool = True
    ) -> Loop:
        loop = Loop(
            signed_zeros=signed_zeros,
            carry=tuple(self.carries),
            xs=tuple(x for x, _ in self.xs),
            consts=tuple(c for c, _ in self.consts),
            carry_out=tuple(carry_out),
            ys=tuple(ys),
        )
        verify(loop)
        return loop


def _backward(
    joint: Joint,
    forward: Forward,
    kinds: Sequence[CotangentKind],
    threads: int,
    *,
    lanes_apart: bool,
    absent: frozenset[int] = frozenset(),
) -> Backward:
    inputs = _Inputs()
    carried = [i for i, active in enumerate(joint.active) if active and i not in absent]
    zeros = _absent(joint, kinds, absent)
    wanted: list[tuple[str, int, Node]] = []
    for i in carried:
        gradient = joint.ct_carry[i]
        wanted.append(("carry", i, zeros_like(joint.carry[i]) if gradient is None else gradient))
    wanted += [("x", i, g) for i, g in enumerate(joint.ct_xs) if g is not None]
    wanted += [("argument", i, g) for i, g in enumerate(joint.ct_consts) if g is not None]
    roots, _ = without([g for _, _, g in wanted], zeros)
    for i in carried:
        inputs.carry(joint.ct_new[i] or joint.carry[i])
        inputs.replaced.pop(joint.carry[i], None)
    _read_rows(joint, forward, kinds, roots, inputs, zeros)
    roots = substitute(roots, inputs.replaced)
    found = [(what, i, root) for (what, i, _), root in zip(wanted, roots, strict=True)]
    totals = [
        (i, total)
        for what, i, root in found
        if what == "argument" and not is_zero(root)
        for total in running_sums(root, lanes_apart=lanes_apart)
    ]
    new = [root for what, _, root in found if what == "carry"]
    new += [sum_of([inputs.carry(total.step), total.step]) for _, total in totals]
    rows = [sum_of_lanes(root) for what, _, root in found if what == "x"]
    loop = inputs.loop(new, rows, signed_zeros=False)
    return Backward(
        loop,
        make_plan(loop, threads=threads),
        tuple(source for _, source in inputs.xs),
        tuple(source for _, source in inputs.consts),
        tuple(carried),
        tuple(i for what, i, _ in found if what == "x"),
        tuple(totals),
    )


def _read_rows(
    joint: Joint,
    forward: Forward,
    kinds: Sequence[CotangentKind],
    roots: Sequence[Node],
    inputs: _Inputs,
    zeros: Sequence[Node],
) -> None:
    """Let the backward loop read what it reaches of what there is to read."""
    own = (Input, Constant, Iota)
    there: dict[Node, Source] = {}
    for i in forward.carries:
        if not isinstance(joint.new[i], own):
            there[joint.new[i]] = Source("next", i)
    for j, node in enumerate(forward.saved):
        if not isinstance(node, own):
            there[node] = Source("y", j)
    for before, after in zip(joint.carry, joint.new, strict=True):
        there[before] = Source("init" if before is after else "carry", before.index)
    there |= {x: Source("x", x.index) for x in joint.xs}
    there |= {k: Source("const", k.index) for k in joint.consts}
    there |= {ct: Source("ct", j) for j, ct in enumerate(joint.ct_ys) if ct is not None}
    if zeros:  # what a zero was propagated into is another node, and is not saved
        there = {n: s for n, s in there.items() if n not in set(zeros)}
    reached = _reached(roots, set(there))
    for node, source in there.items():
        if node not in reached:
            continue
        if source.kind in ("const", "init"):
            inputs.const(node, source)
        elif source.kind == "ct" and kinds[source.index] == "number":
            inputs.const(node, source, shape=())
        else:
            inputs.row(node, source)
