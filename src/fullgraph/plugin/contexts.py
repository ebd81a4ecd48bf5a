"""Open patches follow the mode of the running test, also where a fixture outlives it."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Following", "Switchboard"]


class Switchboard:
    """The mode of the running test, and the open contexts that depend on it."""

    def __init__(self) -> None:
        self.mode: str | None = None
        self._open: list[Following] = []

    def follow(self, make: Callable[[str | None], AbstractContextManager[None]]) -> Following:
        """Return a context that is `make(mode)` for the mode of whichever test runs in it."""
        return Following(self, make)

    @property
    def active(self) -> bool:
        """Whether any context is open."""
        return bool(self._open)

    def switch(self, mode: str | None) -> None:
        """Change the mode; contexts of fixtures of a wider scope are left and entered again."""
        if mode == self.mode:
            return
        self.mode = mode
        for context in reversed(self._open):
            context.leave()
        for context in self._open:
            context.enter()

    def opened(self, context: Following) -> None:
        """Add an open context."""
        self._open.append(context)

    def closed(self, context: Following) -> None:
        """Forget a context that has ended, the innermost where it is open twice."""
        last = max(i for i, known in enumerate(self._open) if known is context)
        del self._open[last]


class Following(AbstractContextManager[None]):
    """A context that is made anew when the mode changes."""

    def __init__(
        self, board: Switchboard, make: Callable[[str | None], AbstractContextManager[None]]
    ) -> None:
        self._board, self._make = board, make
        self._entered: list[ExitStack] = []

    def enter(self) -> None:
        """Enter it in the mode of now."""
        stack = ExitStack()
        stack.enter_context(self._make(self._board.mode))
        self._entered.append(stack)

    def leave(self) -> None:
        """Leave it."""
        self._entered.pop().close()

    def __enter__(self) -> None:
        self.enter()
        self._board.opened(self)

    def __exit__(self, *_: object) -> None:
        self._board.closed(self)
        self.leave()
