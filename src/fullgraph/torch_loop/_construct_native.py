"""Constructor of the native adapter: arguments first, then platform, torch and compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from fullgraph.errors import UsageError
from fullgraph.torch_loop._construct import import_torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fullgraph.loops import LoopAdapter
    from fullgraph.torch_loop._explain import LoopExplanation

__all__ = ["check_choice", "check_int", "explain_loop", "torch_native_loop_adapter"]


def torch_native_loop_adapter(
    *,
    max_steps: int | None = None,
    max_elements: int | None = None,
    fallback: Literal["raise", "eager"] = "raise",
    threads: int = 1,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopAdapter:
    """Return an adapter that runs a scan or while loop of CPU tensors as one compiled C function.

    Register it for ``array_api_compat.torch`` (`fullgraph.register_loop_adapter`) or use it in a
    block (`fullgraph.use_loop_adapter`). A body is captured once with Dynamo, compiled with the C
    compiler of the system, and kept on disk. A later call checks Dynamo's guards (closures,
    globals, dtypes, shapes) and runs. The number of steps is no part of what is compiled.

    Parameters
    ----------
    max_steps : int, optional
        Longest loop that is taken; by default any. With it a while loop needs `max_steps`, too.
    max_elements : int, optional
        Most elements of one input, carry leaf or stacked output; by default any.
    fallback : {"raise", "eager"}
        What to do with a body that cannot be compiled: raise `UnsupportedBodyError`, or warn once
        for that body (`NativeFallbackWarning`) and run it as plain Python.
    threads : int, default 1
        At most this many threads share the lanes of a large loop.
    vector_math : {"sleef", "libm"}
        Where exp, sin, tanh and the like come from: the vector routines inside torch itself, within
        1 ulp, or the C library, which is slower.

    Returns
    -------
    LoopAdapter
        Its `scan` and `while_loop` keep all rules of `fullgraph.scan` and `fullgraph.while_loop`;
        its `checkpoint` makes bodies whose gradients take less memory, see Notes.

    Raises
    ------
    UsageError
        (a ValueError) for an argument that is not accepted, and for torch older than 2.14.
    MissingBackendError
        (an ImportError) if torch is not installed, or this is not Linux on x86-64.
    CompilerNotFoundError
        If there is no C compiler.

    Notes
    -----
    Taken: plain CPU tensors of float64, float32, int64, int32, int16, int8, uint8 and bool, mixed
    as eager torch mixes them; Python numbers in the carry; any number of steps, zero as well; loops
    inside bodies. Results equal those of the plain loop bit for bit where the body is made of
    ``+ - * /`` (``add(alpha=)``, ``lerp``, ``addcmul`` and ``addcdiv`` excepted, where eager torch
    itself rounds in two ways); elsewhere they differ by rounding. Square roots are correctly
    rounded here, which those of eager torch are not on every machine.

    Refused, with `UnsupportedBodyError` naming operation, shapes and line: randomness, complex
    numbers, data-dependent shapes, and operations without a rule. An integer divided by zero and an
    index outside its tensor raise after the loop. When a body is compiled it also runs once in
    plain Python on the first row.

    Gradients are of first order, with respect to the carry, xs and every tensor that the body
    reaches, through chained and nested loops; the backward is a C loop too. A second derivative
    raises `GradientRefusedError`, and so do gradients through a loop inside a user's own
    ``torch.compile``. The adapter's ``checkpoint(body, every=None)`` gives a body whose gradient
    keeps the carry every `every` steps, by default about the square root of their number, and
    computes the rest again. In the last step a leaf of the final carry that the loss does not read
    counts with a cotangent of zero, unless no step needs it: times an infinite derivative that is
    NaN, where eager torch leaves it out. Under a transform of ``torch.func`` (vmap, grad, jvp) a
    scan runs as plain Python, with a `NativeFallbackWarning`.

    Ctrl-C is heard within a second, in a while loop that never ends as well. A while loop runs on
    one thread. One whose condition is false at once is not compiled, and its body not looked at.
    Inside a user's own ``torch.compile`` a while loop is torch's while operator. Results are
    allocated after a look at the free memory. Compiled loops are kept in ``$FULLGRAPH_CACHE`` or
    ``~/.cache/fullgraph/native``, which only the user can read.

    Examples
    --------
    >>> import fullgraph, torch
    >>> with fullgraph.use_loop_adapter("torch", torch_native_loop_adapter()):
    ...     carry, ys = fullgraph.scan(
    ...         lambda c, x: (c + x, c), torch.tensor(0.0), torch.arange(4.0)
    ...     )
    >>> carry.item(), ys.tolist()
    (6.0, [0.0, 0.0, 1.0, 3.0])
    """
    for name, value, least in (
        ("max_steps", max_steps, 0),
        ("max_elements", max_elements, 0),
        ("threads", threads, 1),
    ):
        check_int(name, value, least)
    check_choice("fallback", fallback, ("raise", "eager"))
    check_choice("vector_math", vector_math, ("sleef", "libm"))
    import_torch("torch_native_loop_adapter")
    from fullgraph.torch_loop._native import native_adapter

    return native_adapter(
        max_steps=max_steps,
        max_elements=max_elements,
        fallback=fallback,
        threads=threads,
        vector_math=vector_math,
    )


@overload
def explain_loop(
    body: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    /,
    *,
    length: int | None = None,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopExplanation: ...


@overload
def explain_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    /,
    *,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopExplanation: ...


def explain_loop(
    body: Callable[..., Any],
    init: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    vector_math: Literal["sleef", "libm"] = "sleef",
) -> LoopExplanation:
    """Compile a loop for the native adapter and say what became of it.

    ``explain_loop(body, init, xs)`` is about a scan, which runs once; ``explain_loop(cond, body,
    init)`` about a while loop, which takes no step.

    Parameters
    ----------
    body, init, xs, length : as in `fullgraph.scan`
        Or ``cond, body, init`` as in `fullgraph.while_loop`. Where an input requires grad and
        gradients are on, the gradient is explained, too; `body` may be one that the adapter's
        ``checkpoint`` has returned.
    vector_math : {"sleef", "libm"}
        As for `torch_native_loop_adapter`.

    Returns
    -------
    LoopExplanation
        What was captured, operations, lanes and blocks, C text, flags, seconds and cache hit; or
        why the body is refused, with operation and line. ``print`` it, or read its attributes.

    Raises
    ------
    LoopError
        What the adapter raises for arguments that it does not take.

    Examples
    --------
    >>> import torch
    >>> told = explain_loop(lambda c, x: (c * x, None), torch.ones(32), torch.rand(5, 32))
    >>> told.lanes, told.operations
    (32, {'mul': 1})
    >>> told = explain_loop(lambda c, x: (c * torch.rand(32), None), torch.ones(32), length=5)
    >>> told.operation
    'aten.rand.default of no operands'
    >>> explain_loop(lambda s: s < 50, lambda s: s * 2, torch.tensor(3)).operations
    {'lt': 1, 'mul': 1}
    """
    check_choice("vector_math", vector_math, ("sleef", "libm"))
    import_torch("explain_loop")
    from fullgraph.torch_loop._explain import explain, explain_while

    if callable(init):
        if length is not None:
            raise UsageError("length is for scans; a while loop ends when its condition says so.")
        return explain_while(body, init, xs, vector_math)
    return explain(body, init, xs, length, vector_math)


def check_int(name: str, value: Any, least: int) -> None:
    """Raise `UsageError` for a bound that is no int, or is too small."""
    if value is None and name != "threads":
        return
    if type(value) is not int or value < least:
        raise UsageError(
            f"{name} must be an int (no bool, no NumPy integer) that is at least {least}, and is "
            f"{value!r}."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise `UsageError` for a value that is none of the choices."""
    if value not in choices:
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise UsageError(f"{name} must be {listed}, and is {value!r}.")
