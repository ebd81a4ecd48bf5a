"""Capability tables for a project's documentation: which function works how.

In the manner of SciPy's tables of array-API support: a row for each function, a column for each way
of running it, in reStructuredText or Markdown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.errors import UsageError
from fullgraph.report.markdown import table
from fullgraph.report.measures import charged_sites, is_whole, mode_label
from fullgraph.testing._records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fullgraph.testing._records import FunctionRecord, Record
    from fullgraph.testing._tags import Tag

__all__ = ["FORMATS", "Capability", "capabilities", "render_capabilities"]

FORMATS = ("markdown", "rst")
YES, NO, UNKNOWN = "✅", "⛔", ""
_HEADINGS = ("function", "torch eager", "torch.compile", "fullgraph", "jax.jit", "Dask")


@dataclass(frozen=True, slots=True)
class Capability:
    """One function; an empty text is "not known"."""

    function: str
    eager: str = UNKNOWN
    compile: str = UNKNOWN
    fullgraph: str = UNKNOWN
    jit: str = UNKNOWN
    dask: str = UNKNOWN

    @property
    def cells(self) -> tuple[str, ...]:
        """The texts in the order of the headings."""
        return (self.function, self.eager, self.compile, self.fullgraph, self.jit, self.dask)


def capabilities(record: Record, tags: Mapping[str, Tag] | None = None) -> list[Capability]:
    """Return what is known of each function, in order of name.

    Parameters
    ----------
    record : Record
        Says what torch does.
    tags : mapping, optional
        The tag of functions by ``module:qualname``: says what the project's tests hold JAX and Dask
        to. A function that is tagged and has no record has a row too.

    Returns
    -------
    list of Capability
        One for each function of the record or of the tags.
    """
    items: dict[str, dict[str, FunctionRecord]] = {}
    for item in record.functions:
        items.setdefault(item.name, {})[mode_label(item)] = item
    tags = tags or {}
    return [_capability(name, items.get(name, {}), tags.get(name)) for name in {**items, **tags}]


def _capability(name: str, items: Mapping[str, FunctionRecord], tag: Tag | None) -> Capability:
    # where compiling fails the call is finished eagerly; what raises does so in eager mode too
    returned = any(item.total_calls > item.calls.get(Outcome.RAISED, 0) for item in items.values())
    upstream = dict(tag.upstream) if tag is not None else {}
    return Capability(
        name,
        eager=YES if returned else UNKNOWN,
        compile=_compiled(items.get("compile"), whole=False),
        fullgraph=_compiled(items.get("fullgraph"), whole=True),
        jit=UNKNOWN if tag is None else YES if upstream.get("jax_jit", True) else NO,
        dask=UNKNOWN if tag is None else _dask(upstream.get("allow_dask_compute", False)),
    )


def _compiled(item: FunctionRecord | None, *, whole: bool) -> str:
    if item is None or item.total_calls == item.calls.get(Outcome.RAISED, 0):
        return UNKNOWN
    if is_whole(item):
        return YES
    count = len(charged_sites(item))
    if whole or not item.calls.get(Outcome.GRAPH_RAN):
        return NO
    return f"{YES} {count} graph break{'' if count == 1 else 's'}" if count else f"{YES} partly"


def _dask(allowed: object) -> str:
    if allowed is False:
        return f"{YES} lazy"
    return f"{YES} computes" if allowed is True else f"{YES} computes {allowed}x"


def render_capabilities(rows: Iterable[Capability], form: str = "markdown") -> str:
    """Return a table of `rows`; columns of which nothing is known are left out.

    Parameters
    ----------
    rows : iterable of Capability
        See `capabilities`.
    form : {"markdown", "rst"}
        What to write.

    Returns
    -------
    str
        The table, with a line break at its end.

    Raises
    ------
    UsageError
        If `form` is another.

    Examples
    --------
    >>> print(render_capabilities([Capability("m:f", eager="✅", jit="⛔")]))
    | function | torch eager | jax.jit |
    |---|---|---|
    | `m:f` | ✅ | ⛔ |
    <BLANKLINE>
    """
    if form not in FORMATS:
        raise UsageError(f"no table in the form {form!r}: accepted are {', '.join(FORMATS)}")
    cells = sorted(row.cells for row in rows)
    kept = [n for n in range(len(_HEADINGS)) if n == 0 or any(row[n] for row in cells)]
    headings = [_HEADINGS[n] for n in kept]
    body = [[row[n] for n in kept] for row in cells]
    if form == "rst":
        return _rst(headings, body)
    marked = [[f"`{row[0]}`", *row[1:]] for row in body]
    return "\n".join(table(headings, marked)) + "\n"


def _rst(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [headings, *([f"``{row[0]}``", *row[1:]] for row in body)]:
        for number, cell in enumerate(row):
            lines.append(f"   {'*' if number == 0 else ' '} -{' ' + cell if cell else ''}")
    return "\n".join(lines) + "\n"
