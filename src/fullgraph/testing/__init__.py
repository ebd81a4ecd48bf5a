"""Testing under torch.compile: what was captured, what broke, what recompiled, where and why."""

from __future__ import annotations

from fullgraph.testing._compiled import CompiledFunction, compiled
from fullgraph.testing._modes import Budget, Mode
from fullgraph.testing._records import BreakSite, FunctionRecord, Outcome, Record, Specialisation

__all__ = [
    "BreakSite",
    "Budget",
    "CompiledFunction",
    "FunctionRecord",
    "Mode",
    "Outcome",
    "Record",
    "Specialisation",
    "compiled",
]
