"""The JAX driver: under jit, vmap and grad, and where JAX raises in its own words."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from fullgraph import cond, fori_loop, scan, use_loop_adapter, while_loop  # noqa: E402
from fullgraph.errors import (  # noqa: E402
    BranchError,
    CarryError,
    InPlaceUpdateError,
    LoopCaptureError,
    UsageError,
)

XS = jnp.arange(6.0).reshape(3, 2)


def test_under_jit():
    def run(init, xs):
        return scan(lambda c, x: ({"c": c["c"] + x}, None), {"c": init}, xs)

    carry, ys = jax.jit(run)(jnp.zeros(2), XS)
    np.testing.assert_array_equal(carry["c"], XS.sum(0))
    assert ys is None


def test_one_trace_of_the_body_per_call():
    calls = []

    def step(c, x):
        calls.append(1)
        return c + x, c

    scan(step, jnp.zeros(2), jnp.ones((100, 2)))
    assert len(calls) < 4


def test_never_stale_in_one_jit():
    k = 2.0

    def step(c, x):
        return c * k, None

    first, _ = scan(step, jnp.asarray(1.0), length=3)
    k = 3.0
    second, _ = scan(step, jnp.asarray(1.0), length=3)
    assert (float(first), float(second)) == (8.0, 27.0)


def test_while_result_under_jit():
    def run(x):
        return while_loop(lambda s: s < 50.0, lambda s: s * 2, x, max_steps=20)

    result = jax.jit(run)(jnp.asarray(3.0))
    assert type(result).__name__ == "WhileResult"
    assert (float(result.state), int(result.steps), bool(result.done)) == (96.0, 5, True)


def test_gradient_of_lanes_that_have_stopped_is_finite():
    """Under vmap a stopped lane is still evaluated; its NaN must not reach a gradient."""

    def loss(a):
        return while_loop(
            lambda s: s < 0.97, lambda s: s + a * jnp.sqrt(1.0 - s), a, max_steps=12
        ).state

    starts = jnp.asarray([0.3, 0.6, 0.9])
    found = jax.vmap(jax.grad(loss))(starts)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, [float(jax.grad(loss)(a)) for a in starts], rtol=1e-5)


def test_vmap_of_a_scan():
    found = jax.vmap(lambda c: scan(lambda c, x: (c * x, c), c, XS[:, 1])[0])(jnp.arange(3.0))
    np.testing.assert_allclose(found, jnp.arange(3.0) * XS[:, 1].prod())


def test_max_steps_of_zero():
    result = while_loop(lambda s: s < 5, lambda s: s + 1, jnp.asarray(1.0), max_steps=0)
    assert (float(result.state), int(result.steps), bool(result.done)) == (1.0, 0, False)


def test_checkpoint_of_the_adapter():
    from fullgraph import get_loop_adapter

    step = get_loop_adapter(jnp).checkpoint(lambda c, x: (jnp.sin(c) + x, c))
    np.testing.assert_allclose(
        jax.grad(lambda c: scan(step, c, XS)[0].sum())(jnp.zeros(2)),
        jax.grad(lambda c: scan(lambda c, x: (jnp.sin(c) + x, c), c, XS)[0].sum())(jnp.zeros(2)),
    )


def test_choice_on_data_is_explained():
    with pytest.raises(LoopCaptureError, match=r"needs a value while it is traced.*xp\.where") as e:
        scan(lambda c, x: (c if c[0] > 0 else x, None), jnp.zeros(2), XS)
    assert isinstance(e.value.__cause__, jax.errors.TracerBoolConversionError)


def test_numpy_on_a_tracer_is_explained():
    with pytest.raises(LoopCaptureError, match="TracerArrayConversionError"):
        scan(lambda c, x: (jnp.asarray(np.sin(c)), None), jnp.zeros(2), XS)


def test_choice_on_data_in_a_while_loop():
    with pytest.raises(LoopCaptureError):
        while_loop(lambda c: True if c[0] > 0 else False, lambda c: c, jnp.zeros(2))  # noqa: SIM210


def test_traced_bound_of_fori_loop():
    with pytest.raises(UsageError, match="known only while the loop runs needs while_loop"):
        jax.jit(lambda n: fori_loop(0, n, lambda i, c: c + 1, jnp.zeros(2)))(3)


def test_fori_index():
    seen = []

    def body(i, c):
        seen.append((i.shape, i.dtype.kind))
        return c + i

    assert float(fori_loop(0, 4, body, jnp.asarray(0.0))) == 6.0
    assert set(seen) == {((), "i")}


def test_weak_arrays_of_jax_are_what_they_show():
    weak = jnp.asarray(1.0)
    carry, ys = scan(lambda c, x: (c + x, c), weak, XS[:, 0])
    assert carry.dtype == ys.dtype == jnp.float32
    assert not carry.weak_type


def test_augmented_assignment_rebinds():
    def step(c, x):
        c += x
        return c, None

    np.testing.assert_array_equal(scan(step, jnp.zeros(2), XS)[0], XS.sum(0))


def test_write_cause():
    def step(c, x):
        c[0] = 1.0
        return c, None

    with pytest.raises(InPlaceUpdateError) as caught:
        scan(step, jnp.zeros(2), XS)
    assert isinstance(caught.value.__cause__, TypeError)


def test_other_type_errors_are_the_bodys_own():
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        scan(lambda c, x: (c + "text", None), jnp.zeros(2), XS)
    assert type(caught.value) is TypeError


def test_prng_keys_in_the_carry():
    def step(key, _):
        key, sub = jax.random.split(key)
        return key, jax.random.normal(sub)

    _, ys = scan(step, jax.random.key(0), length=3)
    assert ys.shape == (3,)
    assert len(set(ys.tolist())) == 3


def test_bfloat16():
    carry, _ = scan(
        lambda c, x: (c + x, None), jnp.zeros(2, dtype="bfloat16"), XS.astype("bfloat16")
    )
    assert carry.dtype == jnp.bfloat16
    with pytest.raises(CarryError, match="as bfloat16 and comes out as float32"):
        scan(lambda c, x: (c + x, None), jnp.zeros(2, dtype="bfloat16"), XS)


def test_plain_loop_on_jax_arrays():
    with use_loop_adapter("jax.numpy", None):
        carry, ys = scan(lambda c, x: (c + x if c[0] >= 0 else c, c), jnp.zeros(2), XS)
    np.testing.assert_array_equal(carry, XS.sum(0))
    assert isinstance(ys, jax.Array)


# --- cond ---


def test_cond_under_jit():
    def run(x):
        return cond(x[0] > 0, lambda v: {"a": v, "n": None}, lambda v: {"a": -v, "n": None}, x)

    found = jax.jit(run)(jnp.asarray([-1.0, 2.0]))
    np.testing.assert_array_equal(found["a"], [1.0, -2.0])
    assert found["n"] is None


def test_cond_with_numbers_among_operands_and_results():
    def run(x):
        return cond(x > 0, lambda v, k: (v * k, 1.0), lambda v, k: (v, 2.0), x, 3)

    found = jax.jit(run)(jnp.asarray(2.0))
    assert (float(found[0]), float(found[1])) == (6.0, 1.0)


def test_cond_gradient():
    grad = jax.grad(lambda x: cond(x > 0, lambda v: v * v, lambda v: -v, x))
    assert float(jax.jit(grad)(3.0)) == 6.0
    assert float(jax.jit(grad)(-3.0)) == -1.0


@pytest.mark.parametrize(
    ("on_false", "text"),
    [
        (lambda v: (v,), r"on_true gives \* and on_false gives \(\*,\)"),
        (lambda v: v > 0, r"result is float32 of shape \(2,\) from on_true and bool"),
        (lambda v: v[0], r"shape \(2,\) from on_true and float32 of shape \(\)"),
    ],
)
def test_branches_that_differ(on_false, text):
    with pytest.raises(BranchError, match=text):
        jax.jit(lambda x: cond(x[0] > 0, lambda v: v, on_false, x))(jnp.zeros(2))


def test_concrete_cond_calls_one_branch():
    called = []
    cond(jnp.asarray(True), lambda: called.append("true"), lambda: called.append("false"))
    assert called == ["true"]


def test_keys_beside_python_numbers():
    def step(carry, _):
        total, key = carry
        key, now = jax.random.split(key)
        return (total + jax.random.uniform(now), key), None

    (total, _), _ = scan(step, (0.0, jax.random.key(0)), length=3)
    want, _ = scan(step, (jnp.asarray(0.0), jax.random.key(0)), length=3)
    assert total == want[0]
    keys = jax.random.split(jax.random.key(1), 3)
    total, _ = scan(lambda c, k: (c + jax.random.uniform(k), None), 0.0, keys)
    assert total == pytest.approx(sum(float(jax.random.uniform(key)) for key in keys))
    stop = while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1]), (0, keys[0]), max_steps=5)
    assert int(stop.steps) == 2


def test_fori_bounds_that_wrap_around():
    if jax.config.jax_enable_x64:
        pytest.skip("64-bit integers hold them")
    with pytest.raises(UsageError, match="does not fit int32, the default integer dtype of JAX"):
        fori_loop(2**40, 2**40 + 3, lambda i, c: i, jnp.asarray(0))
