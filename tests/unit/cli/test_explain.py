"""``fullgraph explain`` on small functions."""

from __future__ import annotations

import json

import pytest

from fullgraph.testing import Record

MODULE = """
def whole(v, k=2):
    return v * k

def branches(v):
    if v.max() > 1:
        v = v / 2
    return v + 1

def halves(v):
    while v.sum() > 1:
        v = v / 2
    return v

def raises(v):
    raise ValueError("need 2-d")

def shape(v):
    return v.shape[0]

def unequal(v):
    import torch
    return v + (1 if torch.compiler.is_compiling() else 0)

number = 3
"""


@pytest.fixture
def explain(fullgraph_command, tmp_path, request):
    name = f"fg_explained_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)

    def run(function, *options):
        return fullgraph_command("explain", f"{name}:{function}", *options)

    return run


def test_a_whole_function(explain):
    ran = explain("whole", "--arg", "float64[3,4]", "--kwarg", "k=3")
    assert ran.code == 0
    lines = [line.split() for line in ran.out.splitlines()]
    assert lines[1][:2] == ["compile", "whole"]
    assert lines[2][:2] == ["fullgraph", "whole"]
    assert ran.out.count("equal to eager") == 2


def test_a_break_is_shown_in_its_source_with_the_fix(explain):
    ran = explain("branches", "--arg", "float64[3]")
    assert ran.code == 1
    assert "1 break" in ran.out
    assert "❱ 6     if v.max() > 1:" in ran.out
    assert "instead: an `if` that looks at a tensor: `xp.where" in ran.out


def test_a_loop_on_values_points_to_while_loop(explain):
    ran = explain("halves", "--arg", "float64[3]=ones")
    assert ran.code == 1
    assert "a `while` that looks at a tensor: `fullgraph.while_loop(" in ran.out
    assert "one operator of the graph under torch.compile" in ran.out


def test_a_call_that_raises_is_not_well(explain):
    ran = explain("raises", "--arg", "float64[3]")
    assert ran.code == 1
    assert "raises, eagerly too: ValueError: need 2-d" in ran.out


def test_nothing_to_compile_is_well(explain):
    ran = explain("shape", "--arg", "float64[3]")
    assert (ran.code, "nothing to compile" in ran.out) == (0, True)


def test_a_different_result_is_not_well(explain):
    ran = explain("unequal", "--arg", "float64[3]")
    assert ran.code == 1
    assert "differ" in ran.out.lower() or "mismatch" in ran.out.lower()


def test_json(explain):
    ran = explain("branches", "--arg", "float64[3]", "--json")
    data = json.loads(ran.out)
    assert ran.code == 1
    assert data["modes"]["compile"] == {
        "status": "1 break",
        "whole": False,
        "equal": True,
        "comparison": "equal to eager",
    }
    assert Record.from_json(json.dumps(data["record"])).breaks[0].line == 6


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "has no 'nothing'"),
        ("number", "names no function: write module:function"),
    ],
)
def test_what_is_no_function_is_refused(explain, function, message):
    ran = explain(function)
    assert (ran.code, message in ran.err) == (2, True)
