"""`patch_lazy_xp_functions`: make the tags effective while a test runs."""

from __future__ import annotations

import contextlib
import functools
import threading
import warnings
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from fullgraph.errors import MissingBackendError, UntaggableError, UsageError
from fullgraph.testing._compiled import PatchedFunction
from fullgraph.testing._discover import PATCHED_METHOD, Target, tagged_targets, upstream_tables
from fullgraph.testing._modes import ACCEPTED, Budget, Mode, parse_mode
from fullgraph.testing._names import display_name
from fullgraph.testing._options import CallOptions
from fullgraph.testing._tags import ATTRIBUTE, Tag, tag_of
from fullgraph.testing._tally import publish_unreached

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

    from fullgraph.testing._torch_call import CompiledCall

__all__ = [
    "backend_of",
    "budget_for",
    "patch_lazy_xp_functions",
    "set_call_options",
    "set_default_mode",
    "wrap_tagged",
]

_default_mode: Mode | None = None
_options = CallOptions()


def set_default_mode(mode: Mode | None) -> Mode | None:
    """Set the mode of torch and JAX for calls that name none; return the one before."""
    global _default_mode
    before, _default_mode = _default_mode, mode
    return before


def set_call_options(options: CallOptions) -> CallOptions:
    """Set how functions that are patched from now on are called; return how they were before."""
    global _options
    before, _options = _options, options
    return before


def patch_lazy_xp_functions(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch | None = None,
    *,
    xp: ModuleType,
    mode: Mode | str | None = None,
) -> AbstractContextManager[None]:
    """Call tagged functions through a compiler, as long as the context is open.

    A superset of ``array_api_extra.testing.patch_lazy_xp_functions``, to which JAX and Dask are
    handed on. What is tagged is looked for in the globals of the test's module, in the modules of
    its ``lazy_xp_modules``, and in the classes found in these.

    Parameters
    ----------
    request : pytest.FixtureRequest
        The fixture of the running test; only its ``module`` is read, and its ``node`` for a name.
    monkeypatch : pytest.MonkeyPatch, optional
        Deprecated, as upstream: patches are undone with it, and no context needs to be entered.
    xp : module
        The array namespace under test.
    mode : {"eager", "compile", "fullgraph", "jit"}, optional
        For torch: eager, compile or fullgraph; for JAX: eager or jit; see `Mode`. Default: as
        upstream, which is jit for JAX and eager for torch, unless the pytest plugin has chosen the
        mode of the running test.

    Returns
    -------
    context manager
        On its end everything is exactly as it was found, also after an exception, and where
        contexts are nested or repeated.

    Raises
    ------
    UsageError
        If `mode` is unknown, or not one of the backend of `xp`.
    MissingBackendError
        If the mode compiles and torch is missing or too old, or for JAX and Dask array-api-extra.

    Notes
    -----
    Modules are patched, so tests that use one at a time must not run in several threads; calls of
    the patched functions may come from any number of threads.

    Examples
    --------
    ::

        @pytest.fixture(params=["eager", "compile", "fullgraph"])
        def xp(request):
            import array_api_compat.torch as xp
            with patch_lazy_xp_functions(request, xp=xp, mode=request.param):
                yield xp
    """
    backend = backend_of(xp)
    chosen = mode if mode is not None else _default_mode
    if mode is None and chosen is not None and chosen not in ACCEPTED.get(backend, ()):
        chosen = None  # the plugin's mode for the other backend
    parsed = parse_mode(chosen, backend=backend) if chosen is not None else None
    if mode is not None and backend not in ACCEPTED and parsed is not Mode.EAGER:
        raise UsageError(
            f"mode {str(parsed)!r} is not one of {xp.__name__}: only torch and JAX have modes"
        )
    patch = _Patch(request, xp, backend, parsed)
    if monkeypatch is None:
        return patch
    warnings.warn(
        "The `monkeypatch` parameter is deprecated, as in array-api-extra: "
        "use patch_lazy_xp_functions as a context manager instead",
        DeprecationWarning,
        stacklevel=2,
    )
    patch.__enter__()
    # undone last to first with everything else that the test has patched
    request.addfinalizer(lambda: patch.__exit__(None, None, None))
    return contextlib.nullcontext()


def backend_of(xp: Any) -> str:
    """Return "torch", "jax", "dask" or another first part of the namespace's name."""
    parts = xp.__name__.split(".")
    for backend in ("torch", "jax", "dask"):
        if parts[0] == backend or ("array_api_compat" in parts and parts[-1] == backend):
            return str(backend)
    if "array_api_compat" in parts and "dask" in parts:
        return "dask"
    return str(parts[0])


class _Patch(AbstractContextManager[None]):
    """Patches on entry, restores on exit; can be entered again, one inside the other too."""

    def __init__(
        self, request: pytest.FixtureRequest, xp: ModuleType, backend: str, mode: Mode | None
    ) -> None:
        self._request, self._xp, self._backend, self._mode = request, xp, backend, mode
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> None:
        undo = contextlib.ExitStack()
        with undo:  # whatever fails half-way is undone
            if self._backend == "torch" and self._mode in (Mode.COMPILE, Mode.FULLGRAPH):
                self._patch_torch(undo, self._mode)
            elif self._backend == "dask" or (
                self._backend == "jax" and self._mode is not Mode.EAGER
            ):
                _patch_upstream(undo, self._request, self._xp)
            self._open.append(undo.pop_all())

    def __exit__(self, *_: object) -> None:
        self._open.pop().close()

    def _patch_torch(self, undo: contextlib.ExitStack, mode: Mode) -> None:
        node = getattr(self._request, "node", None)
        test = getattr(node, "nodeid", None) or self._request.module.__name__
        for target in list(tagged_targets(self._request.module)):
            if not target.tag.torch_compile:
                continue
            call = _call_of(target.func, target.tag, mode, target.display_name)
            before = call.calls
            undo.callback(_note_unreached, call, before, test, target.display_name)
            _replace(undo, target, _wrapper_of(target, call))


