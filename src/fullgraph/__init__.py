"""Array code that compiles whole, provably.

Two halves: `fullgraph.testing` runs tagged functions under torch.compile and proves for every call
what was captured; `fullgraph.loops` gives ``scan``, ``fori_loop``, ``while_loop`` and ``cond`` with
one meaning on NumPy, torch and JAX. Importing this package imports no array library.
"""

from __future__ import annotations

__all__: list[str] = []
