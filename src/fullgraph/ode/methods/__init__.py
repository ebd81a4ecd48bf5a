"""The methods of `fullgraph.ode`, by name: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fullgraph.errors import UsageError
from fullgraph.ode.methods.bosh3 import Bosh3
from fullgraph.ode.methods.dopri5 import Dopri5
from fullgraph.ode.methods.euler import Euler
from fullgraph.ode.methods.fehlberg2 import Fehlberg2
from fullgraph.ode.methods.heun import Heun
from fullgraph.ode.methods.heun3 import Heun3
from fullgraph.ode.methods.midpoint import Midpoint
from fullgraph.ode.methods.rk4 import RK4
from fullgraph.ode.methods.rk4_38 import RK438
from fullgraph.ode.methods.tsit5 import Tsit5

if TYPE_CHECKING:
    from fullgraph.ode.methods.base import Method

__all__ = ["METHODS", "adaptive_methods", "find_method"]

METHODS: Final[dict[str, Method]] = {
    method.name: method
    for method in (
        *(Euler(), Heun(), Midpoint(), Heun3(), RK4(), RK438()),
        *(Fehlberg2(), Bosh3(), Dopri5(), Tsit5()),
    )
}


def adaptive_methods() -> list[str]:
    """Return the names of the methods that estimate their error."""
    return [name for name, method in METHODS.items() if method.estimate_order is not None]


def find_method(name: object) -> Method:
    """Return a method by its name, or raise UsageError with the names there are."""
    found = METHODS.get(name) if isinstance(name, str) else None
    if found is None:
        raise UsageError(f"method must be one of {', '.join(METHODS)}, and is {name!r}.")
    return found
