"""Values on the command line."""

from __future__ import annotations

import pytest
import torch

from fullgraph.cli.values import imported, parse_keyword, parse_value
from fullgraph.errors import UsageError


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("float64[3,4]", torch.float64, (3, 4)),
        ("float32[]", torch.float32, ()),
        ("complex64[2]", torch.complex64, (2,)),
        ("int8[2, 0]", torch.int8, (2, 0)),
        ("bool[5]", torch.bool, (5,)),
        ("bfloat16[2]", torch.bfloat16, (2,)),
    ],
)
def test_arrays(text, dtype, shape):
    found = parse_value(text)
    assert (found.dtype, tuple(found.shape)) == (dtype, shape)
    assert torch.equal(found, parse_value(text))


def test_two_arrays_of_one_kind_differ():
    assert not torch.equal(parse_value("float64[9]", 0), parse_value("float64[9]", 1))


def test_fills():
    assert parse_value("int64[2,3]=arange").tolist() == [[0, 1, 2], [3, 4, 5]]
    assert parse_value("float32[2]=ones").tolist() == [1, 1]
    assert parse_value("bool[]=zeros").item() is False


def test_literals_and_imports():
    assert parse_value("(1, 2.5, 'a', None)") == (1, 2.5, "a", None)
    assert parse_value("@math:pi") == imported("math:pi") == pytest.approx(3.14159, abs=1e-5)
    assert parse_keyword("axis=-1") == ("axis", -1)
    assert parse_keyword("dtype=@torch:float32") == ("dtype", torch.float32)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("float65[3]", "float65 is no dtype of torch"),
        ("load[3]", "load is no dtype of torch"),
        ("float64[3]=sevens", "cannot fill an array by 'sevens': accepted are normal, ones"),
        ("float64[a]", "cannot read the value"),
        ("x + 1", r"cannot read the value 'x \+ 1': write float64"),
        ("@no_such_module_at_all:f", "there is no module 'no_such_module_at_all'"),
        ("@math:no_such", "math has no 'no_such'"),
    ],
)
def test_what_cannot_be_read_is_refused(text, match):
    with pytest.raises(UsageError, match=match):
        parse_value(text)


def test_keywords_need_a_name():
    with pytest.raises(UsageError, match="write name=value"):
        parse_keyword("3")


def test_an_error_inside_a_module_comes_out_as_itself(tmp_path, monkeypatch):
    (tmp_path / "fg_broken_module.py").write_text("import no_such_module_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        imported("fg_broken_module")
