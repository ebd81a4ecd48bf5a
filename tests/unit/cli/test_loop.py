"""``fullgraph loop``, with what explains loops and without it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

BODY = "def step(carry, x):\n    return carry + x, carry\n"


@dataclass(frozen=True)
class Explanation:
    refused: str = ""
    c_text: str = "double step;"

    def __str__(self):
        return f"refused: {self.refused}" if self.refused else f"compiled\n{self.c_text}"


@pytest.fixture
def body(tmp_path):
    (tmp_path / "fg_loop_body.py").write_text(BODY)
    return "fg_loop_body:step"


@pytest.fixture
def given(monkeypatch):
    """What the explaining function was called with; and a module that has it."""
    seen = {}

    def explain_loop(body, init, xs, *, length=None):
        seen.update(body=body, init=init, xs=xs, length=length)
        return Explanation(refused="" if length != 0 else "no steps")

    module = ModuleType("fullgraph.torch_loop")
    module.explain_loop = explain_loop
    monkeypatch.setitem(sys.modules, "fullgraph.torch_loop", module)
    return seen


def test_arguments_become_arrays(fullgraph_command, body, given):
    options = ("--init", "float64[2]=zeros", "--init", "1.5", "--xs", "float64[5,2]")
    ran = fullgraph_command("loop", body, *options)
    assert (ran.code, ran.out) == (0, "compiled\n")
    assert fullgraph_command("loop", body, *options, "--c").out == "compiled\ndouble step;\n"
    carry, number = given["init"]
    assert (carry.tolist(), number) == ([0, 0], 1.5)
    assert given["xs"].shape == (5, 2)
    assert given["body"].__name__ == "step"


def test_a_refused_body_exits_with_1(fullgraph_command, body, given):
    ran = fullgraph_command("loop", body, "--init", "0.0", "--length", "0", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["refused"] == "no steps"
    assert given["xs"] is None


@pytest.mark.skipif(sys.platform != "linux", reason="native loops need Linux")
def test_a_real_body(fullgraph_command, body):
    ran = fullgraph_command("loop", body, "--init", "float64[2]", "--xs", "float64[5,2]")
    assert ran.code == 0
    assert "add" in ran.out
    assert "#include" not in ran.out


def test_without_the_explaining_function_it_says_so(fullgraph_command, body, monkeypatch):
    monkeypatch.setitem(sys.modules, "fullgraph.torch_loop", ModuleType("fullgraph.torch_loop"))
    ran = fullgraph_command("loop", body, "--init", "0.0")
    assert ran.code == 3
    assert "this installation cannot explain loops" in ran.err
