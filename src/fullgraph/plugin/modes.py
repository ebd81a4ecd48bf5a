"""Collection: one test for each mode that its backend takes, and the markers about modes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from fullgraph.plugin.namespaces import UNKNOWN, backend_of_item, namespace_fixture
from fullgraph.plugin.options import MODES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MODE", "MODE_PROPERTY", "MaybeMode", "expand", "mode_of", "taken_by"]

MODE_PROPERTY = "fullgraph_mode"
"""Key of a test's user property, which its reports carry to the summary and to JUnit files."""

_TAKEN = {"torch": ("eager", "compile", "fullgraph"), "jax": ("eager", "jit")}


@dataclasses.dataclass(frozen=True)
class MaybeMode:
    """The mode of a test, and what has to be decided when its fixture has yielded."""

    mode: str
    fixture: str
    known: bool = True
    """Whether the backend was known at collection."""
    first: bool = True
    """Whether this is the first of the test's modes: the one that runs where there are none."""


MODE = pytest.StashKey[MaybeMode]()


def mode_of(item: pytest.Item) -> str | None:
    """Return the mode that a test was made for."""
    chosen = item.stash.get(MODE, None)
    return chosen.mode if chosen is not None else None


def taken_by(backend: str, modes: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of `modes` that a backend has; of an unknown one, all."""
    if backend == UNKNOWN:
        return modes
    return tuple(mode for mode in modes if mode in _TAKEN.get(backend, ()))


def expand(
    item: pytest.Function, modes: tuple[str, ...], fixtures: tuple[str, ...]
) -> Iterator[pytest.Function]:
    """Give the tests that stand for `item`: itself, if its backend has none of the modes."""
    marks = list(_mode_marks(item))
    fixture = namespace_fixture(item, fixtures)
    if fixture is None:
        yield item
        return
    backend = backend_of_item(item, fixture)
    chosen = taken_by(backend, modes)
    if not chosen:
        yield item
        return
    for number, mode in enumerate(chosen):
        test = _in_mode(item, mode)
        test.stash[MODE] = MaybeMode(mode, fixture, backend != UNKNOWN, number == 0)
        test.user_properties.append((MODE_PROPERTY, mode))
        for kind, of_mode, kwargs in marks:
            if of_mode == mode:
                test.add_marker(getattr(pytest.mark, kind)(**kwargs))
        yield test


def _in_mode(item: pytest.Function, mode: str) -> pytest.Function:
    """Return a copy of a collected test with the mode as the last part of its id."""
    before: Any = getattr(item, "callspec", None)
    if before is None:
        before = _new_callspec()
    # `parametrize` offers no way to add an id to some parameter sets only; the field is the one
    # that it fills, in pytest 8 and 9
    callspec = dataclasses.replace(before, _idlist=[*before._idlist, mode])  # noqa: SLF001
    return type(item).from_parent(
        item.parent,
        name=f"{item.originalname}[{callspec.id}]",
        callspec=callspec,
        fixtureinfo=item._fixtureinfo,  # noqa: SLF001
        keywords={callspec.id: True, mode: True},
        originalname=item.originalname,
    )


def _new_callspec() -> Any:
    from _pytest import python

    kind = getattr(python, "CallSpec", None) or python.CallSpec2  # the name until pytest 9.1
    return kind()


_MARKERS = {"skip_xp_mode": ("skip", {"reason"}), "xfail_xp_mode": ("xfail", {"reason", "strict"})}


def _mode_marks(item: pytest.Function) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give the markers about modes as ``skip`` or ``xfail``, the mode, and its arguments."""
    for name, (kind, accepted) in _MARKERS.items():
        for mark in item.iter_markers(name):
            problem = _problem(mark, accepted)
            if problem:
                raise pytest.Collector.CollectError(
                    f"{item.nodeid}: malformed marker {name}: {problem}; write "
                    f"{name}('compile', {', '.join(f'{word}=...' for word in sorted(accepted))})"
                )
            mode = str(mark.args[0])
            kwargs = dict(mark.kwargs)
            reason = kwargs.get("reason")
            kwargs["reason"] = f"mode {mode}: {reason}" if reason else f"mode {mode}"
            yield kind, mode, kwargs


def _problem(mark: pytest.Mark, accepted: set[str]) -> str | None:
    if len(mark.args) != 1:
        return f"it takes one mode, not {len(mark.args)} positional arguments"
    if not isinstance(mark.args[0], str) or str(mark.args[0]) not in MODES:
        return f"{mark.args[0]!r} is not a mode; these are {', '.join(MODES)}"
    if unknown := sorted(set(mark.kwargs) - accepted):
        return f"unknown argument {', '.join(unknown)}"
    if not isinstance(mark.kwargs.get("reason", ""), str):
        return f"reason={mark.kwargs['reason']!r} is not a text"
    if not isinstance(mark.kwargs.get("strict", False), bool):
        return f"strict={mark.kwargs['strict']!r} is not True or False"
    return None
