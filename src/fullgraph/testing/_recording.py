"""`record`: everything that Dynamo did inside a block, the user's own torch.compile included."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from fullgraph.testing._tally import Recorder, close_recorder, open_recorder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fullgraph.testing._records import Record

__all__ = ["Recording", "record"]


class Recording:
    """What an open or closed `record` block has seen."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @property
    def record(self) -> Record:
        """The record so far."""
        return self._recorder.record()


@contextmanager
def record() -> Iterator[Recording]:
    """Record everything that Dynamo does inside the block, in any thread.

    Yields
    ------
    Recording
        Its ``record`` attribute is the `Record` so far, of functions compiled by `compiled`,
        `check_compiled` and `patch_lazy_xp_functions`, and of functions that code inside the block
        compiles with ``torch.compile`` itself (their backend is recorded as "user").

    Raises
    ------
    MissingBackendError
        If torch is not installed or too old.

    Notes
    -----
    A ``torch.compile`` of the user's own that was compiled before the block is seen only where it
    compiles anew.

    Examples
    --------
    >>> import torch
    >>> def halve(x):
    ...     return x / 2
    >>> model = torch.compile(halve, backend="eager")
    >>> with record() as recording:
    ...     _ = model(torch.ones(3))
    >>> recording.record["halve"].graphs
    1
    >>> recording.record.breaks_in("torch")
    []
    """
    from fullgraph.testing._ambient import AmbientLog
    from fullgraph.testing._dynamo.calls import close_block, open_block
    from fullgraph.testing._dynamo.versions import torch_release
    from fullgraph.testing._dynamo.watch import watching

    torch_release()
    recorder = Recorder()
    log = AmbientLog()
    open_recorder(recorder)
    open_block(log)
    try:
        with watching(log, "?:record"):
            yield Recording(recorder)
    finally:
        close_block(log)
        close_recorder(recorder)
