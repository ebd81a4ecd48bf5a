from __future__ import annotations

import collections
import dataclasses
import functools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fullgraph.testing import check_compiled, compiled
from fullgraph.testing._snapshot import Snapshot


@dataclasses.dataclass(slots=True)
class Slotted:
    v: object
    w: object = None


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    v: object


class Plain:
    def __init__(self, v):
        self.v = v


def roundtrip(value, change):
    saved = Snapshot((value,), {})
    change(value)
    saved.restore()
    return value


def test_tensors_in_place():
    v = torch.arange(3.0)
    alias = v
    assert roundtrip(v, lambda v: v.add_(1)) is alias
    assert v.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.arange(6.0).reshape(2, 3).mT, id="transposed"),
        pytest.param(lambda: torch.arange(6.0)[::2], id="strided"),
        pytest.param(lambda: torch.arange(6, dtype=torch.int8), id="int8"),
        pytest.param(lambda: torch.tensor([True, False]), id="bool"),
        pytest.param(lambda: torch.ones(3, dtype=torch.complex64) * 1j, id="complex"),
        pytest.param(lambda: torch.tensor(1.0), id="scalar"),
        pytest.param(lambda: torch.ones(0), id="empty"),
        pytest.param(lambda: torch.ones(2, 2).to_sparse(), id="sparse"),
    ],
)
def test_kinds_of_tensors(make):
    v, expected = make(), make()
    roundtrip(v, lambda v: v.zero_())
    assert torch.equal(v.to_dense(), expected.to_dense())


def test_leaf_that_requires_grad_and_its_grad():
    v = torch.ones(2, requires_grad=True)
    v.grad = grad = torch.zeros(2)

    def change(v):
        with torch.no_grad():
            v.add_(1)
        (v * 3).sum().backward()

    roundtrip(v, change)
    assert v.tolist() == [1, 1]
    assert v.grad is grad
    assert grad.tolist() == [0, 0]
    fresh = torch.ones(2, requires_grad=True)
    roundtrip(fresh, lambda v: v.sum().backward())
    assert fresh.grad is None


def test_expanded_tensor_whose_base_changes():
    base = torch.zeros(3)
    saved = Snapshot((base.expand(2, 3), base), {})
    base.add_(1)
    saved.restore()
    assert base.tolist() == [0, 0, 0]
    view = base.expand(2, 3)
    saved = Snapshot((view,), {})
    base.add_(1)
    saved.restore()
    assert view.tolist() == [[0] * 3] * 2


def test_resized_tensor():
    v = torch.arange(3.0)
    roundtrip(v, lambda v: v.resize_(5))
    assert v.tolist() == [0, 1, 2]


def test_inference_tensor():
    with torch.inference_mode():
        v = torch.zeros(2)
        saved = Snapshot((v,), {})
        v.add_(1)
    saved.restore()
    assert v.tolist() == [0, 0]


def test_meta_tensor_is_left_alone():
    roundtrip(torch.ones(2, device="meta"), lambda v: v.add_(1))


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: [1, [2]], lambda v: (v.append(3), v[1].clear())),
        (lambda: {"a": {"b": 1}, "c": 2}, lambda v: (v["a"].clear(), v.pop("c"), v.update(d=1))),
        (lambda: {"a": 1, "b": 2}, lambda v: v.update(a=v.pop("a"))),
        (lambda: {1, 2}, lambda v: v.clear()),
        (lambda: collections.deque([1, 2]), lambda v: v.rotate(1)),
        (lambda: bytearray(b"ab"), lambda v: v.extend(b"c")),
        (lambda: collections.defaultdict(list, a=[1]), lambda v: v["b"]),
        (lambda: SimpleNamespace(a=1), lambda v: (vars(v).pop("a"), setattr(v, "b", 2))),
        (lambda: ([1],), lambda v: v[0].pop()),
        (lambda: Slotted([1]), lambda v: (v.v.pop(), setattr(v, "w", 3))),
        (lambda: Frozen([1]), lambda v: v.v.pop()),
    ],
)
def test_containers_and_attributes(make, change):
    value = roundtrip(make(), change)
    assert value == make()
    assert not isinstance(value, dict) or list(value) == list(make())


def test_slot_that_was_empty_is_empty_again():
    class Lazy:
        __slots__ = ("v",)

    value = roundtrip(Lazy(), lambda o: setattr(o, "v", 1))
    assert not hasattr(value, "v")


def test_arrays():
    v = np.arange(3)
    roundtrip(v, lambda v: v.fill(7))
    assert v.tolist() == [0, 1, 2]
    fixed = np.arange(3)
    fixed.flags.writeable = False
    roundtrip(fixed, lambda v: None)