def _note_unreached(call: CompiledCall, before: int, test: str, name: str) -> None:
    if call.calls == before:
        publish_unreached(f"{test}: {name}")


def _restore_later(undo: contextlib.ExitStack, target: Target) -> None:
    if target.inherited:
        undo.callback(delattr, target.owner, target.name)
    else:
        undo.callback(setattr, target.owner, target.name, target.raw)


def _replace(undo: contextlib.ExitStack, target: Target, replacement: Any) -> None:
    """Set an attribute and remember how it was: a static method, inherited, or plain."""
    _restore_later(undo, target)
    if isinstance(target.raw, staticmethod | classmethod):
        replacement = type(target.raw)(replacement)
    setattr(target.owner, target.name, replacement)


# One compiled object per function and mode for the whole run: compiling anew in each test costs
# 2.5 times as much. By identity, since callables may be unhashable or compare as they like; the
# compiled object keeps the function alive, so that an identity is never reused.
_calls: dict[tuple[int, Mode, Budget, CallOptions, str], CompiledCall] = {}
_calls_lock = threading.Lock()


def _call_of(func: Any, tag: Tag, mode: Mode, name: str) -> CompiledCall:
    from fullgraph.testing._torch_call import CompiledCall, Settings

    options, budget = _options, budget_for(tag, name)
    # by name too: a method may be tagged for two classes that inherit it
    key = (id(func), mode, budget, options, name)
    with _calls_lock:
        if key not in _calls:
            settings = Settings(
                backend=options.backend,
                recompile_limit=options.recompile_limit,
                dynamic=options.dynamic,
                config=dict(options.config),
            )
            _calls[key] = CompiledCall(
                func,
                mode,
                budget=budget,
                settings=settings,
                strict=options.strict and budget == Budget(),
                compare=options.compare,
                fail_on_torch_bugs=options.fail_on_torch_bugs,
                name=name,
            )
        return _calls[key]


def budget_for(tag: Tag, name: str) -> Budget:
    """Return the budget of a function: its tag's own, else the one that the options have for it."""
    if tag.budget == Budget() and _options.budget_of is not None:
        return _options.budget_of(name) or tag.budget
    return tag.budget


def wrap_tagged(value: Any, mode: Mode | str) -> Any:
    """Return the compiled form of a tagged function that did not come from a module's namespace.

    Anything else is returned as it is.
    """
    if isinstance(value, PatchedFunction | type):
        return value
    tag = tag_of(value, upstream_tables())
    if tag is None or not tag.torch_compile:
        return value
    return PatchedFunction(value, _call_of(value, tag, Mode(mode), display_name(value)))


def _wrapper_of(target: Target, call: CompiledCall) -> Any:
    func = target.func
    if not isinstance(target.owner, type):
        return PatchedFunction(func, call)

    @functools.wraps(func)
    def method(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        from torch.compiler import is_dynamo_compiling, is_exporting

        if is_dynamo_compiling() or is_exporting():  # as in CompiledFunction
            return func(*args, **kwargs)
        return call(args, kwargs)

    setattr(method, PATCHED_METHOD, True)
    return method


def _patch_upstream(
    undo: contextlib.ExitStack, request: pytest.FixtureRequest, xp: ModuleType
) -> None:
    """Hand JAX and Dask on to array-api-extra, with our tags where it looks for them."""
    try:
        from array_api_extra import testing as upstream
    except ImportError as error:
        raise MissingBackendError(
            f"{xp.__name__} is tested through array-api-extra, which is not installed: "
            "pip install 'fullgraph[testing]'"
        ) from error
    for target in list(tagged_targets(request.module)):
        # after array-api-extra, which restores first to last what it has patched twice
        _restore_later(undo, target)
        attributes = getattr(target.func, "__dict__", {})
        if ATTRIBUTE in attributes and (
            not isinstance(target.owner, type) or attributes[ATTRIBUTE].get("owner") is target.owner
        ):
            continue  # where array-api-extra finds it
        if isinstance(target.owner, type):
            upstream.lazy_xp_function((target.owner, target.name), **target.tag.for_upstream())
        else:
            _tag_for_upstream(undo, upstream, target)
    undo.enter_context(upstream.patch_lazy_xp_functions(request, xp=xp))


def _tag_for_upstream(undo: contextlib.ExitStack, upstream: Any, target: Target) -> None:
    """Let array-api-extra know of a callable without attributes, for as long as it is patched."""
    tables = upstream_tables()
    try:
        known = [target.func in table for table in tables]
    except TypeError as error:
        raise UntaggableError(
            f"{target.func!r} has neither attributes nor a hash, and array-api-extra finds no tag "
            "of such a callable: tag a function that calls it"
        ) from error
    upstream.lazy_xp_function(target.func, **target.tag.for_upstream())

    def forget() -> None:
        for table, had in zip(tables, known, strict=True):
            if not had:
                table.pop(target.func, None)

    undo.callback(forget)
