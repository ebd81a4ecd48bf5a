"""The adapter registry."""

import dataclasses
import types

import array_api_compat.numpy as compat_numpy
import numpy as np
import pytest

import fullgraph
from fullgraph import (
    LoopAdapter,
    get_loop_adapter,
    register_loop_adapter,
    scan,
    use_loop_adapter,
    while_loop,
)
from fullgraph.loops import _adapter


@pytest.fixture(autouse=True)
def _clean_registry(monkeypatch):
    monkeypatch.setattr(_adapter, "_BY_NAME", {})
    monkeypatch.setattr(_adapter, "_BY_CANONICAL", {})


def adapter(tag):
    return LoopAdapter(scan=lambda body, init, xs, *, length=None, reverse=False: (tag, tag))


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        adapter(1).scan = None


def test_defaults():
    assert (adapter(1).checkpoint, adapter(1).while_loop) == (None, None)


@pytest.mark.parametrize("name", ["", None, 3])
def test_empty_name(name):
    with pytest.raises(ValueError, match="must have a name"):
        register_loop_adapter(name, adapter(1))
    with pytest.raises(ValueError, match="must have a name"), use_loop_adapter(name, adapter(1)):
        pass


def test_wrong_type():
    with pytest.raises(TypeError, match=r"must be a fullgraph\.LoopAdapter, and is function"):
        register_loop_adapter("mylib", lambda body, init, xs: None)
    with pytest.raises(TypeError, match="and is int"), use_loop_adapter("mylib", 3):
        pass


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("pytorch", "torch"),
        ("Torch", "torch"),
        ("array_api_compat.pytorch", "torch"),
        ("torch.linalg", "torch"),
        ("nunpy", "numpy"),
        ("np", "numpy"),
        ("jnp", "jax.numpy"),
        ("jax.nunpy", "jax.numpy"),
        ("array-api-strict", "array_api_strict"),
    ],
)
def test_misspelt_names_are_refused(name, meant):
    said = rf"no array has the namespace '{name}'.* never run. Did you mean '{meant}'\?"
    with pytest.raises(ValueError, match=said):
        register_loop_adapter(name, adapter(1))
    for value in (adapter(1), None):
        with pytest.raises(ValueError, match=said), use_loop_adapter(name, value):
            pass


@pytest.mark.parametrize("name", ["array_api_compat", "no_library_of_this_name"])
def test_names_of_nothing_are_refused(name):
    with pytest.raises(ValueError, match=r"would never run\. Known are numpy, torch, jax\.numpy"):
        register_loop_adapter(name, adapter(1))


def test_other_libraries_are_taken():
    mine = types.ModuleType("my_arrays")
    for namespace in ("json", mine):  # one that can be imported; one that is given
        one = adapter(1)
        with use_loop_adapter(namespace, one):
            assert get_loop_adapter(namespace) is one


def test_absent_is_none():
    assert get_loop_adapter("torch") is None
    assert get_loop_adapter(np) is None
    assert get_loop_adapter(types.SimpleNamespace()) is None


@pytest.mark.parametrize("given", ["torch", "array_api_compat.torch", "x.array_api_compat.torch"])
@pytest.mark.parametrize("asked", ["torch", "array_api_compat.torch", "y.array_api_compat.torch"])
def test_all_spellings_are_one_key(given, asked):
    one = adapter(1)
    register_loop_adapter(given, one)
    assert get_loop_adapter(asked) is one
    assert get_loop_adapter("numpy") is None


def test_exact_registration_wins():
    one, other = adapter(1), adapter(2)
    register_loop_adapter("torch", one)
    register_loop_adapter("vendor.array_api_compat.torch", other)
    assert get_loop_adapter("torch") is one
    assert get_loop_adapter("vendor.array_api_compat.torch") is other


def test_registration_by_module_and_replacement():
    register_loop_adapter(compat_numpy, adapter(1))
    last = adapter(2)
    register_loop_adapter(np, last)
    assert get_loop_adapter(np) is last


def test_registered_adapter_runs():
    assert scan(lambda c, x: (c, None), np.zeros(1), np.zeros((2, 1)))[1] is None
    register_loop_adapter("numpy", adapter("tag"))
    assert scan(lambda c, x: (c, None), np.zeros(1), np.zeros((2, 1))) == ("tag", "tag")


def test_exact_name_of_xp_wins():
    register_loop_adapter("numpy", adapter("plain"))
    register_loop_adapter("array_api_compat.numpy", adapter("compat"))
    arguments = (lambda c, x: (c, None), np.zeros(1), np.zeros((2, 1)))
    assert scan(*arguments)[0] == "plain"
    assert scan(*arguments, xp=compat_numpy)[0] == "compat"


def test_use_is_for_the_block_and_nests():
    one, other = adapter(1), adapter(2)
    with use_loop_adapter("numpy", one):
        assert get_loop_adapter("numpy") is one
        with use_loop_adapter("array_api_compat.numpy", other):
            assert get_loop_adapter("numpy") is other
        with use_loop_adapter("numpy", None):
            assert get_loop_adapter("numpy") is None
        assert get_loop_adapter("numpy") is one
    assert get_loop_adapter("numpy") is None


