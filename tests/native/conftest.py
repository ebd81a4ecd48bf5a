"""What tests of native loops share: an adapter, and comparison with the plain loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optree
import pytest
import torch

from fullgraph.loops import _eager
from fullgraph.loops._eager_torch import TorchOps
from fullgraph.native import lanes
from fullgraph.torch_loop import torch_native_loop_adapter

if TYPE_CHECKING:
    from collections.abc import Callable


class Comparison:
    """Runs scans natively and plainly, and compares."""

    def __init__(self, **settings: Any) -> None:
        self.adapter = torch_native_loop_adapter(**settings)

    @property
    def plan(self) -> lanes.Plan:
        """How the last body was written out."""
        return self.adapter.scan.engine.specialisations()[-1].compiled.plan

    @property
    def compiled(self) -> int:
        """How many specialisations exist."""
        return len(self.adapter.scan.engine.specialisations())

    def run(self, body: Callable[..., Any], init: Any, xs: Any = None, **options: Any) -> Any:
        return self.adapter.scan(body, init, xs, **options)

    @staticmethod
    def plain(body: Callable[..., Any], init: Any, xs: Any = None, **options: Any) -> Any:
        settings = {"length": None, "reverse": False, **options}
        return _eager.scan(body, init, xs, ops=TorchOps(), **settings)

    def check(
        self,
        body: Callable[..., Any],
        init: Any,
        xs: Any = None,
        *,
        exact: bool = False,
        rtol: float = 1e-12,
        **options: Any,
    ) -> Any:
        """Compare; `exact` asks for equal bits, else float32 is held to 1e-5."""
        expected = self.plain(body, init, xs, **options)
        found = self.run(body, init, xs, **options)
        left, shape = optree.tree_flatten(expected)
        right, other = optree.tree_flatten(found)
        assert shape == other
        for a, b in zip(left, right, strict=True):
            tolerance = 0 if exact else 1e-5 if a.dtype == torch.float32 else rtol
            torch.testing.assert_close(b, a, rtol=tolerance, atol=tolerance, equal_nan=True)
        return found


@pytest.fixture
def native() -> Comparison:
    return Comparison()


@pytest.fixture(params=["written out", "loops"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to write a step: as scalar statements, and as loops over arrays."""
    if request.param == "loops":
        monkeypatch.setattr(lanes, "UNROLL_LIMIT", -1)
    return str(request.param)


@pytest.fixture
def native_with() -> type[Comparison]:
    """Make a comparison with an adapter of given settings."""
    return Comparison
