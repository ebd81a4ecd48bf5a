"""Refusals of arguments: each message names the argument and what is accepted."""

import array_api_strict as strict
import numpy as np
import pytest

from fullgraph import cond, fori_loop, scan, while_loop
from fullgraph.errors import (
    CarryError,
    FullgraphException,
    LoopTypeError,
    StackedOutputError,
    UsageError,
)

ZERO = np.zeros(2)


def keep(c, x):
    return c, None


@pytest.mark.parametrize(
    ("xs", "length", "text"),
    [
        (None, None, "needs xs or length, and got neither"),
        ((), None, "needs xs or length, and got neither"),
        (np.zeros(3), 4, "length is 4, and xs has 3 on the leading axis"),
        (
            {"a": np.zeros(3), "b": np.zeros((4, 2))},
            None,
            r'xs\["a"\] has 3, xs\["b"\] has 4 on the leading axis',
        ),
        ((np.zeros(3), np.asarray(1.0)), None, r"xs\[1\] is 0-dimensional"),
        (None, -1, "length must be an int that is at least 0, and is -1"),
        (None, 2.0, r"length must be an int that is at least 0, and is 2\.0"),
        (None, True, "length must be an int that is at least 0, and is True"),
    ],
)
def test_length(xs, length, text):
    with pytest.raises(UsageError, match=text) as caught:
        scan(keep, ZERO, xs, length=length)
    assert isinstance(caught.value, ValueError)


def test_length_may_be_a_numpy_integer():
    assert scan(lambda c, x: (c + 1, None), ZERO, length=np.int64(2))[0][0] == 2


@pytest.mark.parametrize(
    ("init", "text"),
    [
        ("text", r"carry is str, which is no array"),
        ({"a": object()}, r'carry\["a"\] is object, which is no array'),
        ((ZERO, "text"), r"carry\[1\] is str, which is no array"),
        ((ZERO, strict.zeros(2)), r"carry\[0\] is numpy, carry\[1\] is array_api_strict"),
        (np.ma.zeros(2), r"carry is numpy\.ma\.\w*\.?MaskedArray, and this loop runs on NumPy"),
    ],
)
def test_leaves(init, text):
    with pytest.raises(LoopTypeError, match=text):
        scan(keep, init, np.zeros(2))


def test_python_number_in_xs():
    with pytest.raises(LoopTypeError, match=r"xs\[1\] is float, and this loop runs on NumPy"):
        scan(keep, ZERO, (np.zeros(2), 1.0))


def test_libraries_of_init_and_xs():
    with pytest.raises(LoopTypeError, match="carry is numpy, xs is array_api_strict"):
        scan(keep, ZERO, strict.zeros(2))


def test_xp_of_another_library():
    with pytest.raises(LoopTypeError, match="xp is array_api_strict, carry is numpy"):
        scan(keep, ZERO, np.zeros(2), xp=strict)


def test_only_numbers_need_xp():
    for call in (
        lambda: scan(keep, 0.0, length=2),
        lambda: while_loop(lambda c: c < 3, lambda c: c + 1, 0),
        lambda: fori_loop(0, 2, lambda i, c: c, (0, None)),
    ):
        with pytest.raises(UsageError, match="say where it runs with xp="):
            call()


@pytest.mark.parametrize("bounds", [(0, 2.5), (None, 3), (0, True), (0, np.zeros(2))])
def test_fori_bounds(bounds):
    with pytest.raises(UsageError, match="must be an int, and is"):
        fori_loop(*bounds, lambda i, c: c, ZERO)


@pytest.mark.parametrize("steps", [-1, 2.0, True])
def test_max_steps(steps):
    with pytest.raises(UsageError, match="max_steps must be an int that is at least 0"):
        while_loop(lambda c: c[0] < 3, lambda c: c + 1, ZERO, max_steps=steps)


@pytest.mark.parametrize(
    ("verdict", "text"),
    [
        (np.ones(1, dtype=bool), r"bool of shape \(1,\)"),
        (np.asarray(1), r"int64 of shape \(\)"),
        (1, "is int"),
        (None, "is NoneType"),
    ],
)
def test_predicate(verdict, text):
    with pytest.raises(LoopTypeError, match=f"what cond returned must be a bool.*{text}"):
        while_loop(lambda c: verdict, lambda c: c, ZERO)
    if verdict is not None:
        with (
            pytest.raises(LoopTypeError, match=r"pred must be a bool")
            if not isinstance(verdict, int)
            else pytest.raises(FullgraphException)
        ):
            cond(verdict, lambda: 1, lambda: 2)


