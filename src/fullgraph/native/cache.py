"""The folder of compiled loops: private to the user, each entry whole or absent.

An entry is one file, ``<key>.so``: a shared object, and behind it the hash of its content, which
the loader does not mind. It appears by rename, so that a reader finds all of it or nothing, whoever
else writes or dies at that time; whatever does not carry its hash is built again.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fullgraph.errors import NativeCacheWarning

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cache_folder", "is_whole", "not_kept", "publish", "temporary_folder", "work_folder"]

_WORK: Final = "build-"
_ABANDONED_SECONDS: Final = 3600  # no compilation takes so long


def cache_folder() -> Path:
    """Return the folder of compiled loops, which only this user can read or write.

    It is ``$FULLGRAPH_CACHE``, or ``fullgraph/native`` in the user's cache. Where that cannot be
    had privately, a `NativeCacheWarning` says why, and a temporary folder serves this process.
    """
    chosen = os.environ.get("FULLGRAPH_CACHE")
    if chosen:
        return _private(Path(chosen))
    try:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return temporary_folder()
    return _private(Path(home) / "fullgraph" / "native")


@functools.lru_cache(maxsize=8)
def _private(folder: Path) -> Path:
    """Return `folder` if it is ours alone, else the temporary one."""
    try:
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            reason = "it is not a folder"
        elif found.st_uid != os.getuid():
            reason = "it belongs to another user"
        elif stat.S_IMODE(found.st_mode) & 0o077:
            reason = "others can use it (chmod 700 it)"
        elif not os.access(folder, os.W_OK | os.X_OK):
            reason = "it cannot be written"
        else:
            _sweep(folder)
            return folder
    except OSError as error:
        reason = str(error)
    not_kept(folder, reason)
    return temporary_folder()


def not_kept(folder: Path, reason: str) -> None:
    """Warn that compiled loops do not stay in `folder`."""
    warnings.warn(
        f"compiled loops are not kept: {folder} cannot be used, {reason}",
        NativeCacheWarning,
        stacklevel=2,
    )


def temporary_folder() -> Path:
    """Return a folder for this process, removed when it ends."""
    return _temporary(os.getpid())


@functools.lru_cache(maxsize=1)
def _temporary(process: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fullgraph-"))  # 0700

    def remove() -> None:
        if os.getpid() == process:  # a forked child leaves its parent's folder alone
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _sweep(folder: Path) -> None:
    """Remove what processes that were killed in mid-compilation have left."""
    for left in folder.glob(f"{_WORK}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(left, ignore_errors=True)


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Give a fresh folder inside `folder`, so that renaming out of it is atomic."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=_WORK, ignore_cleanup_errors=True) as name:
        yield Path(name)


def is_whole(entry: Path) -> bool:
    """Whether an entry exists, is this user's own file, and carries the hash of its content."""
    try:
        descriptor = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with open(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
                return False
            content = file.read()
    except OSError:
        return False
    end = len(content) - 64
    return end > 0 and content[end:] == _digest(content[:end])


def publish(made: Path, text: str, entry: Path) -> None:
    """Turn a shared object in a work folder into an entry, its C text beside it.

    Raises
    ------
    OSError
        There is no room.
    """
    digest = _digest(made.read_bytes())
    with made.open("ab") as file:
        file.write(digest)
    source = made.with_name("published.c")
    source.write_text(text)
    source.replace(entry.with_suffix(".c"))
    made.replace(entry)


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()
