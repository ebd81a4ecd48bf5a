"""`compiled`: any PyTorch function through torch.compile, recorded and held to a budget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from fullgraph.errors import UsageError
from fullgraph.testing._dynamo.backends import check_backend
from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._modes import Budget, Mode, parse_mode
from fullgraph.testing._names import is_async
from fullgraph.testing._options import DEFAULT_RECOMPILE_LIMIT
from fullgraph.testing._standin import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fullgraph.testing._records import FunctionRecord
    from fullgraph.testing._torch_call import CompiledCall

__all__ = ["CompiledFunction", "PatchedFunction", "compiled"]


class CompiledFunction(StandIn):
    """A function that runs compiled and keeps a record; made by `compiled`.

    It compares, hashes, binds and is copied as the function that it was made from. Pickled, it
    comes back with an empty record.
    """

    _call: CompiledCall

    def __init__(self, func: Callable[..., Any], call: CompiledCall) -> None:
        super().__init__(func)
        vars(self)["_call"] = call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled."""
        __tracebackhide__ = True
        from torch.compiler import is_dynamo_compiling, is_exporting

        # An outer capture takes the function itself. `is_compiling` would be true in this thread
        # while another one compiles, and the call would run plainly and unseen.
        if is_dynamo_compiling() or is_exporting():
            return self.__wrapped__(*args, **kwargs)
        return self._call(args, kwargs)

    def __reduce__(self) -> str | tuple[Any, ...]:
        name = getattr(self.__wrapped__, "__qualname__", "")
        found: Any = sys.modules.get(str(vars(self)["__module__"]))
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:  # it stands where the function stood: by name, as functions are
            return str(name)
        return CompiledFunction, (self.__wrapped__, self._call)

    @property
    def record(self) -> FunctionRecord:
        """What the calls so far came to."""
        return self._call.record

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"


class PatchedFunction(CompiledFunction):
    """What stands in for a tagged function while it is patched."""


def compiled(
    func: Callable[..., Any],
    *,
    mode: Mode | str = Mode.COMPILE,
    backend: str = "trace",
    recompile_limit: int | None = None,
    dynamic: bool | None = False,
    allow_graph_breaks: bool | int | None = None,
    allow_recompiles: bool | int | None = None,
    config: Mapping[str, Any] | None = None,
) -> CompiledFunction:
    """Return `func` compiled by torch.compile, with a record of every call.

    Parameters
    ----------
    func : callable
        A function, method, ``torch.nn.Module`` or other callable of PyTorch code.
    mode : {"compile", "fullgraph", "eager"}
        Whether graph breaks are possible, see `Mode`.
    backend : {"trace", "aot_eager", "inductor"}
        What runs the graphs: "trace" interprets them, and is the cheapest proof of what was
        captured; "inductor" is what ``torch.compile`` runs by default.
    recompile_limit : int, optional
        How many specialisations of one frame may be compiled; calls beyond are counted as "over the
        limit". Default: 256. torch's own default is 8.
    dynamic : bool or None, optional
        As in ``torch.compile``.
    allow_graph_breaks : bool or int, optional
        How many break sites a call may have before it raises; False or 0: none; True: any number.
        Default: breaks are recorded and never raise.
    allow_recompiles : bool or int, optional
        The same for recompiles, over all calls.
    config : mapping, optional
        Settings of ``torch._dynamo.config`` to trace under, ``{"capture_scalar_outputs": True}``
        say. Default: torch's own, but ``trace_numpy`` off.

    Returns
    -------
    CompiledFunction
        A callable whose ``record`` attribute is the `FunctionRecord` of its calls so far.

    Raises
    ------
    UsageError
        If `func` cannot be called or is async, or `mode`, `backend`, `recompile_limit`, `dynamic`,
        a budget or a setting in `config` is not one that is accepted.
    MissingBackendError
        If torch is not installed or too old.

    Examples
    --------
    >>> import torch
    >>> double = compiled(lambda x: x * 2)
    >>> double(torch.ones(2))
    tensor([2., 2.])
    >>> double.record.graphs, len(double.record.breaks)
    (1, 0)
    """
    return make_compiled(
        func,
        parse_mode(mode, backend="torch"),
        Budget.parse(allow_graph_breaks, allow_recompiles),
        backend=backend,
        recompile_limit=recompile_limit,
        dynamic=dynamic,
        config=config,
    )


def make_compiled(
    func: Callable[..., Any],
    mode: Mode,
    budget: Budget,
    *,
    backend: str,
    dynamic: bool | None,
    config: Mapping[str, Any] | None,
    recompile_limit: int | None = None,
    errors_as_compiled: bool = False,
) -> CompiledFunction:
    """Check the rest of what `compiled` and `check_compiled` take, and make the function."""
    check_backend(backend)
    if not callable(func):
        raise UsageError(f"compiled() takes a callable, and {func!r} is not one")
    if is_async(func):
        raise UsageError(
            f"{func!r} is async: torch.compile does not capture coroutines; compile a function "
            "that it calls"
        )
    if not (dynamic is None or isinstance(dynamic, bool)):  # 1 == True, and is a slip
        raise UsageError(f"dynamic={dynamic!r} is not accepted: give True, False or None")
    limit = DEFAULT_RECOMPILE_LIMIT if recompile_limit is None else recompile_limit
    if type(limit) is not int or limit < 1:
        raise UsageError(f"recompile_limit={recompile_limit!r} is not accepted: give an int >= 1")
    torch_release()
    from fullgraph.testing._torch_call import CompiledCall, Settings

    settings = Settings(
        backend=backend,
        recompile_limit=limit,
        dynamic=dynamic,
        config=config,
    )
    call = CompiledCall(
        func, mode, budget=budget, settings=settings, errors_as_compiled=errors_as_compiled
    )
    return CompiledFunction(func, call)