def test_use_ends_with_an_exception():
    with pytest.raises(KeyError), use_loop_adapter("numpy", adapter(1)):
        raise KeyError
    assert get_loop_adapter("numpy") is None


def test_use_is_not_seen_by_other_threads():
    import threading

    seen = []
    with use_loop_adapter("numpy", adapter(1)):
        thread = threading.Thread(target=lambda: seen.append(get_loop_adapter("numpy")))
        thread.start()
        thread.join()
    assert seen == [None]


def test_jax_is_registered_lazily():
    jax = pytest.importorskip("jax")
    assert _adapter._BY_CANONICAL == {}
    found = get_loop_adapter(jax.numpy)
    assert found.checkpoint is jax.checkpoint
    assert found.while_loop is not None
    assert get_loop_adapter("jax.numpy") is found


def test_jax_registration_can_be_replaced():
    pytest.importorskip("jax")
    mine = adapter(1)
    register_loop_adapter("jax.numpy", mine)
    assert get_loop_adapter("jax.numpy") is mine


def test_jax_absent(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "fullgraph.loops._jax", None)
    assert get_loop_adapter("jax.numpy") is None


def test_while_loop_of_an_adapter_gets_the_bound():
    seen = []

    def run(cond, body, init, *, max_steps=None):
        seen.append(max_steps)
        return "state"

    with use_loop_adapter("numpy", LoopAdapter(scan=None, while_loop=run)):
        assert while_loop(None, None, np.zeros(1), max_steps=3) == "state"
        assert while_loop(None, None, np.zeros(1)) == "state"
    assert seen == [3, None]


def test_adapter_without_while_loop_leaves_it_plain():
    with use_loop_adapter("numpy", adapter(1)):
        assert while_loop(lambda c: c < 3, lambda c: c + 1, np.asarray(0)) == 3


def test_fori_loop_goes_through_scan():
    with use_loop_adapter("numpy", adapter("tag")):
        assert fullgraph.fori_loop(0, 3, lambda i, c: c, np.zeros(1)) == "tag"


# --- Scans of other packages: three arguments are enough ---


def three_arguments(body, init, xs):
    """The seam of op_engine: no length, no reverse."""
    ys, carry = [], init
    for x in xs:
        carry, y = body(carry, x)
        ys.append(y)
    return carry, None if y is None else np.stack(ys)


def lax_like(body, init, xs=None, length=None, reverse=False, unroll=1):
    order = range(length) if xs is None else range(len(xs))
    ys, carry = [None] * len(order), init
    for i in reversed(order) if reverse else order:
        carry, ys[i] = body(carry, None if xs is None else xs[i])
    return carry, np.stack(ys)


@pytest.mark.parametrize("foreign", [three_arguments, lax_like])
@pytest.mark.parametrize("reverse", [False, True])
def test_foreign_scan(foreign, reverse):
    xs = np.array([1.0, 2.0, 4.0])

    def body(c, x):
        return c * 2 + x, c

    want = scan(body, np.asarray(1.0), xs, reverse=reverse)
    with use_loop_adapter("numpy", LoopAdapter(scan=foreign)):
        found = scan(body, np.asarray(1.0), xs, reverse=reverse)
    np.testing.assert_array_equal(found[0], want[0])
    np.testing.assert_array_equal(found[1], want[1])


@pytest.mark.parametrize("foreign", [three_arguments, lax_like])
def test_foreign_scan_by_length(foreign):
    seen = []

    def body(c, x):
        seen.append(x)
        return c * 2, c

    with use_loop_adapter("numpy", LoopAdapter(scan=foreign)):
        carry, ys = scan(body, np.asarray(1.0), length=3, reverse=True)
    assert seen == [None, None, None]
    assert carry == 8.0
    np.testing.assert_array_equal(ys, [4.0, 2.0, 1.0])


def test_foreign_scan_gets_checked_arguments():
    with use_loop_adapter("numpy", LoopAdapter(scan=three_arguments)):
        with pytest.raises(ValueError, match="neither"):
            scan(lambda c, x: (c, None), np.zeros(1))
        with pytest.raises(ValueError, match="length is 3"):
            scan(lambda c, x: (c, None), np.zeros(1), np.zeros(2), length=3)


def test_foreign_builtin_without_signature():
    from fullgraph.loops._foreign import _takes

    assert not _takes(dict.fromkeys, "length") or True  # never raises
    assert _takes(lambda **kwargs: None, "length")
    assert not _takes(three_arguments, "length")


def test_lax_scan_itself_is_a_foreign_scan():
    jax = pytest.importorskip("jax")
    with use_loop_adapter("jax.numpy", LoopAdapter(scan=jax.lax.scan)):
        carry, ys = scan(
            lambda c, x: (c + x, c), jax.numpy.asarray(0.0), jax.numpy.arange(3.0), reverse=True
        )
    assert float(carry) == 3.0
    np.testing.assert_array_equal(ys, [3.0, 2.0, 0.0])


def test_torch_scan_of_an_adapter_under_the_name_of_compat():
    torch = pytest.importorskip("torch")
    with use_loop_adapter("array_api_compat.torch", adapter("tag")):
        assert scan(lambda c, x: (c, None), torch.zeros(1), torch.zeros(2))[0] == "tag"
