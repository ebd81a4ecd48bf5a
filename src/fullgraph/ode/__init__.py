"""Solvers of ordinary differential equations, written once on `fullgraph.loops`.

`solve` is the solver: NumPy, torch, JAX and other array-API namespaces, fixed or adaptive steps,
plain or compiled loops. `odeint` and `odeint_adjoint` have the signatures of torchdiffeq. Importing
this package imports no array library.
"""

from __future__ import annotations

from fullgraph.ode._odeint import odeint, odeint_adjoint
from fullgraph.ode._solution import Solution, Stats, Status
from fullgraph.ode._solve import solve

__all__ = ["Solution", "Stats", "Status", "odeint", "odeint_adjoint", "solve"]
