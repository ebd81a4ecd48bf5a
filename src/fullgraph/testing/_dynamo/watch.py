"""Choose how calls are watched: by the frame hook on known releases, else by public API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.testing._dynamo.frames import FrameWatcher
from fullgraph.testing._dynamo.public import PublicWatcher
from fullgraph.testing._dynamo.versions import internals_known

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from fullgraph.testing._dynamo.calls import CallLog

_frames = FrameWatcher()


def watching(log: CallLog, name: str, inputs: Any = None) -> AbstractContextManager[None]:
    """Return the context in which a call, or a block, runs and `log` is told what happens."""
    if internals_known():
        return _frames
    return PublicWatcher(log, name, inputs)
