"""Make a compiled call eagerly too, and compare: the `compare` option of a test run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import optree

from fullgraph.errors import CaptureError, MismatchError
from fullgraph.testing._compare import assert_same, copied
from fullgraph.testing._dynamo.calls import CallLog, pop, push
from fullgraph.testing._snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_both"]


def call_both(
    func: Callable[..., Any],
    compiled: Callable[[tuple[Any, ...], dict[str, Any]], Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    name: str,
    owner: Callable[..., Any],
) -> Any:
    """Call `func`, put back what it changed, call `compiled`, and return what that returned.

    `owner` is the callable that `func` stands for: what it carries is put back too.

    Raises
    ------
    MismatchError
        If results, or arguments changed in place, differ, or one raises and the other does not.

    Notes
    -----
    A call that is given an iterator is not compared: it can be consumed only once.
    """
    inputs: Any = (args, kwargs)
    if any(isinstance(leaf, Iterator) for leaf in optree.tree_leaves(inputs)):
        return compiled(args, kwargs)  # one call would take what the other needs
    saved = Snapshot(args, kwargs, owner)
    expected = arguments = failure = None
    # the compiled call is the one whose warnings the test sees
    with _plain(), warnings.catch_warnings(record=True):
        try:
            expected = copied(func(*args, **kwargs))
            arguments = copied((args, kwargs))
        except Exception as error:  # noqa: BLE001 - the compiled call must raise alike
            failure = error
        finally:
            saved.restore()
    try:
        result = compiled(args, kwargs)
    except CaptureError:
        raise
    except Exception as error:
        if type(error) is not type(failure):
            raise MismatchError(f"{name}: eager {_did(failure)}, compiled {_did(error)}") from error
        raise
    if failure is not None:
        raise MismatchError(f"{name}: eager {_did(failure)}, compiled returns") from failure
    assert_same(copied(result), expected, what="result", name=name)
    assert_same(copied((args, kwargs)), arguments, what="argument", name=name)
    return result


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Keep tagged functions that are called meanwhile plain."""
    bystander = CallLog()
    push(bystander)
    try:
        yield
    finally:
        pop(bystander)


def _did(error: BaseException | None) -> str:
    return "returns" if error is None else f"raises {type(error).__name__}: {error}"
