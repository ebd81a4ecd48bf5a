"""Refusals of bodies: what, where in the user's code, and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fullgraph.errors import UnsupportedBodyError

if TYPE_CHECKING:
    import torch

__all__ = ["INSTEAD_OF_NUMBER", "READ_AS_NUMBER", "origin_of", "refusal", "user_line"]

READ_AS_NUMBER: Final = "a tensor is read as a Python number"
INSTEAD_OF_NUMBER: Final = (
    "Keep it a 0-d tensor, which may also be an index (a[i]); for a slice that it bounds, index "
    "with positions: a[i + torch.arange(n)]"
)

_HERE: Final = str(Path(__file__).parent)


def refusal(what: str, origin: str, instead: str) -> UnsupportedBodyError:
    """Return the error for something the compiler cannot express."""
    at = f" at {origin}" if origin else ""
    return UnsupportedBodyError(
        f"the body cannot become a native loop: {what}{at}. {instead}.", what, origin
    )


def origin_of(node: torch.fx.Node) -> str:
    """Return the user's line behind a node, as ``file:line: code``."""
    return user_line(node.meta.get("stack_trace") or "")


def user_line(trace: str) -> str:
    """Return the deepest line of a printed stack that is not of this package's compiler."""
    found = re.findall(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)', trace)
    lines = [f"{p}:{n}: {code.strip()}" for p, n, code in found if not p.startswith(_HERE)]
    return lines[-1] if lines else ""
