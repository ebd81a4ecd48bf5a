"""Let every loaded copy of array-api-extra patch in the mode of the running test.

``patch_lazy_xp_functions`` is imported by name into the conftest files and fixtures of libraries,
and several libraries vendor a copy of it. So that none of these names has to be found, the function
object that they all refer to gets another ``__code__`` for the time of the run, which hands the
call to the plugin; the plugin calls the original by a function made of the original code. Copies
that are loaded later, inside a fixture say, are seen by an import hook.
"""

from __future__ import annotations

import importlib.abc
import inspect
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["Copies", "forward"]

NAME = "patch_lazy_xp_functions"
_VENDORED = "array_api_extra.testing"
_KEY = "key of the copy"  # stands for the key in the code below

_forwards: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], Any]] = {}


def forward(key: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Take a call of a copy's function; called by its exchanged code."""
    return _forwards[key](args, kwargs)


def _template(*args: Any, **kwargs: Any) -> Any:
    from fullgraph.plugin.copies import forward

    return forward("key of the copy", args, kwargs)


def _forwarding_code(original: CodeType, key: str) -> CodeType:
    code = _template.__code__
    constants = tuple(key if constant == _KEY else constant for constant in code.co_consts)
    return code.replace(co_consts=constants, co_name=original.co_name)


class Copies:
    """The copies of ``patch_lazy_xp_functions`` that are loaded, handed over to `dispatch`.

    `dispatch(original, request, xp, rest)` is called instead of each: `original` is the function as
    it was, and `rest` its other arguments.
    """

    def __init__(self, dispatch: Callable[..., Any]) -> None:
        self._dispatch = dispatch
        self._changed: list[tuple[FunctionType, CodeType, Any, Any, str]] = []
        self._finder = _Finder(self.take_over)

    def take_over_all(self) -> None:
        """Take over what is loaded, and what will be."""
        for module in list(sys.modules.values()):
            self.take_over(module)
        sys.meta_path.insert(0, self._finder)

    def take_over(self, module: ModuleType) -> None:
        """Take over the function of this module, if it has one."""
        names = getattr(module, "__dict__", None)
        function = names.get(NAME) if isinstance(names, dict) else None
        if not isinstance(function, FunctionType) or function.__closure__ is not None:
            return
        if any(function is known for known, *_ in self._changed):
            return
        key = f"{function.__module__} {id(function):x}"
        code, defaults, kwdefaults = (
            function.__code__,
            function.__defaults__,
            function.__kwdefaults__,
        )
        original = FunctionType(code, function.__globals__, function.__name__, defaults)
        original.__kwdefaults__ = kwdefaults
        signature = inspect.signature(original)

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            try:
                rest = dict(signature.bind(*args, **kwargs).arguments)
                request, xp = rest.pop("request"), rest.pop("xp")
            except (TypeError, KeyError):
                return original(*args, **kwargs)  # it raises what it always raised
            return self._dispatch(original, request, xp, rest)

        _forwards[key] = call
        self._changed.append((function, code, defaults, kwdefaults, key))
        function.__defaults__ = function.__kwdefaults__ = None
        function.__code__ = _forwarding_code(code, key)

    def restore(self) -> None:
        """Give every copy its own code back."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._changed:
            function, code, defaults, kwdefaults, key = self._changed.pop()
            function.__code__ = code
            function.__defaults__, function.__kwdefaults__ = defaults, kwdefaults
            del _forwards[key]


class _Finder(importlib.abc.MetaPathFinder):
    """Tells of a copy of array-api-extra's testing module as soon as it is loaded."""

    def __init__(self, loaded: Callable[[ModuleType], None]) -> None:
        self._loaded = loaded

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.endswith(_VENDORED):
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._loaded)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Loads as the loader that it stands for, then tells."""

    def __init__(self, loader: Any, loaded: Callable[[ModuleType], None]) -> None:
        self._loader, self._loaded = loader, loaded

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._loaded(module)
