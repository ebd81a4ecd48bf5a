from __future__ import annotations

import os

import pytest
import torch

from fullgraph.testing._dynamo import breaks
from fullgraph.testing._dynamo.breaks import (
    Location,
    function_name,
    parse_message,
    parse_reason,
    user_stack,
)

TORCH = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "polyfills.py")
ENTRY = os.path.join(os.path.dirname(torch.__file__), "_dynamo", "eval_frame.py")
OURS = os.path.join(os.path.dirname(os.path.dirname(breaks.__file__)), "_adaptors.py")
MESSAGE = """Graph break in user code at /src/a.py:7
Graph Break Reason: Data-dependent branching
  Explanation: It cannot be
    known.
  Hint: Do this.
  Hint: Or
    that.

  Developer debug context: x

User code traceback:
  File "/src/b.py", line 2, in torch_dynamo_resume_in_g_at_1
    f(v)
  File "/src/a.py", line 7, in f
    if v:
"""


def test_a_message():
    event = parse_message(MESSAGE)
    assert event.where == Location("/src/a.py", 7, "f")
    assert event.reason == "Data-dependent branching"
    assert event.explanation == "It cannot be known."
    assert event.hints == ("Do this.", "Or that.")
    assert event.callers == (Location("/src/b.py", 2, "g"),)
    assert not event.skips_frame


def test_what_is_no_message():
    assert parse_message("Recompiling function f") is None


def test_a_message_without_a_stack_has_its_stated_line():
    event = parse_message(MESSAGE.partition("\n\nUser code")[0])
    assert event.where == Location("/src/a.py", 7, "")


def test_preface_and_skip():
    reason, *_, skips = parse_reason(
        "Encountered graph break when attempting to trace CALL: f(v)\n\n"
        "Failed to handle graph break gracefully. Skipping the function and falling back.\n\nreal"
    )
    assert (reason, skips) == ("real", True)
    assert parse_reason("")[0] == "unknown"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["/t.py", ENTRY, "/a.py", "/b.py"], ["/a.py", "/b.py"]),
        (["/a.py", "/b.py", TORCH], ["/a.py", "/b.py"]),
        (["/t.py", OURS, ENTRY, "/a.py", TORCH], ["/a.py"]),
        (["/t.py", OURS], []),
        (["/t.py", ENTRY, TORCH], []),
        (["/x/array_api_compat/torch/_aliases.py"], ["/x/array_api_compat/torch/_aliases.py"]),
        ([], []),
    ],
)
def test_the_lines_that_are_the_users(files, expected):
    stack = [Location(file, n, "f") for n, file in enumerate(files)]
    assert [place.file for place in user_stack(stack)] == expected


def test_name_of_a_resume_function():
    name = "torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_5"
    assert function_name(name) == "f"
    assert function_name("f") == "f"
