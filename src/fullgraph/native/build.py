"""C text to a loaded shared object: compiler discovery, flags, and a private, verified cache.

A cache entry is ``<key>.so`` beside ``<key>.sha256``, the hash of its content. The key is the hash
of everything the result depends on: C text, flags, compiler version and CPU. Entries appear by
rename, so a reader never sees half a file, and the hash is checked before a file is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

from fullgraph.errors import CompilerNotFoundError, NativeBuildError, NativeCacheWarning

__all__ = [
    "Built",
    "Compiler",
    "build",
    "cache_folder",
    "find_compiler",
    "unsupported_platform",
    "vector_isa",
]

FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-shared",
    "-fPIC",
    "-fwrapv",  # integers wrap, as torch's do
    "-ffp-contract=off",  # a * b + c is rounded twice, as torch does it
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fno-semantic-interposition",
)
GCC_FLAGS = (
    "-fno-tree-slp-vectorize",
)  # packing scalars of unrolled bodies costs more than it gives
COMPILE_SECONDS = 600


@dataclass(frozen=True)
class Compiler:
    """A C compiler: its command, and the first line of its ``--version``."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gcc(self) -> bool:
        """Whether it is GCC, which can call vector math from vectorised loops."""
        return "clang" not in self.version.lower()


@dataclass(frozen=True)
class Built:
    """A loaded shared object and how it came to be."""

    library: ctypes.CDLL
    path: Path
    flags: tuple[str, ...]
    seconds: float
    cached: bool


def unsupported_platform() -> str:
    """Return why native loops cannot work here, or ``""``."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"native loops need Linux on x86-64; this is {sys.platform} on {platform.machine()}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "native loops are not tested on free-threaded Python"
    return ""


@functools.lru_cache(maxsize=8)
def _compiler(candidates: tuple[str, ...]) -> Compiler | None:
    for text in candidates:
        command = tuple(shlex.split(text))
        if not command or shutil.which(command[0]) is None:
            continue
        try:
            out = subprocess.run(  # noqa: S603
                [*command, "--version"], capture_output=True, text=True, check=True, timeout=30
            ).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        return Compiler(command, out.splitlines()[0] if out else "")
    return None


def find_compiler() -> Compiler:
    """Return the C compiler: ``$FULLGRAPH_CC``, ``$CC``, gcc, clang or cc, the first that runs.

    Raises
    ------
    CompilerNotFoundError
        There is none; the message says what to install.
    """
    chosen = os.environ.get("FULLGRAPH_CC")
    named = (chosen,) if chosen else (os.environ.get("CC", ""), "gcc", "clang", "cc")
    compiler = _compiler(tuple(n for n in named if n))
    if compiler is None:
        tried = ", ".join(n for n in named if n)
        raise CompilerNotFoundError(
            f"native loops need a C compiler, and none of {tried} runs here; install gcc "
            "(Debian, Ubuntu: apt install gcc; conda: conda install gcc), or name one in "
            "FULLGRAPH_CC"
        )
    return compiler


@functools.lru_cache(maxsize=1)
def _cpu() -> tuple[str, frozenset[str]]:
    """Return the CPU's model name and feature flags."""
    model, flags = platform.processor(), frozenset[str]()
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return model, flags
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        if key.strip() == "flags":
            flags = frozenset(value.split())
            break
    return model, flags


def vector_isa(compiler: Compiler) -> str:
    """Return which vector math routines loops can call: ``"avx512f"``, ``"avx2"`` or ``""``."""
    flags = _cpu()[1]
    if not compiler.is_gcc or not {"avx2", "fma"} <= flags:
        return ""
    return "avx512f" if {"avx512f", "avx512dq", "avx512vl", "avx512bw"} <= flags else "avx2"


def _flags(compiler: Compiler) -> tuple[str, ...]:
    flags: tuple[str, ...] = FLAGS
    if compiler.is_gcc:
        flags += GCC_FLAGS
    if vector_isa(compiler) == "avx512f":
        flags += ("-mprefer-vector-width=512",)
    return flags


def cache_folder() -> Path:
    """Return the folder of compiled loops, which only this user can read or write.

    It is ``$FULLGRAPH_CACHE``, or ``fullgraph/native`` in the user's cache. Where that cannot be
    had privately, a `NativeCacheWarning` says why, and a temporary folder serves this process.
    """
    chosen = os.environ.get("FULLGRAPH_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return _private(Path(chosen) if chosen else Path(home) / "fullgraph" / "native")


@functools.lru_cache(maxsize=8)
def _private(folder: Path) -> Path:
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
            return folder
    except OSError as error:
        reason = str(error)
    warnings.warn(
        f"compiled loops are not kept: {folder} cannot be used, {reason}",
        NativeCacheWarning,
        stacklevel=2,
    )
    return _temporary()


@functools.lru_cache(maxsize=1)
def _temporary() -> Path:
    """Return a folder for this process, removed when it ends."""
    holder = tempfile.TemporaryDirectory(prefix="fullgraph-")
    _KEPT.append(holder)
    return Path(holder.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def build(text: str) -> Built:
    """Compile and load a C file, or load it from the cache.

    Raises
    ------
    CompilerNotFoundError
        There is no compiler.
    NativeBuildError
        It failed; the message carries what it said.
    """
    compiler = find_compiler()
    flags = _flags(compiler)
    material = "\0".join((text, *flags, *compiler.command, compiler.version, *map(str, _cpu_key())))
    key = hashlib.sha256(material.encode()).hexdigest()
    folder = cache_folder()
    path = folder / f"{key}.so"
    begun = time.perf_counter()
    cached = _verified(path)
    if not cached:
        _compile(text, path, compiler, flags)
    library = _load(path)
    return Built(library, path, flags, time.perf_counter() - begun, cached)


def _cpu_key() -> tuple[str, str]:
    model, flags = _cpu()
    return model, " ".join(sorted(flags))


def _load(path: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeBuildError(f"the compiled loop {path} cannot be loaded: {error}") from error


def _verified(path: Path) -> bool:
    """Whether a complete entry exists: its content has the hash that was written with it."""
    try:
        content = path.read_bytes()
        expected = path.with_suffix(".sha256").read_bytes()
    except OSError:
        return False
    return hashlib.sha256(content).hexdigest().encode() == expected


def _compile(text: str, path: Path, compiler: Compiler, flags: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
        work = Path(name)
        source, target = work / "loop.c", work / "loop.so"
        source.write_text(text)
        command = [*compiler.command, *flags, "-o", str(target), str(source), "-lm"]
        try:
            done = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise NativeBuildError(f"{compiler.command[0]} could not run: {error}") from error
        if done.returncode != 0 or not target.exists():
            said = "\n".join(done.stderr.splitlines()[:20])
            raise NativeBuildError(
                f"{compiler.command[0]} ({compiler.version}) failed on a generated loop with "
                f"status {done.returncode}:\n{said}"
            )
        digest = hashlib.sha256(target.read_bytes()).hexdigest()
        stamp = work / "loop.sha256"
        stamp.write_text(digest)
        source.replace(path.with_suffix(".c"))
        target.replace(path)
        stamp.replace(path.with_suffix(".sha256"))
