"""The plain driver on torch: writes, gradients, transforms and a user's own torch.compile."""

import pytest

torch = pytest.importorskip("torch")

import fullgraph  # noqa: E402
from fullgraph import cond, scan, while_loop  # noqa: E402
from fullgraph.errors import InPlaceUpdateError  # noqa: E402

XS = torch.arange(6.0, dtype=torch.float64).reshape(3, 2)


def zero():
    return torch.zeros(2, dtype=torch.float64)


WRITES = {
    "item": lambda a: a.__setitem__(0, 1.0),
    "augmented": lambda a: a.add_(1.0),
    "out": lambda a: torch.add(a, 1.0, out=a),
    "view": lambda a: a.flip(0).copy_(a) if a.ndim == 9 else a[0:1].zero_(),
    "detached": lambda a: a.detach().mul_(2.0),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("target", ["carry", "x"])
@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
def test_writes(write, target, mode):
    init, xs = torch.ones(2, dtype=torch.float64), XS + 1.0
    before = init.clone(), xs.clone()

    def step(c, x):
        WRITES[write](c if target == "carry" else x)
        return c + x, None

    context = {
        "grad": torch.enable_grad,
        "no_grad": torch.no_grad,
        "inference": torch.inference_mode,
    }[mode]
    with context(), pytest.raises(InPlaceUpdateError):
        scan(step, init, xs)
    assert torch.equal(init, before[0])
    assert torch.equal(xs, before[1])


def test_write_into_a_row_that_needs_grad():
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)

    def step(c, x):
        x.mul_(2.0)
        return c + x, None

    with pytest.raises(InPlaceUpdateError):
        scan(step, zero(), XS * weight)


def test_write_into_an_earlier_y():
    kept = []

    def step(c, x):
        for old in kept:
            old.add_(1.0)
        y = c * 2
        kept.append(y)
        return c + x, y

    with pytest.raises(InPlaceUpdateError):
        scan(step, zero(), XS)


def test_own_buffers_may_be_written():
    counter = torch.zeros(1)

    def step(c, x):
        counter.add_(1.0)
        fresh = torch.zeros_like(c)
        fresh[0] = 1.0
        return c + fresh, None

    carry, _ = scan(step, zero(), XS)
    assert counter.item() == 3.0
    assert carry.tolist() == [3.0, 0.0]


def test_inference_mode_values():
    with torch.inference_mode():
        carry, ys = scan(lambda c, x: (c + x, {"c": c, "x": x}), zero(), XS, reverse=True)
    assert torch.equal(carry, XS.sum(0))
    assert torch.equal(ys["x"], XS)


def test_nan_is_no_write_in_inference_mode():
    with torch.inference_mode():
        carry, _ = scan(lambda c, x: (c * float("nan"), None), zero(), XS)
    assert carry.isnan().all()


def test_parameters_as_init_and_xs():
    init = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    xs = torch.nn.Parameter(XS.clone())
    carry, ys = scan(lambda c, x: (c * x, c), init, xs)
    (carry.sum() + ys.sum()).backward()
    assert init.grad is not None
    assert xs.grad is not None


def test_module_as_body():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(2, 2, dtype=torch.float64)

    def step(h, x):
        new = cell(x[None], h)
        return new, new

    _, ys = scan(step, torch.zeros(1, 2, dtype=torch.float64), XS)
    h, want = torch.zeros(1, 2, dtype=torch.float64), []
    for x in XS:
        h = cell(x[None], h)
        want.append(h)
    assert torch.equal(ys, torch.stack(want))


def test_second_derivatives_of_the_plain_loop_are_right():
    def loss(a):
        return scan(lambda c, x: (c * a + x, None), torch.ones((), dtype=torch.float64), XS[:, 0])[
            0
        ]

    a = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(loss, (a,))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")
@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_torch_func_transforms(transform):
    def run(init):
        return scan(lambda c, x: (torch.sin(c) + x, c), init, XS)[1].sum()

    def plain(init):
        c, total = init, 0.0
        for x in XS:
            total = total + c.sum()
            c = torch.sin(c) + x
        return total

    init = torch.tensor([0.1, 0.2], dtype=torch.float64)
    if transform == "grad":
        found, want = torch.func.grad(run)(init), torch.func.grad(plain)(init)
    elif transform == "vmap":
        batch = torch.stack([init, init + 1])
        found, want = torch.func.vmap(run)(batch), torch.func.vmap(plain)(batch)
    else:
        found = torch.func.jvp(run, (init,), (torch.ones_like(init),))[1]
        want = torch.func.jvp(plain, (init,), (torch.ones_like(init),))[1]
    torch.testing.assert_close(found, want, rtol=1e-14, atol=0)


