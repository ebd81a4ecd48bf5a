from __future__ import annotations

import mmap
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from fullgraph.native import large

SIZE = 9 << 20


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(large, "_free", [])


def made(dtype=torch.float64, size=SIZE):
    rows = size // dtype.itemsize // 8
    return large.large_tensor((rows, 8), (8, 1), dtype, size)


def test_it_is_a_tensor_like_any_other():
    t = made()
    assert (t.shape, t.dtype, t.stride()) == ((SIZE // 64, 8), torch.float64, (8, 1))
    assert t.is_contiguous()
    assert not t._is_view()
    t.fill_(1.0)
    assert t.sum() == t.numel()
    assert torch.equal(pickle.loads(pickle.dumps(t)), t)
    t.requires_grad_()
    (t * 2).sum().backward()
    assert t.grad.max() == 2


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float32, torch.int64])
def test_dtypes(dtype):
    t = made(dtype)
    assert t.dtype is dtype
    assert t.fill_(1).all()


def test_memory_of_a_tensor_that_is_gone_serves_again():
    first = made()
    place = first.data_ptr()
    assert large.kept() == 0
    del first
    assert large.kept() == 10 << 20
    again = made(torch.float32, 8 << 20)
    assert again.data_ptr() == place
    assert large.kept() == 0
    assert made().data_ptr() != place


@pytest.mark.parametrize(
    "hold",
    [
        lambda t: t[3],
        lambda t: t.numpy(),
        lambda t: t.untyped_storage(),
        lambda t: t.detach(),
        lambda t: torch.from_dlpack(t),
        lambda t: torch.ones(8, dtype=t.dtype, requires_grad=True) * t[:2],  # saved for backward
        lambda t: memoryview(t.numpy()),
    ],
    ids=["row", "numpy", "storage", "detached", "dlpack", "autograd", "memoryview"],
)
def test_whatever_holds_the_memory_keeps_it(hold):
    t = made()
    t.fill_(7.0)
    place, held = t.data_ptr(), hold(t)
    del t
    assert made().fill_(0.0).data_ptr() != place
    del held
    assert made().data_ptr() == place


def test_a_much_smaller_result_does_not_hold_on_to_large_memory():
    big = made(size=40 << 20)
    place = big.data_ptr()
    del big
    assert made().data_ptr() != place


def test_memory_that_waits_is_bounded(monkeypatch):
    monkeypatch.setattr(large, "KEPT_BYTES", 25 << 20)
    tensors = [made() for _ in range(4)]
    del tensors
    assert large.kept() == 20 << 20


@pytest.mark.parametrize("advice", ["MADV_FREE", "MADV_HUGEPAGE"])
def test_kernels_without_an_advice(monkeypatch, advice):
    monkeypatch.delattr(mmap, advice)
    place = made().data_ptr()
    assert made().data_ptr() == place


def test_kernels_that_refuse_an_advice(monkeypatch):
    monkeypatch.setattr(mmap, "MADV_FREE", 12345)
    place = made().data_ptr()
    assert made().data_ptr() == place


def test_shared_memory_is_left_alone():
    t = made()
    t.fill_(3.0)
    t.share_memory_()
    other = made().fill_(0.0)
    assert t.min() == 3.0
    assert other.max() == 0.0


FORK = """
import os, sys
sys.path.insert(0, {folder!r})
from test_large import made

t = made()
t.fill_(1.0)
child = os.fork()
if child == 0:
    t.numpy()[:] = 2.0
    del t
    made().numpy()[:] = 3.0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert t.max() == 1.0
"""


def test_a_forked_child_writes_into_its_own_copy():
    """In a process of its own: where JAX is loaded, forking warns."""
    script = FORK.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=120)


def test_threads_never_get_the_same_memory():
    wrong = []

    def work(number):
        for _ in range(50):
            mine = made()
            mine[:, 0] = number
            if not bool((mine[:, 0] == number).all()):
                wrong.append(number)
            del mine

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