def test_generators_of_numbers():
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    own = (torch.Generator(), random.Random(1), np.random.default_rng(1), np.random.RandomState(1))

    def draw(*_):
        return [
            torch.rand(1).item(),
            random.random(),
            np.random.random(),
            torch.rand(1, generator=own[0]).item(),
            own[1].random(),
            own[2].random(),
            own[3].random(),
        ]

    saved = Snapshot(own, {})
    first = draw()
    saved.restore()
    assert draw() == first


def test_recursive_structures_end():
    loop = []
    loop.append(loop)
    value = Plain(loop)
    value.me = value
    roundtrip(value, lambda v: v.me.v.append(1))
    assert len(loop) == 1


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda f, box: functools.partial(f, box), id="partial"),
        pytest.param(lambda f, box: functools.partial(f, v=box), id="partial-keyword"),
        pytest.param(lambda f, box: lambda: f(box), id="closure"),
    ],
)
def test_what_a_callable_carries(wrap):
    box = [1]
    func = wrap(lambda v: v.append(2), box)
    saved = Snapshot((), {}, func)
    func()
    saved.restore()
    assert box == [1]


def test_bound_method_callable_object_and_nonlocal():
    class Counter:
        def __init__(self):
            self.n = 0

        def __call__(self):
            self.n += 1

        bump = __call__

    for func in (Counter(), Counter().bump):
        saved = Snapshot((), {}, func)
        func()
        saved.restore()
        assert getattr(func, "__self__", func).n == 0

    n = 0

    def bump():
        nonlocal n
        n += 1

    saved = Snapshot((), {}, bump)
    bump()
    assert n == 1
    saved.restore()
    assert n == 0


# --- The same through calls: what fails half-way is replayed from the state before ---


def counted_call(box, v):
    box.count += 1
    box.items.append(len(box.items))
    box.table["k"] += 1
    v.add_(1)
    draw = torch.rand(())
    torch._dynamo.graph_break()
    return v.sum() + draw


def new_box():
    return SimpleNamespace(count=0, items=[], table={"k": 0})


@pytest.mark.parametrize("mode", ["compile", "fullgraph"])
@pytest.mark.parametrize("fail_on", [1, 2])
def test_replay_starts_from_the_state_before_the_call(mode, fail_on, monkeypatch):
    """The backend gives up at the n-th graph, after earlier ones have run and changed things."""
    from fullgraph.testing._dynamo import backends

    compile_graph = backends.program
    seen = []

    def failing(graph, inputs):
        seen.append(graph)
        if len(seen) >= fail_on:
            raise RuntimeError("this backend gives up")
        return compile_graph(graph, inputs)

    monkeypatch.setattr(backends, "program", failing)

    def seeded(func, box, v):
        torch.manual_seed(3)
        np.random.seed(3)
        random.seed(3)
        return func(box, v)

    box, v = new_box(), torch.zeros(4)
    expected = seeded(counted_call, *(eager := (new_box(), torch.zeros(4))))
    after = (torch.rand(()), np.random.random(), random.random())
    call = compiled(counted_call, mode=mode)
    result = seeded(call, box, v)
    assert torch.equal(result, expected)
    assert (torch.rand(()), np.random.random(), random.random()) == after
    assert (box.count, box.items, box.table) == (1, [0], {"k": 1})
    assert torch.equal(v, eager[1])
    (outcome,) = call.record.calls
    assert str(outcome) == "compile failed"
    assert "this backend gives up" in next(iter(call.record.failures))


def test_check_compiled_gives_both_calls_the_same_state():
    def f(v, items):
        items.append(1)
        v.add_(torch.rand(()))
        return v * len(items)

    v, items = torch.zeros(3), []
    check_compiled(f, (v, items))
    assert items == [1]  # as one call leaves it


@pytest.mark.parametrize(
    "write",
    [
        lambda v: v.data.add_(1),
        lambda v: v.detach().numpy().__iadd__(1),
    ],
    ids=["data", "numpy view"],
)
def test_writes_that_no_version_counts(write):
    value = torch.arange(3.0, requires_grad=True)
    roundtrip(value, write)
    assert value.tolist() == [0, 1, 2]


def test_unchanged_tensors_are_not_written_to():
    value = torch.tensor([1.0, float("nan")]).conj()
    version = value._version
    roundtrip(value, lambda _: None)
    assert value._version == version


@pytest.mark.parametrize("shape", [(1,), (0,), (0, 3), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool])
def test_expanded_tensors_of_few_elements(shape, dtype):
    tensor = torch.ones((), dtype=dtype).expand(shape)
    Snapshot((tensor,), {}).restore()
    assert tensor.shape == shape
    base = torch.ones((), dtype=dtype)
    view = base.expand(1)
    saved = Snapshot((view,), {})
    base.zero_()
    saved.restore()
    assert base == torch.ones((), dtype=dtype)
