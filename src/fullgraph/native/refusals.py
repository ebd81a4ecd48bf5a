"""Refusals of bodies: what, where in the user's code, and what to write instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fullgraph.errors import UnsupportedBodyError

if TYPE_CHECKING:
    import torch

__all__ = ["origin_of", "refusal"]


def refusal(what: str, origin: str, instead: str) -> UnsupportedBodyError:
    """Return the error for something the compiler cannot express."""
    at = f" at {origin}" if origin else ""
    return UnsupportedBodyError(
        f"the body cannot become a native loop: {what}{at}. {instead}.", what, origin
    )


def origin_of(node: torch.fx.Node) -> str:
    """Return the user's line behind a node, as ``file:line: code``."""
    trace = node.meta.get("stack_trace") or ""
    found = re.findall(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)', trace)
    if not found:
        return ""
    path, line, code = found[-1]
    return f"{path}:{line}: {code.strip()}"
