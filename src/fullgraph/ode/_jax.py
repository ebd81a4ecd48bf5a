"""The few things that solvers ask of JAX itself."""

from __future__ import annotations

from jax.lax import stop_gradient

__all__ = ["stop_gradient"]
