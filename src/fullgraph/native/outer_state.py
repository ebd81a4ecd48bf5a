"""Whether a body changes Python state outside of it, while Dynamo is capturing it.

Dynamo allows that in a function: it replays the changes after the captured graph. In the body of a
loop they would happen once for all steps, so they are refused. Dynamo's record of them is private;
on a torch where it cannot be read nothing is reported, and a changed list or attribute then shows
the change of one step.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["changes_outer_state"]


def changes_outer_state() -> bool:
    """Return whether the body being captured in this thread changes outer state."""
    try:
        translator: Any = torch._dynamo.symbolic_convert.InstructionTranslator.current_tx()  # noqa: SLF001
        effects = translator.output.side_effects
        items = list(effects.id_to_variable.values())
        return any(_is_old(item) and effects.is_modified(item) for item in items)
    except AttributeError:
        return False


def _is_old(item: Any) -> bool:
    """Whether a value was there before the capture.

    The stack of function modes is, but a ``with`` block leaves it as it was.
    """
    if type(item).__name__ == "TorchFunctionModeStackVariable":
        return False
    return not type(item.mutation_type).__name__.endswith("New")
