"""Which torch is installed, and whether its internals are known to us."""

from __future__ import annotations

import functools
import importlib.metadata
import warnings

from fullgraph.errors import MissingBackendError

OLDEST = (2, 13)
NEWEST_KNOWN = (2, 15)


class UnknownTorchWarning(UserWarning):
    """The torch in use is newer than the releases whose internals are known here."""


@functools.cache
def torch_release() -> tuple[int, int]:
    """Return the installed torch's (major, minor), or raise a `MissingBackendError`."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise MissingBackendError(
            "torch is not installed, and compiled calls need it: "
            "pip install 'torch>=2.13', or use mode 'eager'"
        ) from None
    major, minor = version.split(".")[:2]
    release = (int(major), int(minor))
    if release < OLDEST:
        raise MissingBackendError(
            f"torch {version} is installed, and compiled calls need torch >= "
            f"{OLDEST[0]}.{OLDEST[1]}: pip install --upgrade torch, or use mode 'eager'"
        )
    return release


@functools.cache
def internals_known() -> bool:
    """Whether the private hooks may be used; says so once, on a newer torch than we know."""
    known = torch_release() <= NEWEST_KNOWN
    if not known:
        warnings.warn(
            f"torch {importlib.metadata.version('torch')} is newer than the newest release known "
            f"to fullgraph ({NEWEST_KNOWN[0]}.{NEWEST_KNOWN[1]}): records are taken through "
            "torch's public logs; sites of reused specialisations are then an upper bound",
            UnknownTorchWarning,
            stacklevel=2,
        )
    return known
