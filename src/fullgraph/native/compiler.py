"""The C compiler: which one, what it and the CPU can do, and one call of it."""

from __future__ import annotations

import errno
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fullgraph.errors import CompilerNotFoundError, NativeBuildError

__all__ = [
    "Compiler",
    "compile_file",
    "compiler_flags",
    "cpu",
    "find_compiler",
    "unsupported_platform",
    "vector_isa",
]

FLAGS: Final = (
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
GCC_FLAGS: Final = (
    "-fno-tree-slp-vectorize",
)  # packing scalars of unrolled bodies costs more than it gives
COMPILE_SECONDS: Final = 600
PROBE_SECONDS: Final = 30
_AVX2: Final = frozenset({"avx2", "fma"})
_AVX512: Final = frozenset({"avx512f", "avx512dq", "avx512vl", "avx512bw"})


@dataclass(frozen=True)
class Compiler:
    """A C compiler.

    Attributes
    ----------
    command : tuple of str
        Program and arguments, as the user gave them.
    version : str
        Its name and version.
    is_gcc : bool
        Whether it is GCC, which can call vector math from vectorised loops.
    features : frozenset of str
        Vector instructions it generates for this CPU, as ``/proc/cpuinfo`` spells them.
    """

    command: tuple[str, ...]
    version: str
    is_gcc: bool
    features: frozenset[str]


def unsupported_platform() -> str:
    """Return why native loops cannot work here, or ``""``."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"native loops need Linux on x86-64; this is {sys.platform} on {platform.machine()}"
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return "native loops are not tested on free-threaded Python"
    return ""


def find_compiler() -> Compiler:
    """Return the C compiler: ``$FULLGRAPH_CC``, ``$CC``, gcc, clang or cc, the first that runs.

    The variables may hold options: ``FULLGRAPH_CC="gcc -mno-avx512f"``.

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


@functools.lru_cache(maxsize=8)
def _compiler(candidates: tuple[str, ...]) -> Compiler | None:
    for text in candidates:
        try:
            command = tuple(shlex.split(text))
        except ValueError:  # an open quote
            continue
        if not command or shutil.which(command[0]) is None:
            continue
        macros = _macros(command)
        if macros:
            version = macros.get("__VERSION__", "").strip('"')
            gcc = "__clang__" not in macros
            features = frozenset(f for f in _AVX2 | _AVX512 if f"__{f.upper()}__" in macros)
            return Compiler(command, f"gcc {version}" if gcc else version, gcc, features)
    return None


def _macros(command: tuple[str, ...]) -> dict[str, str]:
    """Return what a compiler defines for this CPU, or nothing if it does not run."""
    try:
        said = subprocess.run(  # noqa: S603
            [*command, "-march=native", "-dM", "-E", "-x", "c", os.devnull],
            capture_output=True,
            text=True,
            check=True,
            timeout=PROBE_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^#define (\w+) ?(.*)$", said, re.MULTILINE))


@functools.lru_cache(maxsize=1)
def cpu() -> tuple[str, frozenset[str]]:
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
    usable = compiler.features & cpu()[1]
    if not compiler.is_gcc or not usable >= _AVX2:
        return ""
    return "avx512f" if usable >= _AVX512 else "avx2"


def compiler_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags for loops.

    Raises
    ------
    NativeBuildError
        The compiler was told to use instructions that this CPU lacks, which would end the process.
    """
    known = cpu()[1]
    missing = sorted(compiler.features - known) if known else []
    if missing:
        raise NativeBuildError(
            f"{shlex.join(compiler.command)} generates {', '.join(missing)} instructions, which "
            "this CPU lacks; take those options out of FULLGRAPH_CC or CC"
        )
    flags: tuple[str, ...] = FLAGS
    if compiler.is_gcc:
        flags += GCC_FLAGS
    if vector_isa(compiler) == "avx512f":
        flags += ("-mprefer-vector-width=512",)
    return flags


def compile_file(text: str, folder: Path, compiler: Compiler, flags: tuple[str, ...]) -> Path:
    """Compile C text in `folder`, where all files of the compiler stay; return the shared object.

    Raises
    ------
    NativeBuildError
        The compiler failed; the message carries what it said.
    OSError
        There is no room for its files.
    """
    source, target = folder / "loop.c", folder / "loop.so"
    source.write_text(text)
    command = [*compiler.command, *flags, "-o", str(target), str(source), "-lm"]
    # Its own messages are read below, hence the locale.
    environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    try:
        done = subprocess.run(  # noqa: S603
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMPILE_SECONDS,
            env=environment,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NativeBuildError(f"{compiler.command[0]} could not run: {error}") from error
    if "No space left on device" in done.stderr or "Disk quota exceeded" in done.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    if done.returncode != 0 or not target.exists():
        said = "\n".join(done.stderr.splitlines()[:20])
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise NativeBuildError(
            f"{compiler.command[0]} ({compiler.version}) failed on a generated loop with "
            f"{how}:\n{said}"
        )
    return target
