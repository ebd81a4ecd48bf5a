"""Advice that looks at the source around a break."""

from __future__ import annotations

import pytest
from made_records import site

from fullgraph.cli.instead import instead, statements_around

SOURCE = """\
def f(v):
    while v.sum() > 1:
        v = v / 2
    if v.max() > 0:
        v = -v
    for _ in range(3):
        v = v / float(v.max())
    try:
        v = v + v.item()
    except ValueError:
        pass
    def g():
        return [bool(x) for x in v]
    return v
"""


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        (2, ["while"]),
        (3, ["while"]),
        (4, ["if"]),
        (7, ["for"]),
        (9, ["try"]),
        (13, ["comprehension"]),
        (14, []),
    ],
)
def test_what_is_around_a_line(line, kinds):
    assert statements_around(SOURCE, line) == kinds


def test_source_that_cannot_be_parsed_has_nothing_around():
    assert statements_around("def f(:", 1) == []


@pytest.mark.parametrize(
    ("line", "reason", "words"),
    [
        (2, "Data-dependent branching", ["fullgraph.while_loop"]),
        (4, "Data-dependent branching", ["xp.where", "fullgraph.cond"]),
        (3, "Tensor.item()", ["keep it a 0-d tensor", "fullgraph.while_loop"]),
        (7, "Tensor.item()", ["keep it a 0-d tensor", "fullgraph.fori_loop", "fullgraph.scan"]),
        (9, "Tensor.item()", ["keep it a 0-d tensor", "move the line out of it"]),
        (14, "print", ["output is written: return the value"]),
    ],
)
def test_the_fix_fits_the_statement(line, reason, words):
    said = " ".join(instead(site(line, reason.replace("print", "builtin print")), SOURCE))
    for word in words:
        assert word in said