def test_random_state_is_as_in_the_plain_loop():
    """Finding the dtype of a Python number draws nothing."""

    def step(c, x):
        return c + torch.rand(()), None

    torch.manual_seed(3)
    found, _ = scan(step, 0.0, torch.zeros(4))
    torch.manual_seed(3)
    want = sum(torch.rand(()) for _ in range(4))
    assert float(found) == pytest.approx(float(want), rel=1e-6)
    assert float(found.detach()) == float(torch.as_tensor(want))


def test_strides_of_carry_may_change():
    carry, _ = scan(lambda c, x: (c.mT, None), torch.ones(2, 2), length=3)
    assert carry.shape == (2, 2)


def test_devices():
    with pytest.raises(
        fullgraph.errors.CarryError,
        match=r"on device cpu and comes out on device meta.*keeps its devices",
    ):
        scan(lambda c, x: (c.to("meta"), None), torch.zeros(2), length=2)


# --- Inside a user's own torch.compile; backend "eager" captures without compiling ---


def whole(function):
    return torch.compile(function, fullgraph=True, backend="eager", dynamic=False)


def nested(init, xs):
    return scan(
        lambda c, s: ({"v": c["v"] * 0.5 + s, "k": (c["k"][0] + 1, None)}, (c["v"], s)),
        {"v": init, "k": (torch.zeros(()), None)},
        xs,
    )


def test_user_compile_of_a_tree():
    (carry, ys), (want, want_ys) = whole(nested)(zero(), XS), nested(zero(), XS)
    assert torch.equal(carry["v"], want["v"])
    assert torch.equal(carry["k"][0], want["k"][0])
    assert carry["k"][1] is None
    assert torch.equal(ys[0], want_ys[0])


USER_CALLS = {
    "scalar": lambda x, xs: scan(lambda c, s: (c + s, c), 0.0, xs[:, 0]),
    "zero steps": lambda x, xs: scan(lambda c, s: (c + s, c), x, xs[:0]),
    "fori": lambda x, xs: fullgraph.fori_loop(0, 3, lambda i, c: c + i, x),
    "keys in another order": lambda x, xs: scan(
        lambda c, s: ({"b": c["b"], "a": c["a"] + s}, None), {"a": x, "b": x}, xs
    ),
    "no xs": lambda x, xs: scan(lambda c, _: (c * 2, c), x, length=3, reverse=True),
}


@pytest.mark.parametrize("call", USER_CALLS)
def test_user_compile(call):
    function = USER_CALLS[call]
    found, want = whole(function)(zero() + 1, XS), function(zero() + 1, XS)
    import optree

    for one, other in zip(optree.tree_leaves(found), optree.tree_leaves(want), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype


def test_user_compile_protects_what_a_body_writes():
    """No error here, as documented, but only the body's own copy changes."""

    def run(x, xs):
        def step(c, s):
            c.add_(s)
            s.zero_()
            return c, c

        return scan(step, x, xs)

    init, xs = torch.ones(2, dtype=torch.float64), XS.clone()
    carry, ys = whole(run)(init, xs)
    assert torch.equal(init, torch.ones(2, dtype=torch.float64))
    assert torch.equal(xs, XS)
    assert torch.equal(carry, 1 + XS.sum(0))
    assert torch.equal(ys, 1 + XS.cumsum(0))


def test_user_compile_of_cond():
    def run(x):
        return cond(
            x.sum() > 0,
            lambda v: {"r": v, "n": (v * 2, 1.0)},
            lambda v: {"r": -v, "n": (v, 2.0)},
            x,
        )

    compiled = whole(run)
    for sign in (1.0, -1.0):
        x = torch.tensor([1.0, 2.0]) * sign
        found, want = compiled(x), run(x)
        assert torch.equal(found["r"], want["r"])
        assert torch.equal(found["n"][0], want["n"][0])
        assert torch.equal(found["n"][1], want["n"][1])


def test_while_loop_values():
    result = while_loop(
        lambda s: s["x"] < 50, lambda s: {"x": s["x"] * 2}, {"x": torch.tensor(3.0)}, max_steps=9
    )
    assert (result.state["x"].item(), result.steps.item(), result.done.item()) == (96.0, 5, True)


def test_tensors_made_in_inference_mode():
    with torch.inference_mode():
        made = torch.ones(2)
    carry, ys = scan(lambda c, x: (made, made), torch.zeros(2), torch.zeros(3))
    assert carry.tolist() == [1, 1]
    assert ys.tolist() == [[1, 1]] * 3
    assert not carry.is_inference()
    carry, _ = scan(lambda c, x: (c + x, c), made, torch.stack([made, made]))
    assert carry.tolist() == [3, 3]
    result = while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, made), (0, torch.zeros(2)))
    assert result[1].tolist() == [1, 1]
