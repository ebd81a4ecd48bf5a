"""The JSON Schema of a record file, made from the dataclasses themselves.

The published copy, ``docs/schema/record-2.json``, is what this returns; a test holds the two
together, so that no field changes unnoticed.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from typing import Any

from fullgraph.testing._records import SCHEMA, Record

__all__ = ["record_schema"]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_MAPPING = {"Mapping": collections.abc.Mapping}


def record_schema() -> dict[str, Any]:
    """Return the schema of what `Record.to_json` and ``--fg-report`` write.

    Returns
    -------
    dict
        A JSON Schema, draft 2020-12, as plain data.

    Examples
    --------
    >>> record_schema()["properties"]["schema"]
    {'const': 2, 'description': 'Version of this form.'}
    """
    definitions: dict[str, Any] = {}
    top = _object(Record, definitions)
    top["properties"]["schema"] = {"const": SCHEMA, "description": "Version of this form."}
    top["properties"]["run"] = {
        "type": "object",
        "description": "How the tests ran: written by the pytest plugin, not needed to read the "
        "rest, and free to gain fields.",
    }
    top["required"] = ["schema", *top["required"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fullgraph record",
        **top,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, localns=_MAPPING)
    fields = [field.name for field in dataclasses.fields(cls)]
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip().splitlines()[0],
        "properties": {name: _of(hints[name], definitions) for name in fields},
        "required": fields,
        "additionalProperties": False,
    }


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value of this type."""
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is type(None):
        return {"type": "null"}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [str(member.value) for member in kind]}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_of(argument, definitions) for argument in arguments]}
    if origin is tuple and arguments[1:] == (Ellipsis,):
        return {"type": "array", "items": _of(arguments[0], definitions)}
    assert origin is collections.abc.Mapping, f"no schema for {kind}: add its kind here"
    schema = {"type": "object", "additionalProperties": _of(arguments[1], definitions)}
    names = _of(arguments[0], definitions)
    return schema if "enum" not in names else {**schema, "propertyNames": names}