def test_y_that_changes():
    flip = iter([np.zeros(2), np.zeros(3)])
    with pytest.raises(
        StackedOutputError,
        match=r"y is float64 of shape \(2,\) in the first step "
        r"and float64 of shape \(3,\) in step 1",
    ):
        scan(lambda c, x: (c, next(flip)), ZERO, length=2)


def test_y_that_changes_dtype():
    flip = iter([np.zeros(2), np.zeros(2, dtype="float32")])
    with pytest.raises(StackedOutputError, match=r"y\[\"a\"\] is float64.*and float32"):
        scan(lambda c, x: (c, {"a": next(flip)}), ZERO, length=2)


def test_y_that_changes_structure():
    flip = iter([None, np.zeros(2)])
    with pytest.raises(StackedOutputError, match=r"y is None in the first step and \* in step 1"):
        scan(lambda c, x: (c, next(flip)), ZERO, length=2)


def test_y_that_is_no_array():
    with pytest.raises(StackedOutputError, match=r"y\[0\] is str, which is no array"):
        scan(lambda c, x: (c, ("text",)), ZERO, length=2)


def test_carry_of_another_library():
    with pytest.raises(
        CarryError,
        match=r"goes into the body as a NumPy array and comes out as "
        r"array_api_strict",
    ):
        scan(lambda c, x: (strict.zeros(2), None), ZERO, length=2)


def test_python_number_for_an_array():
    with pytest.raises(CarryError, match=r"with shape \(2,\) and comes out with shape \(\)"):
        scan(lambda c, x: (1.0, None), ZERO, length=2)
    with pytest.raises(CarryError, match="as int64 and comes out as a Python float"):
        scan(lambda c, x: (1.5, None), np.asarray(0), length=2)
    assert scan(lambda c, x: (1, None), np.asarray(0.5), length=2)[0] == 1.0


def test_python_number_out_of_range():
    with pytest.raises(CarryError, match="is uint8, and the body returned the Python number 300"):
        scan(lambda c, x: (300, None), np.asarray(0, dtype="uint8"), length=2)


def test_weak_number_that_its_dtype_cannot_hold():
    with pytest.raises(CarryError, match=r"as the Python number 0\.5 and comes out as int64"):
        scan(lambda c, x: (x, None), 0.5, np.arange(3))


def test_weak_number_that_grows_a_shape():
    with pytest.raises(CarryError, match=r"with shape \(\) and comes out with shape \(2,\)"):
        scan(lambda c, x: (c + x, None), 0.0, np.ones((3, 2)))


def test_weak_number_that_becomes_no_array():
    with pytest.raises(LoopTypeError, match="carry comes out of the body as str"):
        scan(lambda c, x: ("text", None), 0.0, np.ones(3))


def test_body_that_cannot_take_placeholder_rows():
    def body(c, x):
        raise ZeroDivisionError("no ones")

    with pytest.raises(
        UsageError,
        match=r"has no steps, so its body was evaluated once.*ZeroDivisionError: no ones",
    ) as caught:
        scan(body, ZERO, np.zeros((0, 2)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_xp_that_is_no_namespace():
    with pytest.raises(UsageError, match=r"xp must be an array namespace, .* and is 'numpy'"):
        scan(keep, 0.0, length=2, xp="numpy")


def test_fori_bounds_beyond_the_default_integer():
    with pytest.raises(UsageError, match=r"from 0 to 2361183241434822606848 does not fit int64"):
        fori_loop(0, 2**71, lambda i, c: c, ZERO)
    with pytest.raises(UsageError, match="does not fit int64, the default integer dtype of NumPy"):
        fori_loop(-(2**63) - 1, 0, lambda i, c: c, ZERO)
    last = fori_loop(2**63 - 2, 2**63 - 1, lambda i, c: i, np.asarray(0))
    assert int(last) == 2**63 - 2
    with pytest.raises(UsageError, match="does not fit int64"):
        fori_loop(2**80, 0, lambda i, c: c, ZERO)


def test_weak_number_beyond_its_dtype():
    xs = np.zeros(2, dtype=np.int8)
    with pytest.raises(CarryError, match="Python number 300 and comes out as int8, which cannot"):
        scan(lambda c, x: (x, None), 300, xs)
