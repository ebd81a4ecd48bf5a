"""Trees taken apart and put together by generated code: what a plain loop does once per step.

optree takes a microsecond or two for a small tree, mostly in finding out again what it is made of.
In a plain loop the structure is known after the first step, and a function written for it, as ::

    def flatten(t):
        if type(t) is not tuple or len(t) != 2:
            return None
        a, b = t
        if type(b) is not dict or len(b) != 1 or "v" not in b:
            return None
        return [a, b["v"]]

takes a fifth of that. Tuples, lists, dicts and None are written so; a tree with any other container
goes through optree, and so does a very deep one. Leaves are not looked at: the check of a carry
does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fullgraph.loops import _tree

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Codec", "codec_for", "source_of"]

PyTree = Any
_MOST_CODECS = 256
_DEEPEST = 64  # Python's parser takes 200 nested parentheses


class Codec:
    """How trees of one structure are taken apart and put together.

    Attributes
    ----------
    flatten : callable
        Maps a tree to the list of its leaves in optree's order, or to None if its structure is, or
        may be, another one.
    unflatten : callable
        Maps leaves to a tree.
    """

    __slots__ = ("flatten", "unflatten")

    def __init__(
        self,
        flatten: Callable[[PyTree], list[Any] | None],
        unflatten: Callable[[Any], PyTree],
    ) -> None:
        self.flatten = flatten
        self.unflatten = unflatten


_CODECS: dict[Any, Codec] = {}


def codec_for(tree: PyTree, treedef: Any) -> Codec:
    """Return the codec of a structure, generated when it is first met.

    Parameters
    ----------
    tree, treedef : PyTree, PyTreeSpec
        A tree and its structure.
    """
    key = (treedef, _keys_in_order(tree))
    codec = _CODECS.get(key)
    if codec is None:
        if len(_CODECS) >= _MOST_CODECS:
            _CODECS.clear()
        codec = _CODECS[key] = _generate(tree, treedef)
    return codec


def _keys_in_order(tree: PyTree) -> Any:
    """Tell apart dicts whose keys were written in another order, which treespecs do not."""
    if isinstance(tree, dict):
        return tuple([(key, _keys_in_order(child)) for key, child in tree.items()])
    if isinstance(tree, (tuple, list)):
        return tuple([_keys_in_order(child) for child in tree])
    return None


def _generate(tree: PyTree, treedef: Any) -> Codec:
    source = source_of(tree)
    if source is None:
        unflatten = _tree.unflatten
        return Codec(lambda _: None, lambda leaves: unflatten(treedef, leaves))
    text, keys = source
    names: dict[str, Any] = {"keys": keys}
    exec(compile(text, "<fullgraph tree codec>", "exec"), names)  # noqa: S102 - our own text
    return Codec(names["flatten"], names["unflatten"])


def source_of(tree: PyTree) -> tuple[str, tuple[Any, ...]] | None:
    """Return the text of both functions and the dict keys it refers to, or None.

    None means that the tree has a container for which no text is written.

    Examples
    --------
    >>> print(source_of((1.0, None))[0])
    def flatten(t):
        if type(t) is not tuple or len(t) != 2: return None
        t0, t1 = t
        if t1 is not None: return None
        return [t0]
    def unflatten(v):
        return (v[0], None,)
    <BLANKLINE>
    """
    writer = _Writer()
    built = writer.write("t", tree)
    if built is None:
        return None
    lines = [f"    {line}\n" for line in writer.lines]
    leaves = ", ".join(writer.leaves)
    text = (
        f"def flatten(t):\n{''.join(lines)}    return [{leaves}]\n"
        f"def unflatten(v):\n    return {built}\n"
    )
    return text, tuple(writer.keys)


class _Writer:
    """Collects the checks of `flatten`, the names of leaves, and the keys of dicts."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leaves: list[str] = []
        self.keys: list[Any] = []
        self.depth = 0

    def write(self, name: str, node: PyTree) -> str | None:
        """Write the checks of a node; return the expression that rebuilds it."""
        if node is None:
            self.lines.append(f"if {name} is not None: return None")
            return "None"
        kind = type(node)
        if kind is tuple or kind is list or kind is dict:
            if self.depth == _DEEPEST:
                return None
            self.depth += 1
            if kind is dict:
                built = self._dict(name, node)
            else:
                built = self._sequence(name, node, kind.__name__)
            self.depth -= 1
            return built
        if isinstance(node, (tuple, list, dict)) or not _tree.is_leaf(node):
            return None
        self.leaves.append(name)
        return f"v[{len(self.leaves) - 1}]"

    def _sequence(self, name: str, node: Any, kind: str) -> str | None:
        self.lines.append(
            f"if type({name}) is not {kind} or len({name}) != {len(node)}: return None"
        )
        children = [f"{name}{i}" for i in range(len(node))]
        if children:
            self.lines.append(f"{', '.join(children)}{',' * (len(children) == 1)} = {name}")
        parts = [self.write(child, one) for child, one in zip(children, node, strict=True)]
        if None in parts:
            return None
        inside = "".join([f"{part}, " for part in parts]).rstrip()
        return f"[{inside}]" if kind == "list" else f"({inside})"

    def _dict(self, name: str, node: dict[Any, Any]) -> str | None:
        self.lines.append(f"if type({name}) is not dict or len({name}) != {len(node)}: return None")
        parts: dict[Any, str] = {}
        for number, key in enumerate(_tree.sorted_keys(node)):
            place = len(self.keys)
            self.keys.append(key)
            child = f"{name}{number}"
            self.lines.append(f"if keys[{place}] not in {name}: return None")
            self.lines.append(f"{child} = {name}[keys[{place}]]")
            built = self.write(child, node[key])
            if built is None:
                return None
            parts[key] = f"keys[{place}]: {built}"
        return "{" + ", ".join([parts[key] for key in node]) + "}"
