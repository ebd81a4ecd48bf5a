"""Each entry of the table of known torch bugs, on the releases that have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fullgraph.errors import MismatchError, NothingCompiledError
from fullgraph.testing import Outcome, check_compiled, compiled
from fullgraph.testing._dynamo.breaks import Break, Location
from fullgraph.testing._dynamo.versions import torch_release
from fullgraph.testing._torch_bugs import KNOWN_BUGS, known_bug

RELEASE = torch_release()
on_2_14 = pytest.mark.skipif(RELEASE != (2, 14), reason="a bug of torch 2.14")
on_2_15 = pytest.mark.skipif(RELEASE < (2, 15), reason="a bug of torch >= 2.15")
before_2_15 = pytest.mark.skipif(RELEASE >= (2, 15), reason="fixed in torch 2.15")


def x():
    return torch.arange(4.0)


def ask_a_slice(v):
    try:
        kind = slice(0, 2).dtype
    except AttributeError:
        kind = None
    return v + (0 if kind is None else 1)


def at_a_slice(v):
    xpx = pytest.importorskip("array_api_extra")
    return xpx.at(v, slice(0, 2)).set(7.0)


def make_parameter(v):
    return torch.nn.Parameter(v.detach()) * 2


def call_numpy(v, a):
    return v + int(np.all(np.asarray(a) <= 1))


def test_every_entry_has_a_name_of_its_own_and_a_release():
    names = [bug.name for bug in KNOWN_BUGS]
    assert len(set(names)) == len(names)
    assert all(bug.since < bug.until and bug.what for bug in KNOWN_BUGS)


def test_an_entry_matches_its_releases_only():
    event = Break(
        Location("/a.py", 1, "f"),
        "InternalTorchDynamoError: AttributeError: 'slice' object has no attribute 'dtype'",
    )
    assert known_bug(event, (2, 14)).name == "slice-attribute-error"
    assert known_bug(event, (2, 13)) is None
    assert known_bug(event, (2, 15)) is None
    assert known_bug(Break(Location("/a.py", 1, "f"), "Data-dependent branching"), (2, 14)) is None


@on_2_14
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("budget", [None, 0, 1])
def test_slice_attribute_error(mode, budget):
    call = compiled(ask_a_slice, mode=mode, allow_graph_breaks=budget)
    for _ in range(2):  # finished eagerly; the outcome of the test stands
        assert torch.equal(call(x()), x())
    found = call.record
    assert set(found.calls) <= {Outcome.TORCH_BUG, Outcome.FRAME_SKIPPED, Outcome.GRAPH_RAN}
    assert {site.torch_bug for site in found.breaks} == {"slice-attribute-error"}
    assert found.whole == 0


@on_2_14
def test_slice_attribute_error_proves_nothing_to_check_compiled():
    with pytest.raises(NothingCompiledError, match=r"known bug of torch|gave the function up"):
        check_compiled(ask_a_slice, (x(),))


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_setting_a_slice_with_xpx_is_right_or_a_known_bug(mode):
    pytest.importorskip("array_api_extra")
    call = compiled(at_a_slice, mode=mode, allow_graph_breaks=None)
    assert call(x()).tolist() == [7, 7, 2, 3]
    if RELEASE == (2, 14):
        assert any(site.torch_bug for site in call.record.breaks)


@on_2_15
def test_fullgraph_of_2_15_gives_a_wrong_value_which_the_comparison_finds():
    """`slice(0, 2).dtype` is traced as if it were there: the branch for slices is not taken.

    Nothing breaks, so that no budget can tell; `check_compiled` compares, and raises.
    """
    call = compiled(ask_a_slice, mode="fullgraph", allow_graph_breaks=0)
    wrong = call(x())
    if wrong is not None and torch.equal(wrong, x()):
        pytest.fail("torch no longer has this bug: remove the entry and this test")
    with pytest.raises(MismatchError, match="compiled"):
        check_compiled(ask_a_slice, (x(),))


@on_2_15
def test_slice_attribute_type():
    event = Break(Location("/a.py", 1, "f"), "GetAttrVariable(SliceVariable(), dtype) has no type")
    assert known_bug(event, RELEASE).name == "slice-attribute-type"


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_parameter_constructor(mode):
    call = compiled(make_parameter, mode=mode, allow_graph_breaks=0)
    for _ in range(2):
        assert torch.equal(call(x()).detach(), x() * 2)
    assert {site.torch_bug for site in call.record.breaks} == {"parameter-constructor"}
    assert call.record.whole == 0


@before_2_15
@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
def test_numpy_under_a_function_mode(mode):
    config = {"trace_numpy": True}
    call = compiled(call_numpy, mode=mode, allow_graph_breaks=0, config=config)
    with torch.device("cpu"):
        assert torch.equal(call(x().double(), np.zeros(4)), x().double() + 1)
    assert {site.torch_bug for site in call.record.breaks} == {"numpy-under-function-mode"}


def test_power_of_minus_one_on_torchs_eager_backend_is_why_the_interpreter_is_used():
    wrong = torch.compile(lambda t: (-1) ** t, backend="eager")(torch.arange(4)).tolist()
    if wrong == [1, -1, 1, -1]:
        pytest.fail("torch prints this expression right: the interpreter may be reconsidered")
    assert compiled(lambda t: (-1) ** t)(torch.arange(4)).tolist() == [1, -1, 1, -1]
