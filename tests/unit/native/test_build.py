from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import warnings

import pytest

from fullgraph.errors import NativeBuildError, NativeCacheWarning
from fullgraph.native import build as module
from fullgraph.native import cache as cache_module
from fullgraph.native.build import build
from fullgraph.native.compiler import find_compiler


def text(number):
    return f"int answer(void) {{ return {number}; }}\n"


def in_a_process(number, check=""):
    """Build in a fresh process, for which nothing is loaded yet."""
    code = (
        "from fullgraph.native.build import build\n"
        f"b = build({text(number)!r}); assert b.library.answer() == {number}\n{check}"
    )
    return subprocess.Popen([sys.executable, "-c", code], env=dict(os.environ))


def test_a_second_build_is_a_cache_hit(cache):
    first = build(text(41))
    assert not first.cached
    assert first.library.answer() == 41
    again = build(text(41))
    assert again.cached
    assert again.path == first.path
    assert build(text(42)).library.answer() == 42


def test_the_text_lies_beside_the_library(cache):
    path = build(text(43)).path
    assert path.with_suffix(".c").read_text() == text(43)


def test_libraries_are_plain_ctypes(cache):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(build(text(16)).library, ctypes.CDLL)


def test_the_compiler_is_called_without_a_shell(cache, monkeypatch, tmp_path):
    trap = tmp_path / "trap"
    monkeypatch.setenv("FULLGRAPH_CC", f"gcc -DX=$(touch${{IFS}}{trap})")
    build(text(13))
    assert not trap.exists()


def test_compiler_and_flags_are_part_of_the_key(cache, monkeypatch):
    first = build(text(14)).path
    monkeypatch.setenv("FULLGRAPH_CC", f"{find_compiler().command[0]} -DOTHER")
    assert build(text(14)).path != first


def test_another_cpu_has_other_entries(cache, monkeypatch):
    first = build(text(15)).path
    monkeypatch.setattr(module, "cpu", lambda: ("another model", frozenset()))
    assert build(text(15)).path != first


# --- The folder ---


def test_the_folder_is_private(cache):
    build(text(1))
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not list(cache.glob("build-*"))


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


