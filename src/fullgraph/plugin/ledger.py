"""What a run has recorded, in one process or merged from several: plain data with a JSON form."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fullgraph.testing._records import Record
from fullgraph.testing._tally import Recorder

if TYPE_CHECKING:
    from fullgraph.testing._modes import Budget

__all__ = ["Ledger", "RunRecorder"]


@dataclass
class Ledger:
    """The record of a run, and what the plugin knows beside it."""

    record: Record = field(default_factory=Record)
    tagged: set[str] = field(default_factory=set)
    """Tagged functions that any test in a compiled mode could have called."""
    budgets: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """Graph breaks and recompiles that are allowed, of tagged functions that have a budget."""
    bypassed: dict[str, dict[str, str]] = field(default_factory=dict)
    """Function to tests that ran it only plainly, each with ``file:line`` of the call."""

    def add_budget(self, name: str, budget: Budget) -> None:
        """Note the budget of a tagged function."""
        self.tagged.add(name)
        if budget.graph_breaks is not None or budget.recompiles is not None:
            self.budgets[name] = (budget.graph_breaks, budget.recompiles)

    def merge(self, other: Ledger) -> None:
        """Add what another process has recorded."""
        self.record = self.record.merge(other.record)
        self.tagged |= other.tagged
        self.budgets.update(other.budgets)
        for name, tests in other.bypassed.items():
            self.bypassed.setdefault(name, {}).update(tests)

    def to_json(self) -> str:
        """Return it as text; `from_json` is the inverse."""
        return json.dumps(
            {
                "record": self.record.to_json(),
                "tagged": sorted(self.tagged),
                "budgets": self.budgets,
                "bypassed": self.bypassed,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return what `to_json` wrote."""
        data: dict[str, Any] = json.loads(text)
        return cls(
            record=Record.from_json(data["record"]),
            tagged=set(data["tagged"]),
            budgets={name: (pair[0], pair[1]) for name, pair in data["budgets"].items()},
            bypassed=data["bypassed"],
        )


class RunRecorder(Recorder):
    """Records a whole run; functions that one test does not call are no news, and left out."""

    def add_unreached(self, what: str) -> None:
        """Ignore it: the ledger says what no test at all has reached."""
