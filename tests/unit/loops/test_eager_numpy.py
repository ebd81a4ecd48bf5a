"""The plain driver on NumPy: what a body may do with its arrays."""

import numpy as np
import pytest

from fullgraph import cond, scan, while_loop
from fullgraph.errors import InPlaceUpdateError, LoopTypeError

XS = np.arange(6.0).reshape(3, 2)


def test_body_that_reuses_its_buffer():
    """A buffer that is carry and y, and is written again in the next step, is copied in time."""
    buffer = np.empty(2)

    def step(c, x):
        swapped = c[::-1] + x
        buffer[...] = 0.0
        np.add(swapped, 0.0, out=buffer)
        return buffer, buffer

    c, want = np.zeros(2), []
    for x in XS:
        c = c[::-1] + x
        want.append(c)
    carry, ys = scan(step, np.zeros(2), XS)
    np.testing.assert_array_equal(ys, want)
    np.testing.assert_array_equal(carry, want[-1])
    assert not np.shares_memory(carry, buffer)


def test_carry_kept_by_the_body_stays_as_it_was():
    kept = []

    def step(c, x):
        kept.append(c)
        return c + x, None

    scan(step, np.zeros(2), XS)
    np.testing.assert_array_equal(kept, [[0.0, 0.0], [0.0, 1.0], [2.0, 4.0]])


WRITES = {
    "item": lambda a: a.__setitem__(0, 1.0),
    "augmented": lambda a: a.__iadd__(1.0),
    "out": lambda a: np.add(a, 1.0, out=a),
    "fill": lambda a: a.fill(3.0),
    "sort": lambda a: a.sort(),
    "copyto": lambda a: np.copyto(a, 5.0),
    "view": lambda a: a[::-1].__setitem__(0, 9.0),
}


@pytest.mark.parametrize("write", WRITES)
def test_writes(write):
    init = np.array([2.0, 1.0])

    def step(c, x):
        WRITES[write](c)
        return c, None

    with pytest.raises(InPlaceUpdateError) as caught:
        scan(step, init, XS)
    assert isinstance(caught.value.__cause__, ValueError)
    np.testing.assert_array_equal(init, [2.0, 1.0])


def test_write_into_a_scalar_row():
    def step(c, x):
        x[...] = 3.0
        return c, None

    with pytest.raises(InPlaceUpdateError):
        scan(step, np.zeros(2), np.arange(3.0))


def test_write_into_a_read_only_array_of_the_body_is_its_own_error():
    mine = np.zeros(2)
    mine.flags.writeable = False

    def step(c, x):
        mine[0] = 1.0
        return c, None

    with pytest.raises(ValueError, match="read-only") as caught:
        scan(step, np.zeros(2), XS)
    assert not isinstance(caught.value, InPlaceUpdateError)
    with pytest.raises(ValueError, match="read-only") as caught:
        while_loop(lambda c: c[0] < 3, lambda c: step(c, None)[0], np.zeros(2))
    assert not isinstance(caught.value, InPlaceUpdateError)


def test_code_that_asks_for_writable_memory_and_writes_nothing():
    def picky(array):
        if not array.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return array * 2

    carry, _ = scan(lambda c, x: (picky(c) + picky(x), None), np.zeros(2), XS)
    np.testing.assert_array_equal(carry, ((XS[0] * 2) * 2 + XS[1] * 2) * 2 + XS[2] * 2)


def test_write_in_cond():
    x = np.array([1.0, 2.0])

    def branch(v):
        v[0] = 5.0
        return v

    with pytest.raises(InPlaceUpdateError):
        cond(x[0] > 0, branch, branch, x)
    assert x[0] == 1.0


def test_other_errors_of_a_branch_are_its_own():
    with pytest.raises(ValueError, match="mine"):
        cond(np.asarray(True), lambda v: [][1] if v is None else _raise(), abs, np.zeros(1))


def _raise():
    raise ValueError("mine")


def test_big_endian_becomes_native():
    carry, ys = scan(lambda c, x: (c + x, c), np.zeros(2, dtype=">f8"), XS.astype(">f8"))
    assert carry.dtype.isnative
    assert ys.dtype.isnative
    np.testing.assert_array_equal(carry, XS.sum(axis=0))


def test_big_endian_results_become_native():
    carry, ys = scan(lambda c, x: ((c + x).astype(">f8"), c.astype(">f8")), np.zeros(2), XS)
    assert carry.dtype.isnative
    assert ys.dtype.isnative
    np.testing.assert_array_equal(carry, XS.sum(axis=0))


def test_memmap(tmp_path):
    xs = np.memmap(tmp_path / "xs", dtype="float64", mode="w+", shape=(3, 2))
    xs[...] = XS
    carry, ys = scan(lambda c, x: (c + x, c), np.zeros(2), xs)
    np.testing.assert_array_equal(carry, XS.sum(axis=0))
    assert type(ys) is np.ndarray


def test_subclasses_that_would_lose_their_nature_are_refused():
    with pytest.raises(LoopTypeError, match="MaskedArray"):
        scan(lambda c, x: (c, None), np.zeros(2), np.ma.masked_array(XS, XS > 3))


def test_numpy_scalars_are_arrays():
    carry, ys = scan(lambda c, x: (c + x, np.float32(1)), np.float64(0.5), np.arange(3.0))
    assert (carry.shape, carry.dtype, float(carry)) == ((), np.float64, 3.5)
    assert (ys.shape, ys.dtype) == ((3,), np.float32)


def test_results_are_writable():
    carry, ys = scan(lambda c, x: ((c[0] + x, c[1]), c), (np.zeros(2), np.ones(1)), XS)
    for leaf in (*carry, *ys):
        leaf[...] = 7.0


def test_python_numbers_as_y():
    _, ys = scan(lambda c, x: (c, (1, 2.5, True)), np.zeros(1), length=2)
    assert [y.dtype.name for y in ys] == ["int64", "float64", "bool"]


def test_weak_leaf_that_becomes_wider():
    carry, _ = scan(lambda c, x: (c * 0.5, None), 1, length=2, xp=np)
    assert (carry.dtype.name, float(carry)) == ("float64", 0.25)


def test_weak_leaf_takes_a_narrow_dtype():
    carry, ys = scan(lambda c, x: (c + x, c), 1, np.ones(3, dtype="int16"))
    assert (carry.dtype.name, ys.dtype.name, int(carry)) == ("int16", "int16", 4)


def test_weak_leaf_of_a_loop_that_never_runs_its_failing_body():
    state = while_loop(lambda s: s[0] < 0, lambda s: (1 // 0, s[1]), (3, np.zeros(1)))
    assert state[0].dtype == np.asarray(3).dtype
    assert int(state[0]) == 3


def test_nan_and_inf_pass():
    carry, ys = scan(lambda c, x: (c * x, c), np.array([np.nan, np.inf]), np.ones((2, 2)))
    np.testing.assert_array_equal(carry, [np.nan, np.inf])
    np.testing.assert_array_equal(ys[1], [np.nan, np.inf])


def test_empty_trees():
    carry, ys = scan(lambda c, x: ((), x), (), np.arange(3.0))
    assert carry == ()
    np.testing.assert_array_equal(ys, [0.0, 1.0, 2.0])


def test_warnings_of_the_body_come_once_per_step():
    with pytest.warns(RuntimeWarning, match="divide by zero") as caught:
        scan(lambda c, x: (c + 1.0 / x, None), 0.0, np.zeros(1))
    assert len(caught) == 1
