"""What goes wrong around a native loop ends in the right result, or in one clear error."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest
import torch

from fullgraph.errors import CompilerNotFoundError, NativeBuildError, NativeMemoryError
from fullgraph.native import cache as cache_module
from fullgraph.native import large, loaded, runtime
from fullgraph.torch_loop import torch_native_loop_adapter


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FULLGRAPH_CACHE", str(folder))
    cache_module._private.cache_clear()
    yield folder
    cache_module._private.cache_clear()


def mixed(c, x):
    """Call vector math, a product and integers."""
    state, count = c
    new = torch.tanh(state) * 0.5 + torch.exp(-x) - torch.sin(state) / (2 + x * x)
    return (new, count + 1), (new, new.view(11, 3) @ new.view(3, 11), count * 2)


def arguments(dtype=torch.float64):
    generator = torch.Generator().manual_seed(3)
    init = torch.randn(33, generator=generator, dtype=dtype), torch.tensor(0)
    return init, torch.rand(7, 33, generator=generator, dtype=dtype)


# --- Compilers ---


def test_without_a_compiler_there_is_no_adapter(monkeypatch):
    monkeypatch.setenv("FULLGRAPH_CC", "/nowhere/cc")
    with pytest.raises(CompilerNotFoundError, match="install gcc"):
        torch_native_loop_adapter()


def test_a_failing_compiler_is_one_error_and_forgotten(native, cache, monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text(
        '#!/bin/sh\ncase "$*" in *-dM*) exec gcc "$@";; esac\necho "internal error" >&2; exit 4\n'
    )
    broken.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("FULLGRAPH_CC", str(broken))
        with pytest.raises(NativeBuildError, match=r"(?s)status 4:.*internal error"):
            native.run(mixed, *arguments())
        assert not list(cache.iterdir())
    native.check(mixed, *arguments())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "options", ["", "-mno-avx512f", "-mno-avx2 -mno-avx512f", "-mno-fma", "-mno-avx"]
)
def test_results_do_not_depend_on_the_vector_instructions(native, monkeypatch, options, dtype):
    monkeypatch.setenv("FULLGRAPH_CC", f"gcc {options}")
    native.check(mixed, *arguments(dtype))


def test_clang(native, monkeypatch):
    clang = os.environ.get("FULLGRAPH_TEST_CLANG") or shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    monkeypatch.setenv("FULLGRAPH_CC", clang)
    native.check(mixed, *arguments())
    native.check(mixed, *arguments(torch.float32))


def test_an_entry_serves_every_torch(cache, monkeypatch):
    """Nothing of torch is in an entry: its routines are bound when it is loaded."""
    init, xs = arguments()
    first = torch_native_loop_adapter()
    expected = first.scan(mixed, init, xs)
    entry = first.scan.engine.specialisations()[0].compiled.built
    assert b"libtorch" not in entry.path.read_bytes()
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    again = torch_native_loop_adapter()
    found = again.scan(mixed, init, xs)
    built = again.scan.engine.specialisations()[0].compiled.built
    assert (built.cached, built.path) == (True, entry.path)
    assert torch.equal(found[0][0], expected[0][0])


def test_an_entry_whose_routines_this_torch_lacks_is_not_used(cache, native, monkeypatch):
    native.check(mixed, *arguments())
    torch._dynamo.reset()
    monkeypatch.setattr(loaded, "_addresses", lambda symbols: None)
    other = type(native)()
    other.check(mixed, *arguments())
    text = other.adapter.scan.engine.specialisations()[0].compiled.program.text
    assert "fg_bind" not in text


# --- Memory ---


def test_no_memory_is_one_clear_error(native, monkeypatch):
    body = lambda c, x: (c + x, c)
    init, xs = torch.zeros(1000, dtype=torch.float64), torch.zeros(2000, 1, dtype=torch.float64)
    native.run(body, init, xs[:3])

    def refuse(*_args, **_options):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(large, "_free", [])
    monkeypatch.setattr(large.mmap, "mmap", refuse)
    with pytest.raises(NativeMemoryError, match=r"15\.3 MiB, .*Cannot allocate memory"):
        native.run(body, init, xs)


def test_large_results_are_right_when_their_memory_is_used_again(native):
    body = lambda c, x: (c * 0.5 + x, c - x)
    init = torch.rand(1000, dtype=torch.float64)
    for seed in range(4):
        xs = torch.full((2000, 1), float(seed), dtype=torch.float64)
        kept = native.check(body, init, xs, exact=True)[1]
        copy = kept.clone()
        native.run(body, init + 1, xs)
        assert torch.equal(kept, copy)


# --- Threads and processes ---


def on_threads(count, work):
    """Run ``work(number)`` on threads that start together; raise what any of them raised."""
    barrier, errors = threading.Barrier(count), []

    def run(number):
        barrier.wait()
        try:
            work(number)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


def call_from_eight_threads(native, calls):
    init, xs = arguments()
    expected = native.plain(mixed, init, xs)[0][0]

    def work(number):
        for _ in range(calls // 8):
            found = native.run(mixed, init, xs)[0][0]
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    on_threads(8, work)
    assert native.compiled == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_eight_threads_share_an_adapter(native_with, monkeypatch, threads):
    monkeypatch.setattr(runtime, "THREAD_WORK", 1)
    call_from_eight_threads(native_with(threads=threads), 400)


@pytest.mark.slow
def test_eight_threads_share_an_adapter_ten_thousand_times(native):
    call_from_eight_threads(native, 10_000)


def test_threads_with_different_bodies(native):
    def work(number):
        body = [
            lambda c, x: (c + x, c),
            lambda c, x: (c * x, c),
            lambda c, x: (c - x, c),
            lambda c, x: (torch.sin(c) * x, c),
        ][number]
        for size in (3, 5):
            native.check(
                body,
                torch.full((size,), float(number), dtype=torch.float64),
                torch.rand(4, size, dtype=torch.float64),
            )

    on_threads(4, work)


FORKED = """
import os, sys, torch
from fullgraph.native import runtime
from fullgraph.torch_loop import torch_native_loop_adapter
runtime.THREAD_WORK = 1
torch.set_num_threads(1)
scan = torch_native_loop_adapter(threads=2).scan
def body(c, x):
    return torch.sin(c) + x, c