def test_a_folder_of_another_user_is_not_used(cache, monkeypatch):
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(cache_module.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.warns(NativeCacheWarning, match="belongs to another user"):
        cache_module.cache_folder()


def test_a_folder_that_cannot_be_written_is_not_used(cache, monkeypatch):
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(cache_module.os, "access", lambda *_: False)
    with pytest.warns(NativeCacheWarning, match="cannot be written"):
        assert build(text(17)).library.answer() == 17
    assert not list(cache.iterdir())


def test_a_read_only_disk_is_not_used(cache, monkeypatch):
    def refuse(*_args, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(cache_module.Path, "mkdir", refuse)
    with pytest.warns(NativeCacheWarning, match="Read-only file system"):
        assert build(text(18)).library.answer() == 18


def test_a_user_without_a_home_has_a_temporary_folder(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("FULLGRAPH_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache_module.Path, "home", nowhere)
    assert cache_module.cache_folder() == cache_module.temporary_folder()


def test_a_temporary_folder_goes_with_its_process():
    code = (
        "from fullgraph.native.cache import temporary_folder\n"
        "import os, sys\n"
        "folder = temporary_folder()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"  # ends with all exit handlers
        "os.waitpid(child, 0)\n"
        "assert folder.is_dir()\n"
        "print(folder)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert not os.path.exists(said.strip())


# --- Entries ---


def flipped(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


DAMAGE = {
    "a changed byte": flipped,
    "another hash": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "no hash": lambda content: content[:-64],
    "half": lambda content: content[: len(content) // 2],
    "a few bytes": lambda content: content[:10],
    "nothing": lambda content: b"",
    "something appended": lambda content: content + b"x",
    "no library, with its hash": lambda content: (
        b"not a library" + hashlib.sha256(b"not a library").hexdigest().encode()
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_entries_are_built_again(cache, damage):
    path = build(text(7)).path
    path.write_bytes(damage(path.read_bytes()))
    assert in_a_process(7, "assert not b.cached").wait() == 0
    assert in_a_process(7, "assert b.cached").wait() == 0


def test_a_missing_entry_is_built_again(cache):
    build(text(8)).path.unlink()
    assert not build(text(8)).cached


def test_an_entry_that_is_a_link_is_built_again(cache, tmp_path):
    path = build(text(19)).path
    elsewhere = tmp_path / "elsewhere.so"
    shutil.copy(path, elsewhere)
    path.unlink()
    path.symlink_to(elsewhere)
    assert not build(text(19)).cached
    assert not path.is_symlink()


def test_an_entry_of_another_user_is_built_again(cache, monkeypatch):
    path = build(text(20)).path
    assert cache_module.is_whole(path)
    real = os.fstat

    def foreign(descriptor):
        found = list(real(descriptor))
        found[4] += 1
        return os.stat_result(found)

    monkeypatch.setattr(cache_module.os, "fstat", foreign)
    assert not cache_module.is_whole(path)


def test_a_library_that_this_machine_cannot_load_is_built_again(cache, monkeypatch):
    build(text(21))
    real, calls = ctypes.CDLL, []

    def once(name):
        calls.append(name)
        if len(calls) == 1:
            raise OSError("version `GLIBC_9.99' not found")
        return real(name)

    monkeypatch.setattr(module.ctypes, "CDLL", once)
    built = build(text(21))
    assert not built.cached
    assert built.library.answer() == 21


def test_a_folder_from_which_nothing_may_run_is_left(cache, monkeypatch):
    real = ctypes.CDLL

    def mounted_noexec(name):
        if str(cache) in name:
            raise OSError("failed to map segment from shared object")
        return real(name)

    monkeypatch.setattr(module.ctypes, "CDLL", mounted_noexec)
    with pytest.warns(NativeCacheWarning, match="failed to map segment"):
        assert build(text(22)).library.answer() == 22
    assert not list(cache.glob("*.so"))


def test_a_compiler_for_another_machine_is_named(cache, monkeypatch, script):
    monkeypatch.setenv(
        "FULLGRAPH_CC",
        script(
            'case "$*" in *-dM*) exec gcc "$@";; esac; '
            'while [ "$1" != -o ]; do shift; done; echo > "$2"'
        ),
    )
    with (
        pytest.warns(NativeCacheWarning, match="cannot be used"),
        pytest.raises(NativeBuildError, match="can neither be kept in nor loaded from"),
    ):
        build(text(23))
    assert not list(cache.glob("*.so"))


def test_a_failing_compiler_leaves_nothing(cache):
    with pytest.raises(NativeBuildError, match="failed on a generated loop with status 1"):
        build("int answer(void) { return nonsense; }\n")
    assert not list(cache.iterdir())


# --- A full disk ---


def full(*_args, **_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["work_folder", "publish", "compile_file"])
def test_a_full_cache_is_left(cache, monkeypatch, where):
    real, calls = getattr(module, where), []

    def once(*args, **options):
        calls.append(args)
        return full() if len(calls) == 1 else real(*args, **options)

    monkeypatch.setattr(module, where, once)
    with pytest.warns(NativeCacheWarning, match="No space left on device"):
        built = build(text(24))
    assert built.library.answer() == 24
    assert not list(cache.iterdir())
    monkeypatch.setattr(module, where, real)
    assert build(text(24)).path.parent == cache


def test_no_room_anywhere_is_one_clear_error(cache, monkeypatch):
    monkeypatch.setattr(module, "publish", full)
    with (
        pytest.warns(NativeCacheWarning, match="No space left on device"),
        pytest.raises(NativeBuildError, match=r"neither be kept .*No space left on device"),
    ):
        build(text(25))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_disk_that_fills_up(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,mode=0700", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    monkeypatch.setenv("FULLGRAPH_CACHE", str(disk))
    cache_module._private.cache_clear()
    try:
        with pytest.warns(NativeCacheWarning, match="No space left on device"):
            assert build(text(26)).library.answer() == 26
        assert not list(disk.iterdir())
    finally:
        cache_module._private.cache_clear()
        subprocess.run(["umount", str(disk)], check=True)


# --- Several processes ---


def test_four_processes_may_build_one_loop(cache):
    workers = [in_a_process(27) for _ in range(4)]
    assert [w.wait() for w in workers] == [0, 0, 0, 0]
    assert build(text(27)).cached
    assert not list(cache.glob("build-*"))


def test_a_process_that_is_killed_in_mid_compilation_does_no_harm(cache, monkeypatch, script):
    slow = script('case "$*" in *-dM*) exec gcc "$@";; esac; exec sleep 30')
    monkeypatch.setenv("FULLGRAPH_CC", slow)
    victim = in_a_process(28)
    until = time.monotonic() + 60
    while not list(cache.glob("build-*/loop.c")) and time.monotonic() < until:
        time.sleep(0.01)
    victim.send_signal(signal.SIGKILL)
    assert victim.wait() == -signal.SIGKILL
    assert not list(cache.glob("*.so"))
    left = next(cache.glob("build-*"))
    monkeypatch.setenv("FULLGRAPH_CC", "gcc")
    assert build(text(28)).library.answer() == 28
    assert left.exists()  # it could be alive
    os.utime(left, (0, 0))
    assert in_a_process(28, "assert b.cached").wait() == 0
    assert not left.exists()
