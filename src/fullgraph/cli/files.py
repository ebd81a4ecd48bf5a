"""Record files: read several, and make one of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.report.measures import torch_series
from fullgraph.testing import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RecordFile", "merged", "read", "write"]


@dataclasses.dataclass(frozen=True, slots=True)
class RecordFile:
    """A record, and what the plugin wrote beside it of its run."""

    record: Record
    run: dict[str, Any]


def read(path: str | Path) -> RecordFile:
    """Read a file of ``--fg-report`` or of `Record.to_json`.

    Raises
    ------
    UsageError
        If it cannot be read, or is no record.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    try:
        record = Record.from_json(text)
    except (UsageError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None
    run = json.loads(text).get("run", {})
    return RecordFile(record, run if isinstance(run, dict) else {})


def merged(files: Iterable[RecordFile]) -> RecordFile:
    """Return one record of all; they must be of one torch series.

    Raises
    ------
    UsageError
        If they are not.
    """
    total = Record()
    run: dict[str, Any] = {}
    for file in files:
        one, two = total.torch, file.record.torch
        if one and two and torch_series(one) != torch_series(two):
            raise UsageError(
                f"records of torch {one} and torch {two} cannot be merged: render them one by one, "
                "or compare them with --compare"
            )
        total = total.merge(file.record)
        run = {**file.run, **run}
    return RecordFile(total, run)


def write(path: Path, file: RecordFile) -> None:
    """Write a record file."""
    data = json.loads(file.record.to_json())
    if file.run:
        data["run"] = file.run
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
