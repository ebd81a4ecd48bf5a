"""A default device that names what is the default anyway is out of the way while we compile.

``torch.set_default_device("cpu")``, which test suites like to call, leaves a function mode on a
stack that Dynamo guards on and that breaks its tracing of NumPy. Without it the same tensors are
made on the same device.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def has_redundant_default() -> bool:
    """Whether `torch.set_default_device` was called with a device that is the default anyway."""
    # The attribute is private, and read only to spare calls that have nothing to clear; without it
    # the public question alone decides.
    holder = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    if holder is not None and getattr(holder, "device_context", None) is None:
        return False
    return torch.get_default_device() == torch.device("cpu")


@contextlib.contextmanager
def plain_default_device() -> Iterator[None]:
    """Take a redundant default device away, and put it back."""
    device = torch.get_default_device()
    torch.set_default_device(None)
    try:
        yield
    finally:
        torch.set_default_device(device)
