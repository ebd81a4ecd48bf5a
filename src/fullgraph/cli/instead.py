"""What to write instead at a break, seen in its source: inside a loop, a branch, a `try`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from fullgraph.testing._advice import advice

if TYPE_CHECKING:
    from fullgraph.testing._records import BreakSite

__all__ = ["instead", "statements_around"]

_KINDS: dict[type[ast.AST], str] = {
    ast.For: "for",
    ast.While: "while",
    ast.If: "if",
    ast.IfExp: "if",
    ast.Try: "try",
    ast.Assert: "assert",
    ast.ListComp: "comprehension",
    ast.SetComp: "comprehension",
    ast.DictComp: "comprehension",
    ast.GeneratorExp: "comprehension",
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

_WHILE = (
    "a `while` that looks at a tensor: `fullgraph.while_loop(condition, step, state)` is one "
    "operator of the graph under torch.compile, a loop in the program under `jax.jit`, and a "
    "Python loop elsewhere"
)


def statements_around(text: str, line: int) -> list[str]:
    """Return the kinds of statement that enclose a line inside its function, innermost first."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return []
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None or last is None or not first <= line <= last:
            continue
        if isinstance(node, _FUNCTIONS):
            found.append((last - first, ""))
        elif type(node) in _KINDS:
            found.append((last - first, _KINDS[type(node)]))
    kinds = []
    for _, kind in sorted(found, key=lambda pair: pair[0]):
        if not kind:
            break
        kinds.append(kind)
    return kinds


def instead(site: BreakSite, text: str) -> list[str]:
    """Return what to write instead, the most fitting first; `text` is the file's source."""
    around = statements_around(text, site.line)
    said = []
    first = around[0] if around else ""
    branching = "ata-dependent" in site.reason
    if first == "while" and branching:
        said.append(_WHILE)
    elif first == "if" and branching:
        said.append(
            "an `if` that looks at a tensor: `xp.where(condition, one, other)` if both sides may "
            "be computed, else `fullgraph.cond(condition, one_function, other_function, *operands)`"
        )
    elif what := advice(site.reason, site.explanation):
        said.append(what)
    if "for" in around or "comprehension" in around:
        said.append(
            "a break inside a Python loop gives the whole function up: a loop with a fixed number "
            "of steps is `fullgraph.fori_loop` or `fullgraph.scan`, one that stops on a tensor's "
            "value is `fullgraph.while_loop(..., max_steps=n)`"
        )
    elif "while" in around and not (first == "while" and branching):
        said.append(_WHILE)
    elif "try" in around:
        said.append("a break inside `try` gives the whole function up: move the line out of it")
    return said
