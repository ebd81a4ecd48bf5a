"""Which of Dynamo's guards on a captured step can fail."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["needed_guards"]

# Guard sources inside the code that captures: names of the captured step's module, and modules
# that it calls. Everything a user's body reaches has a source that starts elsewhere.
_OWN_MODULES: Final = (
    "fullgraph_dot_loops_dot_",
    "fullgraph_dot_native_dot_",
    "fullgraph_dot_torch_loop_dot_",
    "optree_dot_",
    "torch_dot__dynamo_dot_polyfills",
)
_OWN_SOURCE: Final = re.compile(
    r"(?:list\(dict\.keys\(|dict\()*G\['(?:"
    r"(?:mark|skeleton_of|rebuild|collect|step_of|as_tensor|truth_of|CarryChangedError"
    r"|captured|TensorIndices)'"
    rf"|__import_(?:{'|'.join(_OWN_MODULES)})(?!.*\.torch\.(?!ops\b)))"
)
_STATE_GUARDS: Final = ("GLOBAL_STATE", "GRAD_MODE")


def needed_guards(
    guards: Sequence[Any], fixed: Sequence[str], *, watch_state: bool = True
) -> list[bool]:
    """Say which guards can fail: all but those on the code that does the capturing.

    Dynamo also watches this package's own functions and optree, through which it has traced.

    Parameters
    ----------
    guards : sequence of guards
        Each with ``name`` and ``guard_type``, as Dynamo hands them to a filter.
    fixed : sequence of str
        Parts of sources that never change.
    watch_state : bool
        Whether torch's global state is guarded.
    """
    return [
        not _OWN_SOURCE.match(guard.name)
        and not any(part in guard.name for part in fixed)
        and (watch_state or guard.guard_type not in _STATE_GUARDS)
        for guard in guards
    ]
