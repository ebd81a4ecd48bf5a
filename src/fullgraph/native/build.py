"""C text to a loaded shared object, compiled now or found in the cache.

The key of an entry is the hash of everything that it depends on: C text, flags, compiler and CPU.
It does not depend on torch, whose routines are bound when a loop is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fullgraph.errors import NativeBuildError
from fullgraph.native.cache import (
    cache_folder,
    is_whole,
    not_kept,
    publish,
    temporary_folder,
    work_folder,
)
from fullgraph.native.compiler import Compiler, compile_file, compiler_flags, cpu, find_compiler

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Built", "build"]


@dataclass(frozen=True)
class Built:
    """A loaded shared object and how it came to be."""

    library: ctypes.CDLL
    path: Path
    flags: tuple[str, ...]
    seconds: float
    cached: bool


def build(text: str) -> Built:
    """Compile and load a C file, or load it from the cache.

    Where the cache has no room, or what lies there may not be loaded (a ``noexec`` mount), a
    `NativeCacheWarning` says so and a temporary folder takes its place.

    Raises
    ------
    CompilerNotFoundError
        There is no compiler.
    NativeBuildError
        It failed; the message carries what it said.
    """
    begun = time.perf_counter()
    compiler = find_compiler()
    flags = compiler_flags(compiler)
    name = f"{_key(text, compiler, flags)}.so"
    folder = cache_folder()
    library = _found(folder / name)
    cached = library is not None
    if library is None:
        try:
            library = _made(folder / name, text, compiler, flags)
        except OSError as error:
            not_kept(folder, str(error))
            folder = temporary_folder()
            library = _found(folder / name)
    if library is None:
        try:
            library = _made(folder / name, text, compiler, flags)
        except OSError as error:
            raise NativeBuildError(
                f"a compiled loop can neither be kept in nor loaded from {folder}: {error}"
            ) from error
    return Built(library, folder / name, flags, time.perf_counter() - begun, cached)


def _key(text: str, compiler: Compiler, flags: tuple[str, ...]) -> str:
    model, features = cpu()
    material = (text, *flags, *compiler.command, compiler.version, model, *sorted(features))
    return hashlib.sha256("\0".join(material).encode()).hexdigest()


def _found(entry: Path) -> ctypes.CDLL | None:
    """Load an entry that is there, whole, and made for this machine's libraries."""
    if not is_whole(entry):
        return None
    try:
        return ctypes.CDLL(str(entry))
    except OSError:
        return None


def _made(entry: Path, text: str, compiler: Compiler, flags: tuple[str, ...]) -> ctypes.CDLL:
    """Compile an entry and load it; OSError says that it cannot be where it should."""
    with work_folder(entry.parent) as work:
        publish(compile_file(text, work, compiler, flags), text, entry)
    try:
        return ctypes.CDLL(str(entry))
    except OSError:
        entry.unlink(missing_ok=True)
        raise
