"""Make the development environment: a small `.venv` on top of a shared, locked one.

A full environment is about 6 GB, most of it torch. So the pinned packages of one lock file are
installed once per lock hash, outside the clone; `.venv` holds only this checkout (editable) and a
path file that points there. A second clone, or a second worktree, costs seconds. A layer is a small
lock file of what is needed beyond that, such as Sphinx: kept apart, so that it never makes torch be
installed again.

Usage: ``python tools/environment.py [--lock FILE] [--layer FILE] [--venv FOLDER]``
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent


def environments_root() -> Path:
    """Return the folder of shared environments, `FULLGRAPH_ENVS` or one in the user's cache."""
    chosen = os.environ.get("FULLGRAPH_ENVS")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "fullgraph" / "environments"


def lock_hash(lock: Path) -> str:
    """Return the key of a lock file for this interpreter, a short content hash."""
    text = f"{sys.version}\n{sys.platform}\n{lock.read_text()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(*command: str | Path) -> None:
    """Run a command, or stop with its exit status."""
    done = subprocess.run([str(part) for part in command], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def site_packages(environment: Path) -> Path:
    """Return the site-packages folder of a POSIX environment of this interpreter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def shared_environment(lock: Path, *, layer: bool = False) -> Path:
    """Return the shared environment of `lock`, installed first if it is not there yet.

    A layer names every package that it adds, so pip looks for no dependencies.
    """
    target = environments_root() / f"{lock.stem}-{lock_hash(lock)}"
    finished = target / "finished"
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.with_suffix(".lock"), "w") as guard:  # two clones may start together
        fcntl.flock(guard, fcntl.LOCK_EX)
        if finished.exists():
            return target
        size = "a small layer" if layer else "about 6 GB, some minutes"
        print(f"installing {lock.name} into {target} ({size})", flush=True)
        shutil.rmtree(target, ignore_errors=True)
        run(sys.executable, "-m", "venv", target)
        python = target / "bin" / "python"
        run(python, "-m", "pip", "install", "-q", "--upgrade", "pip")
        run(python, "-m", "pip", "install", "-q", *(["--no-deps"] if layer else []), "-r", lock)
        finished.touch()
    return target


def link(venv: Path, shared: Path, layers: Sequence[Path] = ()) -> None:
    """Make `venv`, whose only own package is this checkout, see the packages of the shared ones."""
    stamp = venv / "shared"
    # entry points are read when the package is installed: a changed pyproject.toml installs anew
    metadata = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    wanted = "\n".join([*map(str, (shared, *layers)), metadata])
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(venv, ignore_errors=True)
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    folders = [str(site_packages(environment)) for environment in (shared, *layers)]
    pth = site_packages(venv) / "shared.pth"
    pth.write_text("".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders))
    pip = (shared / "bin" / "python", "-m", "pip", "--python", venv / "bin" / "python")
    run(*pip, "install", "-q", "--no-deps", "--no-build-isolation", "-e", ROOT)
    stamp.write_text(wanted)


def main() -> None:
    """Parse the arguments, make the environment and say how long it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lock", type=Path, default=ROOT / "requirements" / "torch214.txt")
    parser.add_argument("--layer", type=Path, action="append", default=[])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    options = parser.parse_args()
    start = time.perf_counter()
    layers = [shared_environment(layer.absolute(), layer=True) for layer in options.layer]
    link(options.venv.absolute(), shared_environment(options.lock.absolute()), layers)
    print(f"set-up: {options.venv} ready in {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
