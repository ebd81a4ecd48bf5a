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
    from collections.abc import Callable, Sequence


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

    def gradients(
        self,
        body: Callable[..., Any],
        init: Any,
        xs: Any = None,
        *,
        closed: Sequence[torch.Tensor] = (),
        rtol: float = 1e-12,
        loss: Callable[[list[torch.Tensor]], torch.Tensor] | None = None,
        **options: Any,
    ) -> list[torch.Tensor | None]:
        """Compare gradients of init, xs and `closed`, whichever of them require grad.

        The loss weighs every differentiable result with fixed random numbers, unless one is given.
        Largest differences are held to `rtol` of the largest gradient, 1e-4 for float32.
        """
        leaves = [t for t in (*optree.tree_leaves((init, xs)), *closed) if _wants(t)]
        expected = self._gradients(self.plain, body, init, xs, leaves, loss, options)
        found = self._gradients(self.run, body, init, xs, leaves, loss, options)
        for a, b in zip(expected, found, strict=True):
            want = torch.zeros_like(b) if a is None and b is not None else a
            have = torch.zeros_like(a) if b is None and a is not None else b
            if want is None or have is None:
                continue
            assert have.dtype == want.dtype
            assert have.shape == want.shape
            bound = 1e-4 if want.dtype == torch.float32 else rtol
            nans = torch.isnan(want)
            assert torch.equal(nans, torch.isnan(have))
            largest = max(1.0, float(want[~nans].abs().max())) if (~nans).any() else 1.0
            difference = (have - want)[~nans].abs()
            assert not difference.numel() or float(difference.max()) <= bound * largest
        return found

    @staticmethod
    def _gradients(
        scan: Any, body: Any, init: Any, xs: Any, leaves: Any, loss: Any, options: Any
    ) -> list[torch.Tensor | None]:
        results = list(optree.tree_leaves(scan(body, init, xs, **options)))
        if loss is None:
            generator = torch.Generator().manual_seed(7)
            weights = [
                torch.randn(t.shape, generator=generator, dtype=torch.float64) for t in results
            ]
            total = sum(
                (w.to(t.dtype) * t).sum()
                for w, t in zip(weights, results, strict=True)
                if t.requires_grad
            )
        else:
            total = loss(results)
        if not isinstance(total, torch.Tensor) or not total.requires_grad:
            return [None] * len(leaves)
        return list(torch.autograd.grad(total, leaves, allow_unused=True))


def _wants(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


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
