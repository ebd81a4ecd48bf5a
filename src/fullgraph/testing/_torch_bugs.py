"""Bugs of torch that are torch's fault, by release: what they look like and where they are fixed.

The one place to add one. An entry needs a test in ``tests/unit/testing/test_torch_bugs.py`` that
shows the bug on the releases it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fullgraph.testing._dynamo.breaks import Break

__all__ = ["KNOWN_BUGS", "TorchBug", "known_bug"]


@dataclass(frozen=True, slots=True)
class TorchBug:
    """A bug, recognised by the break or the failure that it leads to."""

    name: str
    """Short and stable: it appears in records."""
    what: str
    pattern: str
    """Regular expression found in the reason, or in the explanation that follows it."""
    since: tuple[int, int] = (0, 0)
    until: tuple[int, int] = (99, 0)
    """First release without the bug."""

    def matches(self, event: Break, release: tuple[int, int]) -> bool:
        """Whether `event`, reported by this release of torch, is this bug."""
        text = f"{event.reason}\n{event.explanation}"
        return self.since <= release < self.until and re.search(self.pattern, text) is not None


KNOWN_BUGS = (
    TorchBug(
        "slice-attribute-error",
        "`try: a_slice.dtype / except AttributeError` crashes the tracer; every `xpx.at(x)[a:b]`",
        r"InternalTorchDynamoError: AttributeError: 'slice' object has no attribute",
        since=(2, 14),
        until=(2, 15),
    ),
    TorchBug(
        "slice-attribute-type",
        "the type of a missing attribute of a slice cannot be traced; every `xpx.at(x)[a:b]`",
        r"GetAttrVariable\(SliceVariable\(\), \w+\) has no type",
        since=(2, 15),
    ),
    TorchBug(
        "parameter-constructor",
        "`torch.nn.Parameter(...)` inside a compiled function is not traced",
        r"Attempted to use `torch\.nn\.Parameter\(\)` constructor",
    ),
    TorchBug(
        "numpy-under-function-mode",
        "tracing of NumPy calls fails while a torch function mode (`with torch.device(...)`) is on",
        r"RuntimeError when making fake tensor call\n.*'ndarray' object has no attribute",
        until=(2, 15),
    ),
)


def known_bug(event: Break, release: tuple[int, int]) -> TorchBug | None:
    """Return the known bug that `event` is, if any."""
    return next((bug for bug in KNOWN_BUGS if bug.matches(event, release)), None)
