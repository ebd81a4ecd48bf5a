from __future__ import annotations

import collections
import dataclasses

import numpy as np
import pytest
import torch

from fullgraph.errors import MismatchError
from fullgraph.testing._compare import assert_same, copied

Point = collections.namedtuple("Point", "a b")  # noqa: PYI024


@dataclasses.dataclass
class Data:
    v: object


@dataclasses.dataclass(slots=True)
class Slots:
    v: object


class Attributes:
    def __init__(self, v):
        self.v = v


class Opaque:
    __slots__ = ()


class NoTruth:
    __slots__ = ()
    __hash__ = None

    def __eq__(self, other):
        raise ValueError("ambiguous")


def t(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (t(1.0), t(1.0 + 1e-7)),
        (t(float("nan")), t(float("nan"))),
        (torch.ones(2, device="meta"), torch.ones(2, device="meta")),
        (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
        (t(1j, dtype=torch.complex64), t(1j, dtype=torch.complex64)),
        (t(True, dtype=torch.bool), t(True, dtype=torch.bool)),
        (np.ones(2), np.ones(2) + 1e-12),
        (np.float64("nan"), np.float64("nan")),
        (np.array(["a"]), np.array(["a"])),
        (float("nan"), float("nan")),
        ([1, {"a": (None, "s")}], [1, {"a": (None, "s")}]),
        (Point(1, t(1)), Point(1, t(1))),
        (Data(t(1)), Data(t(1))),
        (Attributes([1, t(1)]), Attributes([1, t(1)])),
        (Opaque(), Opaque()),
        (NoTruth(), NoTruth()),
        (torch.Size([2]), torch.Size([2])),
        (range(3), range(3)),
        ({1, 2}, {2, 1}),
    ],
)
def test_same(one, two):
    assert_same(one, two, what="result", name="f")


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (t(1.0), t(1.0, dtype=torch.float64), "has dtype torch.float32, eager torch.float64"),
        (t(1.0), t(1.0, 2.0), r"has shape \[1\], eager \[2\]"),
        (t(1.0), torch.ones(1, device="meta"), "has device cpu, eager meta"),
        (t(1.0), t(1.0).requires_grad_(), "has requires_grad False, eager True"),
        (t(1.0), t(1.1), r"(?s)differ in result: .*(Scalars|Tensor-likes) are not close"),
        (Slots(t(1.0, 2.0)), Slots(t(1.0, 3.0)), r"result\.v: "),
        (Attributes([t(1.0, 2.0)]), Attributes([t(1.0, 3.0)]), r"result\.v\[0\]: "),
        (torch.eye(2), torch.eye(2).to_sparse(), "layout"),
        ([t(1.0)], [t(2.0)], r"result\[0\]"),
        ({"k": [0, t(1.0)]}, {"k": [0, t(2.0)]}, r"result\['k'\]\[1\]"),
        ([1], (1,), "has another structure than the eager one"),
        ([1], [1, 2], "has another structure"),
        ({"a": 1}, {"b": 1}, "has another structure"),
        (None, t(1), r"compiled is a NoneType, eager a torch\.Tensor"),
        (1, 1.0, "compiled is a int, eager a float"),
        (1, 2, "compiled 1, eager 2"),
        (True, 1, "compiled is a bool, eager a int"),
        ("a", "b", "compiled 'a', eager 'b'"),
        (np.ones(2), np.ones(3), r"compiled float64\[2\], eager float64\[3\]"),
        (np.ones(2), np.ones(2, np.float32), r"compiled float64\[2\], eager float32\[2\]"),
        (np.ones(2), np.zeros(2), "values differ"),
        (np.arange(2), np.arange(1, 3), "values differ"),
        (np.float64(1), 1.0, r"compiled is a numpy\.float64, eager a float"),
        (Data(1), Data(2), r"\.v: compiled 1, eager 2"),
        (Attributes(t(1.0)), Attributes(t(2.0)), r"\.v: "),
        (Attributes([t(1.0)]), Attributes([t(2.0)]), r"\.v"),
        (Attributes({"a": t(1.0)}), Attributes({"a": t(2.0)}), r"\.v"),
        (Data(1), Attributes(1), r"is a .*Data, eager a .*Attributes"),
        (int, float, "compiled <class 'int'>, eager <class 'float'>"),
        (torch.Size([2]), torch.Size([3]), "structure|differ"),
        (range(3), range(4), r"compiled range\(0, 3\), eager range\(0, 4\)"),
        ({1}, {2}, r"compiled \{1\}, eager \{2\}"),
    ],
)
def test_different(one, two, message):
    with pytest.raises(MismatchError, match=message) as caught:
        assert_same(one, two, what="result", name="mod:f")
    assert str(caught.value).startswith("mod:f: ")


def test_attributes_are_compared_by_name():
    one, two = Attributes(1), Attributes(1)
    one.extra = 1
    with pytest.raises(MismatchError, match=r"has attributes \['extra', 'v'\], eager \['v'\]"):
        assert_same(one, two, what="argument", name="f")


def test_tolerances():
    assert_same(t(1.0), t(1.1), what="r", name="f", atol=0.2)
    assert_same(t(1.0), t(1.1), what="r", name="f", rtol=0.2)
    assert_same(np.ones(1), np.ones(1) * 1.1, what="r", name="f", rtol=0.2)
    assert_same(Attributes(t(1.0)), Attributes(t(1.1)), what="r", name="f", rtol=0.2)
    with pytest.raises(MismatchError):
        assert_same(t(1.0), t(1.0 + 1e-6), what="r", name="f", rtol=0)


def test_copies_are_independent():
    tensor, array = torch.zeros(2, requires_grad=True), np.zeros(2)
    copy = copied({"t": tensor, "a": [array], "n": None})
    with torch.no_grad():
        tensor.add_(1)
    array += 1
    assert copy["t"].tolist() == [0, 0]
    assert copy["t"].requires_grad
    assert copy["a"][0].tolist() == [0, 0]
    assert copy["n"] is None


def test_a_recursive_object_ends():
    one, two = Attributes(1), Attributes(1)
    one.v, two.v = [one, one], [two, two]
    assert_same(one, two, what="result", name="f")
    one.w, two.w = 1, 2
    with pytest.raises(MismatchError, match=r"result\.w"):
        assert_same(one, two, what="result", name="f")
