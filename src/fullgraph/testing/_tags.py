"""`lazy_xp_function`: tag what a test suite wants to see under a compiler."""

from __future__ import annotations

import inspect
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from fullgraph.errors import UntaggableError
from fullgraph.testing._modes import Budget, check_allowance
from fullgraph.testing._names import is_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["MethodTag", "Tag", "lazy_xp_function", "tag_of", "tagged_methods"]

ATTRIBUTE = "_lazy_xp_function"
"""Where array-api-extra keeps its tags, and we ours with them."""

_OURS = "fullgraph"
_UPSTREAM = ("allow_dask_compute", "jax_jit")


@dataclass(frozen=True, slots=True)
class Tag:
    """What a tag asks for."""

    torch_compile: bool = True
    budget: Budget = field(default_factory=Budget)
    upstream: tuple[tuple[str, Any], ...] = ()
    """What array-api-extra's own tag takes."""

    def for_upstream(self) -> dict[str, Any]:
        """Return the tag as array-api-extra reads it."""
        return {k: v for k, v in self.upstream if k in ("allow_dask_compute", "jax_jit")}


@dataclass(frozen=True, slots=True)
class MethodTag:
    """The tag of a method of one class, and not of the classes that it is inherited from."""

    cls: type
    name: str
    tag: Tag


# Callables without attributes (ufuncs, C functions) by identity: some of them cannot be hashed, and
# equality of a callable is its own business.
_without_attributes: dict[int, tuple[Any, Tag]] = {}
_methods: list[tuple[weakref.ref[type], str, Tag]] = []


def lazy_xp_function(
    func: Callable[..., Any] | tuple[type, str],
    *,
    allow_dask_compute: bool | int = False,
    jax_jit: bool = True,
    torch_compile: bool = True,
    allow_graph_breaks: bool | int = False,
    allow_recompiles: bool | int = True,
    static_argnums: object = None,
    static_argnames: object = None,
) -> None:
    """Tag a function, so that tests call it compiled, or with a counted number of computations.

    A superset of ``array_api_extra.testing.lazy_xp_function``: what that takes means the same.

    Parameters
    ----------
    func : callable or (type, str)
        A function, ufunc, C function, partial or callable object; or a class and the name of one of
        its methods (static, class, or inherited: the parent's stays untagged).
    allow_dask_compute : bool or int, optional
        How often the function may compute a Dask graph. Default: not at all.
    jax_jit : bool, optional
        Whether tests call the function through ``jax.jit`` when ``xp`` is ``jax.numpy``.
    torch_compile : bool, optional
        Whether tests call the function through ``torch.compile`` in the torch modes that compile.
        False: eager only.
    allow_graph_breaks : bool or int, optional
        How many break sites a call may have. False or 0: it must be one whole graph, and a call
        that is not raises `GraphBreakError` in compile mode and `FullGraphError` in fullgraph mode.
        n: at most n, in compile mode. True: any number.
    allow_recompiles : bool or int, optional
        How often the function may be compiled again, over all tests. Default: as often as the tests
        make it.
    static_argnums, static_argnames : object
        Accepted and ignored, as by array-api-extra.

    Raises
    ------
    UntaggableError
        If `func` is not something that can be tagged.
    UsageError
        If a budget is negative or not a number.

    See Also
    --------
    patch_lazy_xp_functions : What makes the tags effective in a test.

    Examples
    --------
    >>> def double(x):
    ...     return x * 2
    >>> lazy_xp_function(double)
    >>> lazy_xp_function(double, allow_graph_breaks=2, jax_jit=False)
    """
    del static_argnums, static_argnames
    check_allowance("allow_dask_compute", allow_dask_compute)
    tag = Tag(
        torch_compile=torch_compile,
        budget=Budget.parse(allow_graph_breaks, allow_recompiles),
        upstream=(("allow_dask_compute", allow_dask_compute), ("jax_jit", jax_jit)),
    )
    if isinstance(func, tuple):
        _tag_method(func, tag)
    else:
        _tag_callable(func, tag)


def _tag_callable(func: Any, tag: Tag) -> None:
    if isinstance(func, type):
        raise UntaggableError(
            f"{func!r} is a class: tag a method of it, lazy_xp_function((cls, 'method'))"
        )
    if isinstance(func, staticmethod | classmethod | property) or not callable(func):
        raise UntaggableError(
            f"{func!r} cannot be called: lazy_xp_function takes a callable or (class, 'method')"
        )
    if tag.torch_compile and is_async(func):
        raise UntaggableError(
            f"{func!r} is async, and torch.compile does not capture coroutines: "
            "tag a function that it calls, or give torch_compile=False"
        )
    try:
        setattr(func, ATTRIBUTE, {**tag.for_upstream(), _OURS: tag})
    except (AttributeError, TypeError):
        _without_attributes[id(func)] = (func, tag)  # keeps it alive: ids are reused otherwise


def _tag_method(func: tuple[Any, ...], tag: Tag) -> None:
    if len(func) != 2 or not isinstance(func[0], type) or not isinstance(func[1], str):
        raise UntaggableError(
            f"{func!r} is not (class, 'method'): give a class and the name of one of its methods"
        )
    cls, name = cast("tuple[type, str]", func)
    try:
        found = inspect.getattr_static(cls, name)
    except AttributeError:
        raise UntaggableError(f"class {cls.__qualname__} has no attribute {name!r}") from None
    if tag.torch_compile and is_async(getattr(cls, name, None)):
        raise UntaggableError(
            f"{cls.__qualname__}.{name} is async, and torch.compile does not capture coroutines: "
            "tag a method that it calls, or give torch_compile=False"
        )
    if not callable(getattr(cls, name, None)):  # a property may refuse to be read
        raise UntaggableError(
            f"{cls.__qualname__}.{name} is {found!r}, which cannot be called: tag a method"
        )
    _methods[:] = [m for m in _methods if not (m[0]() is cls and m[1] == name) and m[0]()]
    _methods.append((weakref.ref(cls), name, tag))


def tag_of(func: Any, upstream_tables: tuple[dict[Any, Any], ...] = ()) -> Tag | None:
    """Return the tag of a callable, ours or one set by array-api-extra or a vendored copy of it.

    Parameters
    ----------
    func : object
        Whatever stands in a module's or a class's namespace.
    upstream_tables : tuple of dict
        Tables in which copies of array-api-extra keep tags of callables without attributes.
    """
    known = _without_attributes.get(id(func))
    if known is not None and known[0] is func:
        return known[1]
    attributes = getattr(func, "__dict__", None)
    tags = attributes.get(ATTRIBUTE) if isinstance(attributes, dict) else None
    if tags is None:
        for table in upstream_tables:
            try:
                tags = table.get(func)
            except TypeError:  # cannot be hashed
                continue
            if tags is not None:
                break
    if not isinstance(tags, dict):
        return None
    ours = tags.get(_OURS)
    if isinstance(ours, Tag):
        return ours
    return Tag(
        torch_compile=bool(tags.get("torch_compile", True)),
        # keys that a library may add to a tag of array-api-extra, without depending on fullgraph
        budget=Budget.parse(tags.get("allow_graph_breaks"), tags.get("allow_recompiles")),
        upstream=tuple(
            (key, tags[key]) for key in ("allow_dask_compute", "jax_jit") if key in tags
        ),
    )


def tagged_methods(classes: set[type]) -> Iterator[MethodTag]:
    """Give the tagged methods of `classes`."""
    for reference, name, tag in _methods:
        cls = reference()
        if cls is not None and cls in classes:
            yield MethodTag(cls, name, tag)
