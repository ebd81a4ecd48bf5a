from __future__ import annotations

import dataclasses
import json
import os

import pytest

import fullgraph
from fullgraph.errors import UsageError
from fullgraph.testing import BreakSite, FunctionRecord, Mode, Outcome, Record, Specialisation
from fullgraph.testing._records import merge_sites

SITE = BreakSite("/src/a.py", 3, "f", "because", hints=("do this",), callers=("/src/b.py:1 g",))
FIRST = Specialisation("m:f", "v=float32[4]")
SECOND = Specialisation("m:f", "v=float64[4]", guard="dtype")
REST = Specialisation("m:f resumed at line 4 (abcd)", "v=float32[4]", own=False)


def function(**changes) -> FunctionRecord:
    given = {
        "calls": {Outcome.GRAPH_RAN: 3, Outcome.RAISED: 1},
        "whole": 2,
        "graphs": 2,
        "graphs_run": 3,
        "breaks": (SITE,),
        "specialisations": (FIRST, REST),
        "failures": {"why": 1},
        "compile_seconds": 0.5,
        "seconds": 1.0,
    }
    return FunctionRecord("m:f", Mode.COMPILE, "trace", **{**given, **changes})


def test_json_round_trip():
    record = Record((function(),), ("t.py::t: m:g",), "2.14.1")
    again = Record.from_json(record.to_json())
    assert again == record
    assert again.functions[0].calls[Outcome.GRAPH_RAN] == 3
    assert type(again.functions[0].mode) is Mode
    assert Record.from_json(record.to_json(indent=1)) == record
    assert json.loads(record.to_json())["schema"] == 2


def test_records_of_schema_1_are_read():
    data = json.loads(Record((function(),)).to_json())
    data["schema"] = 1
    for site in data["functions"][0]["breaks"]:
        del site["raised"]
    assert Record.from_json(json.dumps(data)) == Record((function(),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a fullgraph record: expected JSON with a 'schema'"),
        ("[]", "not a fullgraph record"),
        ("3", "not a fullgraph record"),
        ("{}", "not a fullgraph record"),
        ('{"schema": 99}', "has schema 99, and this version reads 1 and 2: record again"),
        ('{"schema": 1}', "not a fullgraph record of schema 1: KeyError: 'functions'"),
        ('{"schema": 1, "functions": [{}], "unreached": [], "torch": ""}', "of schema 1: KeyError"),
        ('{"schema": 1, "functions": [3], "unreached": [], "torch": ""}', "of schema 1: "),
        ('{"schema": 1, "functions": 3, "unreached": [], "torch": ""}', "of schema 1: TypeError"),
    ],
)
def test_json_that_is_no_record(text, message):
    with pytest.raises(UsageError, match=message):
        Record.from_json(text)


def test_json_with_an_unknown_outcome_or_field():
    data = json.loads(Record((function(),)).to_json())
    data["functions"][0]["calls"] = {"vanished": 1}
    with pytest.raises(UsageError, match="'vanished' is not a valid Outcome"):
        Record.from_json(json.dumps(data))
    data = json.loads(Record((function(),)).to_json())
    data["functions"][0]["colour"] = "red"
    with pytest.raises(UsageError, match="colour"):
        Record.from_json(json.dumps(data))


def test_records_are_frozen():
    for thing in (SITE, FIRST, function(), Record()):
        field = dataclasses.fields(thing)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, None)


def test_derived_numbers():
    record = function(specialisations=(FIRST, SECOND, REST))
    assert record.total_calls == 4
    assert record.coverage == 0.75
    assert record.compiles == 2
    assert record.recompiles == 1
    assert record.recompile_guards == ("dtype",)
    assert FunctionRecord("m:f", Mode.COMPILE, "trace").coverage == 0


def test_merge_is_as_one_process_would_have_it():
    one = function()
    two = function(specialisations=(FIRST, SECOND))
    merged = one.merge(two)
    assert merged.calls == {Outcome.GRAPH_RAN: 6, Outcome.RAISED: 2}
    assert merged.compiles == 2  # the one that both have is one
    assert merged.breaks == (dataclasses.replace(SITE, calls=2, times=2),)
    assert merged.failures == {"why": 2}
    assert (merged.whole, merged.graphs, merged.graphs_run) == (4, 4, 6)
    other = dataclasses.replace(one, mode=Mode.FULLGRAPH)
    both = Record((one,), ("b",), "").merge(Record((two, other), ("a",), "2.14"))
    assert both == Record((merged, other), ("a", "b"), "2.14")
    assert Record.from_json(both.to_json()) == both
    with pytest.raises(AssertionError, match="only records of one function and mode"):
        one.merge(other)


def test_sites_of_one_line_and_reason_are_one():
    bare = dataclasses.replace(SITE, callers=(), times=4)
    skipping = dataclasses.replace(SITE, skips_frame=True)
    elsewhere = dataclasses.replace(SITE, line=2)
    other = dataclasses.replace(SITE, reason="another")
    merged = merge_sites([bare, SITE, skipping, elsewhere, other])
    assert len(merged) == 3
    assert merged[0] is elsewhere
    assert merged[2] == dataclasses.replace(SITE, calls=3, times=6, skips_frame=True)
    assert SITE.where == "/src/a.py:3"


def test_lookup_by_name():
    one, two = function(), dataclasses.replace(function(), name="n:f")
    record = Record((one, two))
    assert record["m:f"] is one
    assert Record((one,))["f"] is one
    with pytest.raises(KeyError, match=r"2 records of 'f'; recorded are: m:f \(compile\), n:f"):
        record["f"]
    with pytest.raises(KeyError, match="0 records of 'g'; recorded are: none"):
        Record()["g"]


def test_totals():
    record = Record((function(), dataclasses.replace(function(), name="n:g")))
    assert (record.graphs, record.graphs_run, record.recompiles) == (4, 6, 0)
    assert record.breaks == (dataclasses.replace(SITE, calls=2, times=2),)


def test_breaks_in_a_package(tmp_path):
    (tmp_path / "pkg").mkdir()
    inside = dataclasses.replace(SITE, file=str(tmp_path / "pkg" / "mod.py"))
    beside = dataclasses.replace(SITE, file=str(tmp_path / "pkg_extra" / "mod.py"))
    single = dataclasses.replace(SITE, file=os.path.abspath(dataclasses.__file__))
    own = dataclasses.replace(SITE, file=fullgraph.__file__)
    record = Record((function(breaks=(inside, beside, single, own)),))
    assert record.breaks_in(str(tmp_path / "pkg")) == [inside]
    assert record.breaks_in("dataclasses") == [single]
    assert record.breaks_in("fullgraph") == [own]
    for name in ("no_such_package", "no.such.package", ""):
        with pytest.raises(UsageError, match=r"breaks_in\('.*'\): there is no importable package"):
            record.breaks_in(name)