def other(c, x):
    return torch.cos(c) * x, c
init, xs = torch.rand(3, 4000, dtype=torch.float64), torch.rand(20, 1, dtype=torch.float64)
expected = scan(body, init, xs)[1]
child = os.fork()
found = scan(body, init, xs)[1]
new = scan(other, init, xs)[1]
right = torch.equal(found, expected) and torch.equal(new[0], init)
if child == 0:
    os._exit(0 if right else 1)
sys.exit(0 if right and os.waitpid(child, 0)[1] == 0 else 1)
"""


def test_a_forked_child_runs_loops_and_compiles_others(cache):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], timeout=240, check=False)
    assert done.returncode == 0


ONE_KERNEL = """
import torch
from fullgraph.torch_loop import torch_native_loop_adapter
scan = torch_native_loop_adapter().scan
init, xs = torch.ones(40, dtype=torch.float64), torch.ones(9, 1, dtype=torch.float64)
carry, ys = scan(lambda c, x: (c + x, c * 2), init, xs)
assert carry.eq(10).all() and ys[-1].eq(18).all()
"""


@pytest.mark.slow
def test_four_processes_compile_one_kernel(cache):
    workers = [subprocess.Popen([sys.executable, "-c", ONE_KERNEL]) for _ in range(4)]
    assert [w.wait(240) for w in workers] == [0, 0, 0, 0]
    assert len(list(cache.glob("*.so"))) == 1
    assert not list(cache.glob("build-*"))
