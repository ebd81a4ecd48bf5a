"""`check_compiled`: one call, eager and compiled, compared and held to a budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fullgraph.errors import MismatchError, NothingCompiledError, UsageError
from fullgraph.testing._compiled import make_compiled
from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._modes import Budget, Mode, parse_mode
from fullgraph.testing._names import display_name
from fullgraph.testing._records import FunctionRecord, Outcome, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["check_compiled"]

_NOTHING = {
    Outcome.NO_TENSOR: "no tensor is among its inputs",
    Outcome.FRAME_SKIPPED: "Dynamo gave the function up",
    Outcome.OVER_LIMIT: "the recompile limit was reached",
    Outcome.TORCH_BUG: "a known bug of torch stopped the compiler",
    Outcome.FAILED: "compiling raised",
}


def check_compiled(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    mode: Mode | str = Mode.FULLGRAPH,
    backend: str = "trace",
    graph_breaks: bool | int = 0,
    recompiles: bool | int | None = None,
    compare: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    grad: bool = False,
    dynamic: bool | None = False,
    config: Mapping[str, Any] | None = None,
) -> Record:
    """Call `func` eagerly and compiled, and prove that the second was captured and is right.

    Parameters
    ----------
    func : callable
        Any function, method or module of PyTorch code.
    args, kwargs : sequence, mapping or None
        What to call it with. Tensors, arrays, lists, dicts and attributes of objects that the call
        changes are put back between the two calls, and so are random number generators.
    mode : {"fullgraph", "compile"}
        Whether the call must be one whole graph, or may be split.
    backend : {"trace", "aot_eager", "inductor"}
        What runs the graphs, see `compiled`.
    graph_breaks : bool or int, optional
        How many break sites are allowed (True: any number). Default: none.
    recompiles : bool or int, optional
        How many recompiles are allowed. Default: any number.
    compare : bool, optional
        Whether to compare results, and what was changed in place (arguments, a module's parameters
        and buffers, the object of a method): tree, dtype, shape, device and value. Objects that
        have neither attributes nor an equality are not compared.
    rtol, atol : float, optional
        Tolerances of floating tensors. Default: by dtype, as ``torch.testing.assert_close``.
    grad : bool, optional
        Whether to compare first gradients too: of the sum of all floating results (and of real and
        imaginary parts of complex ones), with respect to every floating tensor among the
        arguments, and a module's parameters.
    dynamic, config : bool or None, mapping or None
        As in `compiled`.

    Returns
    -------
    Record
        What happened in the compiled call.

    Raises
    ------
    GraphBreakError, FullGraphError
        If the call breaks the graph more often than allowed.
    RecompileError
        If it was compiled again more often than allowed.
    NothingCompiledError
        If no graph ran, and not because there was no tensor operation to capture.
    MismatchError
        If compiled and eager differ; also if one raises and the other does not.
    UsageError
        If an argument is not one that is accepted, one of `args` is a one-shot iterator, or `func`
        returns one (a generator function apart, which is run to its end).

    Notes
    -----
    If eager code raises, compiled code must raise an exception of the same type, and the record
    says "raised".

    Examples
    --------
    >>> import torch
    >>> record = check_compiled(torch.nn.functional.gelu, (torch.ones(3),))
    >>> record.graphs, record.breaks
    (1, ())
    """
    __tracebackhide__ = True
    parsed = parse_mode(mode, backend="torch")
    if parsed is Mode.EAGER:
        raise UsageError(
            "check_compiled compares with eager already: mode is 'compile' or 'fullgraph'"
        )
    if not isinstance(args, tuple | list):
        raise UsageError(
            f"args is a {type(args).__name__}: give the arguments as a tuple or list, "
            "check_compiled(func, (x,)) for a single one"
        )
    tolerances: dict[str, Any] = {"rtol": rtol, "atol": atol}
    for option, value in tolerances.items():
        if value is not None and not (isinstance(value, int | float) and value >= 0):
            raise UsageError(f"{option}={value!r} is not accepted: give a number >= 0, or None")
    torch_release()
    from fullgraph.testing._both import Both

    budget = Budget.parse(graph_breaks, recompiles, ("graph_breaks", "recompiles"))
    call = make_compiled(
        func,
        parsed,
        budget,
        backend=backend,
        dynamic=dynamic,
        config=config,
        errors_as_compiled=True,
    )
    _refuse_iterators((tuple(args), dict(kwargs or {})))
    both = Both(func, tuple(args), dict(kwargs or {}), grad=grad)
    expected = both.eager()
    actual = both.compiled(call)
    record = call.record
    name = display_name(func)
    if type(actual.error) is not type(expected.error):
        raise MismatchError(
            f"{name}: eager {_said(expected.error)}, compiled {_said(actual.error)}"
        ) from (actual.error or expected.error)
    if expected.error is None:
        _demand_graph(name, record)
        if compare:
            both.compare(actual, expected, name=name, rtol=rtol, atol=atol)
    return Record((record,), (), _torch_version())


def _refuse_iterators(tree: Any) -> None:
    import optree

    paths, leaves, _ = optree.tree_flatten_with_path(tree, none_is_leaf=True)
    for path, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, Iterator) and iter(leaf) is leaf:
            raise UsageError(
                f"argument{''.join(f'[{entry!r}]' for entry in path)} is a {type(leaf).__name__}, "
                "which can be run through only once, and check_compiled calls twice: give a list"
            )


def _said(error: BaseException | None) -> str:
    return "returns" if error is None else f"raises {type(error).__name__}: {error}"


def _demand_graph(name: str, record: FunctionRecord) -> None:
    for outcome, why in _NOTHING.items():
        if record.calls.get(outcome):
            details = [f"{site.where}: {site.reason}" for site in record.breaks]
            details += [reason for reason in record.failures if reason not in str(details)]
            raise NothingCompiledError(
                f"{name} ran without a graph: {why}"
                + "".join(f"\n  {line}" for line in details)
                + "\nCall it with tensors, make it traceable, or drop it from the compiled tests"
            )


def _torch_version() -> str:
    import torch

    return str(torch.__version__)
