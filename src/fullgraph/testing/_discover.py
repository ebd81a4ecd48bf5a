"""Find what is tagged in the modules that a test looks its functions up in."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fullgraph.testing._compiled import PatchedFunction
from fullgraph.testing._names import display_name
from fullgraph.testing._tags import Tag, tag_of, tagged_methods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PATCHED_METHOD = "_fullgraph_method"
"""Attribute of the functions that take the place of tagged methods."""

__all__ = ["PATCHED_METHOD", "Target", "tagged_targets", "upstream_tables"]


@dataclass(frozen=True, slots=True)
class Target:
    """A tagged callable, and the name under which it is looked up."""

    owner: ModuleType | type
    name: str
    raw: Any
    """The attribute as it stands: a staticmethod or classmethod object is not unwrapped."""
    func: Any
    """The callable below it."""
    tag: Tag

    @property
    def display_name(self) -> str:
        """``module:qualname``, of the class that the tag is for where it is a method."""
        if isinstance(self.owner, type):
            return f"{self.owner.__module__}:{self.owner.__qualname__}.{self.name}"
        return display_name(self.func)

    @property
    def inherited(self) -> bool:
        """Whether the owner is a class that has the method from a parent."""
        return isinstance(self.owner, type) and self.name not in vars(self.owner)


def upstream_tables() -> tuple[dict[Any, Any], ...]:
    """Return the tables of tags of array-api-extra and of every vendored copy that is loaded."""
    tables = []
    for name, module in list(sys.modules.items()):
        # its place has changed: `_lib._testing`, `testing`, now `testing._testing`
        if "array_api_extra." in name and name.endswith("testing"):
            table = vars(module).get("_ufuncs_tags")
            if isinstance(table, dict):
                tables.append(table)
    return tuple(tables)


def tagged_targets(module: ModuleType) -> Iterator[Target]:
    """Give what is tagged in a test module, its ``lazy_xp_modules``, and the classes in both."""
    modules = [module, *getattr(module, "lazy_xp_modules", [])]
    tables = upstream_tables()
    classes: set[type] = set()
    seen: set[tuple[int, str]] = set()
    for owner in modules:
        for name, value in list(vars(owner).items()):
            if isinstance(value, type):
                classes.add(value)
                continue
            # inside another context the attribute is already wrapped; what is below has the tag
            func = value.__wrapped__ if isinstance(value, PatchedFunction) else value
            tag = tag_of(func, tables)
            if tag is not None and (id(owner), name) not in seen:
                seen.add((id(owner), name))
                yield Target(owner, name, value, func, tag)
    for method in tagged_methods(classes):
        seen.add((id(method.cls), method.name))
        raw = inspect.getattr_static(method.cls, method.name)
        yield Target(method.cls, method.name, raw, _below(raw), method.tag)
    for cls in classes:
        for target in _upstream_methods(cls):
            if (id(cls), target.name) not in seen:  # ours says more
                yield target


def _upstream_methods(cls: type) -> Iterator[Target]:
    """Give the methods that array-api-extra tagged for this very class."""
    for name, raw in list(vars(cls).items()):
        func = _below(raw)
        attributes = getattr(func, "__dict__", None)
        tags = attributes.get("_lazy_xp_function") if isinstance(attributes, dict) else None
        # A function that a class merely holds (`class naked: f = mymodule.f`) is not its method.
        if isinstance(tags, dict) and tags.get("owner") is cls:
            tag = tag_of(func)
            assert tag is not None, "the tag was read above"
            yield Target(cls, name, raw, func, tag)


def _below(raw: Any) -> Any:
    func: Any = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    # inside another context there is a method of ours
    return func.__wrapped__ if getattr(func, PATCHED_METHOD, False) else func
