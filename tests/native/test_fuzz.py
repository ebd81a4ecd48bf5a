"""Random bodies from the operation table, against eager torch."""

from __future__ import annotations

import importlib.util
import linecache
from pathlib import Path

import pytest
import torch

import fullgraph
from fullgraph.torch_loop import torch_native_loop_adapter

_spec = importlib.util.spec_from_file_location("bodies", Path(__file__).with_name("bodies.py"))
bodies = importlib.util.module_from_spec(_spec)
__import__("sys").modules["bodies"] = bodies
_spec.loader.exec_module(bodies)


def run_one(native, seed):
    source, carry, x_shape = bodies.make_body(seed)
    generator = torch.Generator().manual_seed(seed)

    def draw(value):
        if value.kind == "i":
            return torch.randint(-20, 20, value.shape, generator=generator)
        return torch.randn(value.shape, generator=generator, dtype=torch.float64)

    names = {
        "torch": torch,
        "w": draw(carry[0]),
        "k": torch.randn(carry[0].shape[-1:], generator=generator, dtype=torch.float64),
    }
    path = f"<body {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), names)
    init = tuple(draw(leaf) for leaf in carry)
    xs = torch.randn((4, *x_shape), generator=generator, dtype=torch.float64)
    try:
        native.check(names["body"], init, xs, rtol=1e-9)
    except Exception as error:
        raise AssertionError(f"seed {seed}\n{source}\n{error}") from error
    finally:
        torch._dynamo.reset()


def differentiate_one(native, seed):
    """Compare the gradients of every float leaf, of xs and of both global tensors."""
    source, carry, x_shape = bodies.make_body(seed)
    generator = torch.Generator().manual_seed(seed)

    def draw(shape, kind="f"):
        if kind == "i":
            return torch.randint(-20, 20, shape, generator=generator)
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    closed = [draw(carry[0].shape), draw(carry[0].shape[-1:])]
    names = {"torch": torch, "w": closed[0], "k": closed[1]}
    path = f"<body {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), names)
    init = tuple(draw(leaf.shape, leaf.kind) for leaf in carry)
    try:
        native.gradients(names["body"], init, draw((4, *x_shape)), closed=closed, rtol=1e-9)
    except Exception as error:
        raise AssertionError(f"seed {seed}\n{source}\n{error}") from error
    finally:
        torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("seed", range(5))
def test_gradients_of_random_bodies(native, form, seed):
    differentiate_one(native, seed)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("hundred", range(20))
def test_gradients_of_two_thousand_random_bodies(native_with, hundred):
    for seed in range(100 * hundred + 1000, 100 * hundred + 1100):
        differentiate_one(native_with(), seed)


def loop_one(seed):
    """Run a random body until a counter, itself part of the state, says stop."""
    source, carry, x_shape = bodies.make_body(seed)
    generator = torch.Generator().manual_seed(seed)

    def draw(shape, kind="f"):
        if kind == "i":
            return torch.randint(-20, 20, shape, generator=generator)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    names = {"torch": torch, "w": draw(carry[0].shape), "k": draw(carry[0].shape[-1:])}
    path = f"<body {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    exec(compile(source, path, "exec"), names)
    x, body = draw(x_shape), names["body"]
    init = torch.tensor(0), tuple(draw(leaf.shape, leaf.kind) for leaf in carry)
    steps = 1 + seed % 4
    loop = lambda: fullgraph.while_loop(
        lambda state: state[0] < steps, lambda state: (state[0] + 1, body(state[1], x)[0]), init
    )
    with fullgraph.use_loop_adapter("torch", None):
        expected = loop()
    with fullgraph.use_loop_adapter("torch", torch_native_loop_adapter()):
        found = loop()
    try:
        for a, b in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}\n{source}\n{error}") from error
    finally:
        torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("seed", range(6))
def test_random_bodies_in_while_loops(seed):
    loop_one(seed)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("hundred", range(5))
def test_five_hundred_random_bodies_in_while_loops(hundred):
    for seed in range(100 * hundred + 1000, 100 * hundred + 1100):
        loop_one(seed)


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("seed", range(12))
def test_random_bodies(native, form, seed):
    run_one(native, seed)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hundred", range(20))
def test_two_thousand_random_bodies(native_with, hundred):
    for seed in range(100 * hundred + 1000, 100 * hundred + 1100):
        run_one(native_with(), seed)
