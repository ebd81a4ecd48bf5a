"""The schema is what is published, and what records are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_records import function, record, site

from fullgraph.report.json_schema import record_schema
from fullgraph.testing import Outcome, Record

PUBLISHED = Path(__file__).parents[3] / "docs" / "schema" / "record-2.json"
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}


def problems(value, schema, top, where="$"):
    """Validate by the few keywords that the schema uses; unknown ones are an error."""
    known = {"type", "enum", "const", "anyOf", "$ref", "items", "properties", "required"}
    known |= {"additionalProperties", "propertyNames", "description", "title", "$schema", "$defs"}
    assert set(schema) <= known, set(schema) - known
    if "$ref" in schema:
        schema = top["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema and all(list(problems(value, s, top)) for s in schema["anyOf"]):
        yield f"{where}: {value!r} fits nothing"
    if "const" in schema and value != schema["const"]:
        yield f"{where}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not known"
    kind = schema.get("type")
    if kind and (not isinstance(value, TYPES[kind]) or (kind != "boolean" and value is True)):
        yield f"{where}: {value!r} is no {kind}"
        return
    if kind == "array":
        for n, item in enumerate(value):
            yield from problems(item, schema["items"], top, f"{where}[{n}]")
    if kind == "object":
        fields, other = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where}: no {name}"
        for name, item in value.items():
            if "propertyNames" in schema:
                yield from problems(name, schema["propertyNames"], top, where)
            if name in fields:
                yield from problems(item, fields[name], top, f"{where}.{name}")
            elif other is False:
                yield f"{where}: {name} is not known"
            elif isinstance(other, dict):
                yield from problems(item, other, top, f"{where}.{name}")


FULL = record(
    function(
        sites=[site(torch_bug="x", hints=("a",), callers=("b",))],
        compiles=3,
        calls=dict.fromkeys(Outcome, 1),
        failures={"why": 1},
    ),
    function(mode="fullgraph", compile_seconds=1.5),
    unreached=("t: f",),
)


def data():
    return json.loads(FULL.to_json())


def test_the_published_file_is_the_schema_of_this_code():
    """If this fails, a field of Record changed: raise SCHEMA, and run tools/write_schema.py."""
    assert json.loads(PUBLISHED.read_text()) == record_schema()


def test_records_fit():
    schema = record_schema()
    assert list(problems(data(), schema, schema)) == []
    with_run = {**data(), "run": {"modes": ["compile"]}}
    assert list(problems(with_run, schema, schema)) == []
    assert Record.from_json(json.dumps(with_run)) == FULL


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.update(schema=3), "$.schema: not 2"),
        (lambda d: d.update(other=2), "$: other is not known"),
        (lambda d: d.pop("torch"), "$: no torch"),
        (lambda d: d["functions"][0].update(mode="x"), "$.functions[0].mode: 'x' is not known"),
        (lambda d: d["functions"][0].update(whole="x"), "$.functions[0].whole: 'x' is no integer"),
        (
            lambda d: d["functions"][0]["calls"].update(x=1),
            "$.functions[0].calls: 'x' is not known",
        ),
    ],
)
def test_what_is_no_record_does_not_fit(change, problem):
    schema, changed = record_schema(), data()
    change(changed)
    assert list(problems(changed, schema, schema)) == [problem]
