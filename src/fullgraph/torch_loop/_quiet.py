"""Two warnings of Dynamo that say nothing about the user's code, silenced while a loop is compiled.

Dynamo looks at ``.grad`` of every input tensor, which warns for one that is no leaf (the ys of
another scan); and it warns about each function with an ``lru_cache`` that a body calls, such as the
helpers of array-api-compat. Where warnings are errors they would end the capture.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["quiet_compilation"]

_MESSAGES = (
    r"The \.grad attribute of a Tensor that is not a leaf Tensor is being accessed",
    r"Dynamo detected a call to a `functools\.lru_cache`",
)
# Warning filters belong to the process: two threads that change and restore them must take turns.
_TURN = threading.RLock()


@contextlib.contextmanager
def quiet_compilation() -> Iterator[None]:
    """Silence the two warnings for the length of a block."""
    with _TURN, warnings.catch_warnings():
        for message in _MESSAGES:
            warnings.filterwarnings("ignore", message=message, category=UserWarning)
        yield
