from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
import warnings

import pytest

from fullgraph.errors import CompilerNotFoundError, NativeBuildError, NativeCacheWarning
from fullgraph.native import build as module
from fullgraph.native.build import build, find_compiler


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("FULLGRAPH_CACHE", str(folder))
    module._private.cache_clear()
    yield folder
    module._private.cache_clear()


def text(number):
    return f"int answer(void) {{ return {number}; }}\n"


def test_a_second_build_is_a_cache_hit(cache):
    first = build(text(41))
    assert not first.cached
    assert first.library.answer() == 41
    again = build(text(41))
    assert again.cached
    assert again.path == first.path
    assert build(text(42)).library.answer() == 42


def test_the_folder_is_private(cache):
    build(text(1))
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not list(cache.glob("build-*"))


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
def test_damaged_entries_are_built_again(cache, suffix):
    path = build(text(7)).path
    damaged = path.with_suffix(suffix)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 255
    damaged.write_bytes(content)
    code = (
        "from fullgraph.native.build import build\n"
        f"b = build({text(7)!r}); assert not b.cached; assert b.library.answer() == 7"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


@pytest.mark.parametrize("suffix", [".so", ".sha256"])
def test_half_written_entries_are_built_again(cache, suffix):
    path = build(text(8)).path
    path.with_suffix(suffix).unlink()
    assert not build(text(8)).cached


def test_a_folder_that_others_can_use_is_not_used(cache):
    cache.mkdir(mode=0o755)
    cache.chmod(0o755)
    with pytest.warns(NativeCacheWarning, match="others can use it"):
        built = build(text(9))
    assert built.library.answer() == 9
    assert cache not in built.path.parents
    assert stat.S_IMODE(built.path.parent.stat().st_mode) == 0o700


def test_a_folder_that_is_none_is_not_used(cache):
    cache.write_text("")
    with pytest.warns(NativeCacheWarning, match="cannot be used"):
        assert build(text(10)).library.answer() == 10


def test_a_link_is_not_followed(cache, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    cache.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(NativeCacheWarning, match="not a folder"):
        build(text(11))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_no_compiler_says_what_to_install(cache, monkeypatch):
    monkeypatch.setenv("FULLGRAPH_CC", "/nowhere/cc")
    with pytest.raises(CompilerNotFoundError, match=r"none of /nowhere/cc runs here; install gcc"):
        build(text(12))


def test_a_failing_compiler_is_quoted(cache):
    with pytest.raises(NativeBuildError, match="failed on a generated loop with status 1"):
        build("int answer(void) { return nonsense; }\n")
    assert not list(cache.glob("*.so"))
    assert not list(cache.glob("build-*"))


def test_the_compiler_is_called_without_a_shell(cache, monkeypatch, tmp_path):
    trap = tmp_path / "trap"
    monkeypatch.setenv("FULLGRAPH_CC", f"gcc -DX=$(touch${{IFS}}{trap})")
    build(text(13))
    assert not trap.exists()


def test_compiler_and_flags_are_part_of_the_key(cache, monkeypatch):
    first = build(text(14)).path
    monkeypatch.setenv("FULLGRAPH_CC", f"{find_compiler().command[0]} -DOTHER")
    assert build(text(14)).path != first


def test_two_processes_may_build_one_loop(cache):
    code = (
        "from fullgraph.native.build import build\n"
        f"assert build({text(15)!r}).library.answer() == 15"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ)) for _ in range(3)
    ]
    assert [w.wait() for w in workers] == [0, 0, 0]


def test_libraries_are_plain_ctypes(cache):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(build(text(16)).library, ctypes.CDLL)


def test_other_platforms_are_named(monkeypatch):
    monkeypatch.setattr(module.sys, "platform", "win32")
    assert "need Linux on x86-64; this is win32" in module.unsupported_platform()
