"""Run an FX graph node by node, with everything that can be prepared prepared.

Not by the code that FX prints, since for ``(-1) ** t`` it prints ``-1 ** t``, which is another
number (torch 2.13 to 2.15); and not by `torch.fx.Interpreter`, which takes 10 us a node. Here it is
under 1 us: arguments are looked up in a list of slots, and a value is dropped after its last use.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from fullgraph.testing._dynamo.breaks import Location, parse_stack, user_stack
from fullgraph.testing._dynamo.calls import current

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def program(graph: Any, _example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Return a function that runs the graph module `graph`; any number of threads may call it."""
    nodes = list(graph.graph.nodes)
    slots = {node: index for index, node in enumerate(nodes)}
    last_use = {}
    for node in nodes:
        for used in node.all_input_nodes:
            last_use[used] = node
    inputs: list[int] = []
    steps: list[tuple[int, Callable[[list[Any]], Any], tuple[int, ...]]] = []
    result: Callable[[list[Any]], Any] = lambda _values: None  # noqa: E731
    for node in nodes:
        if node.op == "placeholder":
            inputs.append(slots[node])
        elif node.op == "output":
            result = _fetcher(node.args[0], slots)
        else:
            dead = tuple(slots[used] for used in node.all_input_nodes if last_use[used] is node)
            steps.append((slots[node], _step(graph, node, slots), dead))
    size = len(nodes)

    def run(*arguments: Any) -> Any:
        values: list[Any] = [None] * size
        for slot, argument in zip(inputs, arguments, strict=True):
            values[slot] = argument
        del arguments
        try:
            for slot, step, dead in steps:
                values[slot] = step(values)
                for used in dead:
                    values[used] = None
        except Exception:
            if (log := current()) is not None:
                log.graph_line = _user_line(nodes[slot])
            raise
        return result(values)

    return run


def _user_line(node: Any) -> Location | None:
    """Return the innermost line of the user's that led to a node."""
    stack = parse_stack(node.stack_trace or "")
    own = user_stack(stack) or stack
    return own[-1] if own else None


def _step(graph: Any, node: Any, slots: dict[Any, int]) -> Callable[[list[Any]], Any]:
    """Return what computes a node's value from the values of the others."""
    if node.op == "get_attr":
        read = operator.attrgetter(node.target)
        return lambda _values: read(graph)
    if node.op == "call_method":
        name = node.target
        return _call(lambda self, *args, **kw: getattr(self, name)(*args, **kw), node, slots)
    function = node.target if node.op == "call_function" else graph.get_submodule(node.target)
    return _call(function, node, slots)


def _call(
    function: Callable[..., Any], node: Any, slots: dict[Any, int]
) -> Callable[[list[Any]], Any]:
    fetch_args = _fetcher(tuple(node.args), slots)
    if not node.kwargs:
        return lambda values: function(*fetch_args(values))
    fetch_kwargs = _fetcher(dict(node.kwargs), slots)
    return lambda values: function(*fetch_args(values), **fetch_kwargs(values))


def _fetcher(argument: Any, slots: dict[Any, int]) -> Callable[[list[Any]], Any]:
    """Return what gives a node's argument, in which nodes stand for their values."""
    if _is_node(argument):
        slot = slots[argument]
        return lambda values: values[slot]
    if isinstance(argument, slice):
        parts = _fetcher((argument.start, argument.stop, argument.step), slots)
        return lambda values: slice(*parts(values))
    if isinstance(argument, dict):
        items = [(key, _fetcher(value, slots)) for key, value in argument.items()]
        return lambda values: {key: fetch(values) for key, fetch in items}
    if isinstance(argument, tuple | list):
        fetchers = [_fetcher(item, slots) for item in argument]
        make = _maker(type(argument))
        return lambda values: make([fetch(values) for fetch in fetchers])
    return lambda _values: argument


def _maker(kind: type) -> Callable[[list[Any]], Any]:
    if hasattr(kind, "_make"):  # a named tuple
        return kind._make  # type: ignore[no-any-return]
    return tuple if issubclass(kind, tuple) else list


def _is_node(argument: Any) -> bool:
    from torch.fx import Node

    return isinstance(argument, Node)
