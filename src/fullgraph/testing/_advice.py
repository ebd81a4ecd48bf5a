"""What to write instead, by the reason that Dynamo gives for a break."""

from __future__ import annotations

import re

__all__ = ["advice"]

_ADVICE = (
    (
        r"[Dd]ata-dependent branching|data-dependent (?:operator|jump)|assertion on a tensor",
        "a Python `if` or `while` on a tensor's value: select with `xp.where`, or write the branch "
        "with `fullgraph.cond` and the loop with `fullgraph.while_loop`",
    ),
    (
        r"Tensor\.item\(\)|\.item\(\)|float\(|__bool__|__int__|scalar",
        "a tensor is made a Python number: keep it a 0-d tensor (`v / v.max()`, not "
        "`v / float(v.max())`)",
    ),
    (
        r"Dynamic shape operator|dynamic output shape|nonzero|masked_select|unique",
        "the shape of the result depends on values: use `xp.where` with a fixed shape",
    ),
    (
        r"warnings?\.warn|`warn`",
        "a warning is emitted: do it in the caller, or only `if not torch.compiler.is_compiling()`",
    ),
    (
        r"builtin (?:operator )?`?print|logging",
        "output is written: return the value and write it outside of the compiled function",
    ),
    (
        r"Attempt to trace generator",
        "a generator function: compile the function that consumes it",
    ),
    (
        r"do not support aliasing",
        "a loop or branch closes over two arrays that share memory (a view and its base): copy one "
        "of them before it",
    ),
    (
        r"numpy function|NumPy",
        "NumPy is called on the way: use the array namespace of the input (`array_namespace(x)`)",
    ),
    (
        r"recompile limit",
        "raise recompile_limit, or make what varies a tensor instead of a Python value",
    ),
    (
        r"Observed exception|raise",
        "an exception is raised in traced code: check the arguments before the compiled part",
    ),
)


# What a line that branches on a tensor begins with tells which of the two it is.
_BY_KEYWORD = (
    (r"while\b", "a Python `while` on a tensor's value: write it with `fullgraph.while_loop`"),
    (
        r"(?:el)?if\b|.*\bif\b.*\belse\b",
        "a Python `if` on a tensor's value: select with `xp.where(condition, a, b)`, or branch "
        "with `fullgraph.cond`",
    ),
    (r"assert\b", "an assert on a tensor's value: check it outside of the compiled function"),
)


def advice(reason: str, explanation: str = "", source: str = "") -> str | None:
    """Return what to do about a break, or None where nothing better is known than torch's hint.

    Parameters
    ----------
    reason, explanation : str
        What Dynamo says.
    source : str
        The line of code, where it is known.
    """
    text = f"{reason}\n{explanation}"
    pattern, what = next((row for row in _ADVICE if re.search(row[0], text)), (None, None))
    if pattern == _ADVICE[0][0]:
        return next((told for key, told in _BY_KEYWORD if re.match(key, source)), what)
    return what
