"""The bounded Inductor adapter: what it refuses, and what never happens silently."""

import gc
import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

torch = pytest.importorskip("torch")

import fullgraph  # noqa: E402
from fullgraph.errors import (  # noqa: E402
    LoopCaptureError,
    LoopCompilationError,
    SpecialisationLimitError,
    UnsupportedLoopError,
    UsageError,
)
from fullgraph.torch_loop import _inductor, torch_compile_loop_adapter  # noqa: E402

F64 = torch.float64


@pytest.fixture(scope="module")
def adapter():
    return torch_compile_loop_adapter(max_steps=8, max_elements=100)


@pytest.fixture
def no_compilation(monkeypatch):
    """Fail on any attempt to compile: what is refused is refused before."""

    def forbidden(*args, **kwargs):
        raise AssertionError("compiled")

    monkeypatch.setattr(torch._inductor, "compile", forbidden)


def step(c, x):
    return c * 0.5 + x, c


def zeros(*shape, dtype=F64):
    return torch.zeros(shape, dtype=dtype)


REFUSALS = {
    "too many steps": ((zeros(2), zeros(9, 2)), "the scan has 9 steps, and may have at most 8"),
    "no steps": ((zeros(2), zeros(0, 2)), r"xs has shape \(0, 2\) and no elements"),
    "large carry": (({"a": zeros(101)}, zeros(3)), r'carry\["a"\] has 101 elements.*at most 100'),
    "large xs": ((zeros(2), (zeros(3), zeros(3, 40))), r"xs\[1\] has 120 elements.*at most 100"),
    "integers": ((zeros(2), torch.zeros(3, dtype=torch.int64)), "xs is int64.*float32 or float64"),
    "complex": ((torch.zeros(2, dtype=torch.complex128), zeros(3)), "carry is complex128"),
    "half": ((torch.zeros(2, dtype=torch.float16), zeros(3)), "carry is float16"),
    "two dtypes": (
        ((zeros(2), zeros(2, dtype=torch.float32)), zeros(3)),
        r"carry\[1\] is float32, and the leaves before it are float64",
    ),
    "number": ((1.0, zeros(3)), r"carry is the Python number 1\.0"),
    "other leaf": ((zeros(2), "text"), "xs is a str"),
    "device": (
        (zeros(2), torch.zeros(3, 2, device="meta", dtype=F64)),
        "xs is on meta. Tensors must be on the CPU",
    ),
    "sparse": ((zeros(2).to_sparse(), zeros(3)), "carry has the layout torch.sparse_coo"),
    "empty carry": ((zeros(0), zeros(3)), r"carry has shape \(0,\) and no elements"),
    "no tensor": ((None, zeros(3)), "the carry has no tensor"),
}


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("case", REFUSALS)
def test_refusals_before_compiling(adapter, case):
    arguments, text = REFUSALS[case]
    with pytest.raises(UnsupportedLoopError, match=f"torch_compile_loop_adapter: .*{text}") as e:
        adapter.scan(step, *arguments)
    assert isinstance(e.value, ValueError)
    assert "use_loop_adapter(namespace, None)" in str(e.value)


@pytest.mark.usefixtures("no_compilation")
def test_large_stacked_output(adapter):
    with pytest.raises(
        UnsupportedLoopError,
        match=r"y\[0\] has 60 elements in each of 3 steps, "
        "180 stacked. A stacked output may have at most 100",
    ):
        adapter.scan(lambda c, x: (c, (c.expand(60),)), zeros(1), zeros(3))


@pytest.mark.usefixtures("no_compilation")
def test_output_of_another_dtype(adapter):
    with pytest.raises(UnsupportedLoopError, match="y is bool"):
        adapter.scan(lambda c, x: (c, c > 0), zeros(1), zeros(3))


@pytest.mark.usefixtures("no_compilation")
def test_named_tuple(adapter):
    from typing import NamedTuple

    class Pair(NamedTuple):
        a: object
        b: object

    with pytest.raises(UnsupportedLoopError, match=r"carry is a Pair\. Trees are tuples, lists"):
        adapter.scan(step, Pair(zeros(1), zeros(1)), zeros(3))


@pytest.mark.usefixtures("no_compilation")
def test_tensor_subclass(adapter):
    class Mine(torch.Tensor):
        pass

    with pytest.raises(UnsupportedLoopError, match=r"carry is a Mine.*no subclass"):
        adapter.scan(step, zeros(2).as_subclass(Mine), zeros(3))


@pytest.mark.usefixtures("no_compilation")
def test_missing_and_contradicted_length(adapter):
    with pytest.raises(UsageError, match="neither"):
        adapter.scan(step, zeros(2))
    with pytest.raises(UsageError, match="length is 4, and xs has 3"):
        adapter.scan(step, zeros(2), zeros(3), length=4)
    with pytest.raises(UnsupportedLoopError, match="0 steps"):
        adapter.scan(step, zeros(2), length=0)


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("transform", ["grad", "vmap", "forward mode"])
def test_transforms_are_refused(adapter, transform):
    def run(c):
        return adapter.scan(step, c, zeros(3, 2))[0].sum()

    def forward_mode():
        with torch.autograd.forward_ad.dual_level():
            run(zeros(2))

    call, text = {
        "grad": (lambda: torch.func.grad(run)(zeros(2)), r"torch\.func transform"),
        "vmap": (lambda: torch.func.vmap(run)(zeros(4, 2)), r"torch\.func transform"),
        "forward mode": (forward_mode, "forward-mode"),
    }[transform]
    with pytest.raises(UnsupportedLoopError, match=text):
        call()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda(adapter):
    with pytest.raises(UnsupportedLoopError, match=r"is on cuda:0\. Tensors must be on the CPU"):
        adapter.scan(step, torch.zeros(2, device="cuda"), length=3)


BREAKS = {
    "choice on data": lambda c, x: (c if c.sum() > 0 else c + x, None),
    "item": lambda c, x: (c * float(c.sum().item() > 5), None),
    "numpy": lambda c, x: (c + float(str(float(x.numpy()[0]))), None),
}


@pytest.mark.usefixtures("no_compilation")
def test_graph_break(adapter):
    with pytest.raises(LoopCaptureError, match=r"cannot be captured whole.*torch says: ") as caught:
        adapter.scan(BREAKS["choice on data"], zeros(2), zeros(3, 2))
    assert type(caught.value.__cause__).__module__.startswith("torch._dynamo")


@pytest.mark.usefixtures("no_compilation")
def test_explicit_graph_break(adapter):
    def body(c, x):
        torch._dynamo.graph_break()
        return c + x, None

    with pytest.raises(LoopCaptureError):
        adapter.scan(body, zeros(2), zeros(3, 2))


def run_simple(adapter):
    return adapter.scan(step, zeros(2), torch.ones(3, 2, dtype=F64))


@pytest.mark.usefixtures("no_compilation")
@pytest.mark.parametrize("switch", ["config", "force_eager", "eager_on_recompile"])
def test_disabled_compilation_raises(switch):
    adapter = torch_compile_loop_adapter()
    if switch == "config":
        context = torch._dynamo.config.patch(disable=True)
    else:
        context = torch.compiler.set_stance(switch)
    with context, pytest.raises(LoopCompilationError, match="did not compile this call") as caught:
        run_simple(adapter)
    assert {"config": "config.disable is set"}.get(switch, switch) in str(caught.value)


def test_a_function_that_compilation_skips_still_gets_compiled_loops(stub_compiler):
    torch.compiler.disable(run_simple)(torch_compile_loop_adapter())
    assert len(stub_compiler) == 1


@pytest.mark.usefixtures("no_compilation")
def test_another_tracer_raises():
    from torch.fx.experimental.proxy_tensor import make_fx

    adapter = torch_compile_loop_adapter()
    with pytest.raises(LoopCompilationError):
        make_fx(lambda c: adapter.scan(step, c, torch.ones(3, 2, dtype=F64))[0])(zeros(2))


@pytest.mark.usefixtures("no_compilation")
def test_fail_on_recompile_stance_raises():
    adapter = torch_compile_loop_adapter()
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(LoopCompilationError):
        run_simple(adapter)


def test_disabled_by_environment():
    program = """
        import torch, fullgraph.torch_loop
        from fullgraph.errors import LoopCompilationError
        adapter = fullgraph.torch_loop.torch_compile_loop_adapter()
        try:
            adapter.scan(lambda c, x: (c + x, None), torch.zeros(2), torch.zeros(3, 2))
        except LoopCompilationError as error:
            assert "the environment sets TORCHDYNAMO_DISABLE" in str(error), error
        else:
            raise SystemExit("ran eagerly")
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        env={"TORCHDYNAMO_DISABLE": "1", "PATH": "/usr/bin:/bin"},
    )


def test_no_compiler(tmp_path):
    program = """
        import torch, fullgraph.torch_loop
        from fullgraph.errors import CompilerNotFoundError
        adapter = fullgraph.torch_loop.torch_compile_loop_adapter()
        try:
            adapter.scan(lambda c, x: (c.sin() + x, None), torch.zeros(2), torch.zeros(3, 2))
        except CompilerNotFoundError as error:
            assert "no working C++ compiler was found" in str(error), error
            assert "CXX" in str(error)
        else:
            raise SystemExit("no error")
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        check=False,
        capture_output=True,
        text=True,
        env={
            "CXX": str(tmp_path / "absent-c++"),
            "PATH": str(tmp_path),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        },
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("no_compilation")
def test_another_backend_forced_by_stance_is_no_silent_run():
    adapter = torch_compile_loop_adapter()
    with torch.compiler.set_stance(force_backend="eager"), pytest.raises(LoopCompilationError):
        run_simple(adapter)


# --- Compiling, with tiny bodies; a stub for Inductor where only the bookkeeping matters ---


@pytest.fixture
def stub_compiler(monkeypatch):
    """Count compilations instead of making them: the captured graph runs as it is."""
    graphs = []

    def run_graph(module, inputs):
        graphs.append(module)
        return module.forward

    monkeypatch.setattr(torch._inductor, "compile", run_graph)
    return graphs


def test_captured_once_and_whole(stub_compiler):
    adapter = torch_compile_loop_adapter()
    for _ in range(3):
        run_simple(adapter)
    assert len(stub_compiler) == 1


def test_rehearsal_happens_once_per_specialisation(stub_compiler):
    adapter = torch_compile_loop_adapter()
    plain = []

    def body(c, x):
        if not torch.compiler.is_compiling():
            plain.append(1)
        return c + x, None

    for _ in range(3):
        adapter.scan(body, zeros(2), zeros(3, 2))
    assert len(plain) == 1
    adapter.scan(body, zeros(2), zeros(4, 2))
    assert len(plain) == 2


def test_in_place_write_that_begins_later_is_still_found(stub_compiler):
    adapter = torch_compile_loop_adapter()
    write = False

    def body(c, x):
        if write:
            c.add_(1.0)
        return c + x, None

    adapter.scan(body, zeros(2), zeros(3, 2))
    write = True
    with pytest.raises(fullgraph.errors.InPlaceUpdateError):
        adapter.scan(body, zeros(2), zeros(3, 2))


def test_a_later_step_that_fails_raises_its_own_error(adapter):
    def body(c, x):
        if x.shape[0] == 2 and float(x[0]) == 2.0:
            raise KeyError("third row")
        return c + x, None

    xs = torch.arange(6, dtype=F64).reshape(3, 2)[[0, 2, 1]]
    with pytest.raises(KeyError, match="third row"):
        adapter.scan(body, zeros(2), xs)


def test_y_that_changes_between_steps(stub_compiler):
    def body(c, x):
        n = next(numbers)
        return c + x, (c if n % 2 else (c, c))

    numbers = iter(range(100))
    with pytest.raises(fullgraph.errors.StackedOutputError, match="in the first step"):
        torch_compile_loop_adapter().scan(body, zeros(2), zeros(3, 2))


def test_python_number_for_a_zero_dimensional_leaf(stub_compiler):
    carry, _ = torch_compile_loop_adapter().scan(
        lambda c, x: ((c[0] + x, 2), None), (zeros(), zeros()), zeros(3)
    )
    assert carry[1].dtype == F64
    assert carry[1].item() == 2.0


def test_limit_names_what_varied(stub_compiler, monkeypatch):
    monkeypatch.setattr(_inductor, "SPECIALISATION_LIMIT", 3)
    adapter = torch_compile_loop_adapter()
    for n in (1, 2, 3):
        adapter.scan(step, zeros(2), zeros(n, 2))
    with pytest.raises(SpecialisationLimitError, match=r"3 specialisations.*lengths \(4 of them\)"):
        adapter.scan(step, zeros(2), zeros(4, 2))
    adapter.scan(step, zeros(2), zeros(3, 2))  # what is compiled goes on working


def test_limit_names_closures(stub_compiler, monkeypatch):
    monkeypatch.setattr(_inductor, "SPECIALISATION_LIMIT", 2)
    adapter = torch_compile_loop_adapter()

    def body(c, x):
        return c * k + x, None

    for k in (1.0, 2.0):
        adapter.scan(body, zeros(2), zeros(3, 2))
    k = 3.0
    with pytest.raises(SpecialisationLimitError, match="values that the body closes over"):
        adapter.scan(body, zeros(2), zeros(3, 2))


def test_limit_is_64_and_each_adapter_has_its_own(stub_compiler):
    assert _inductor.SPECIALISATION_LIMIT == 64
    one, other = torch_compile_loop_adapter(), torch_compile_loop_adapter()

    def body(c, x):
        return c * k + x, None

    for k in range(20):  # more than Dynamo's own default of 8
        one.scan(body, zeros(2), zeros(1, 2))
    assert len(stub_compiler) == 20
    other.scan(body, zeros(2), zeros(1, 2))
    assert len(stub_compiler) == 21


def test_dynamo_settings_are_left_alone(stub_compiler):
    before = torch._dynamo.config.recompile_limit, torch._dynamo.config.specialize_float
    run_simple(torch_compile_loop_adapter())
    after = torch._dynamo.config.recompile_limit, torch._dynamo.config.specialize_float
    assert before == after


def test_random_state_is_untouched_by_the_rehearsal(stub_compiler):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    run_simple(torch_compile_loop_adapter())
    assert torch.equal(before, torch.get_rng_state())


def test_nothing_is_kept_alive(adapter):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, dtype=F64))

        def forward(self, c, x):
            return c * self.weight + x, c

    def use():
        model, init, xs = Model(), zeros(2), torch.ones(3, 2, dtype=F64)
        offset = torch.ones(2, dtype=F64)

        def body(c, x):
            new, y = model(c, x)
            return new + offset, y

        carry, ys = adapter.scan(body, init, xs)
        (carry.sum() + ys.sum()).backward()
        return [weakref.ref(one) for one in (model, model.weight, init, xs, offset, carry)]

    watched = use()
    gc.collect()
    assert [ref() for ref in watched] == [None] * len(watched)


def test_second_derivative_raises(adapter):
    weight = torch.tensor([0.5, 0.7], dtype=F64, requires_grad=True)

    def loss(w):
        return adapter.scan(
            lambda c, x: (torch.sin(c * w) + x, None), zeros(2) + 1, torch.ones(3, 2, dtype=F64)
        )[0].sum()

    (first,) = torch.autograd.grad(loss(weight), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(first.sum(), weight)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.functional.hessian(loss, weight.detach())


def test_non_leaf_inputs_warn_of_nothing(stub_compiler):
    """Warnings are errors in this suite: Dynamo's look at .grad of a non-leaf must be silent."""
    adapter = torch_compile_loop_adapter()
    xs = torch.ones(3, 2, dtype=F64, requires_grad=True) * 2
    adapter.scan(step, zeros(2), xs)[0].sum().backward()


def test_array_api_compat_helpers_warn_of_nothing(stub_compiler):
    compat = pytest.importorskip("array_api_compat")
    adapter = torch_compile_loop_adapter()

    def body(c, x):
        xp = compat.array_namespace(c, x)
        return xp.sin(c) + x, None

    carry, _ = adapter.scan(body, zeros(2), torch.ones(3, 2, dtype=F64))
    c = zeros(2)
    for _ in range(3):
        c = torch.sin(c) + 1
    assert torch.equal(carry, c)


def test_four_threads_and_two_adapters():
    adapters = [torch_compile_loop_adapter(max_steps=4) for _ in range(2)]
    xs = torch.arange(6, dtype=F64).reshape(3, 2)
    failures = []

    def work(number):
        adapter = adapters[number % 2]
        try:
            for k in range(5):
                c0 = torch.full((2,), float(number), dtype=F64)
                carry, ys = adapter.scan(step, c0, xs + k)
                c = c0
                for x in xs + k:
                    c = c * 0.5 + x
                assert torch.equal(carry, c)
                assert torch.equal(ys[0], c0)
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# --- Inside a user's own torch.compile ---


def test_inlines_under_an_outer_compile(adapter, no_compilation):
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    @torch.compile(fullgraph=True, dynamic=False, backend=backend)
    def outer(c, xs):
        with_adapter = fullgraph.scan(lambda c, x: ({"a": c["a"] * 0.5 + x}, c["a"]), {"a": c}, xs)
        return with_adapter[0]["a"] * 2, with_adapter[1]

    xs = torch.arange(6, dtype=F64).reshape(3, 2)
    with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
        found = outer(zeros(2), xs)
    want = fullgraph.scan(step, zeros(2), xs)
    assert torch.equal(found[0], want[0] * 2)
    assert torch.equal(found[1], want[1])
    assert len(graphs) == 1


def test_writes_under_an_outer_compile_reach_nothing_of_the_callers(adapter):
    def body(c, x):
        c.add_(x)
        x.zero_()
        return c, c

    @torch.compile(fullgraph=True, backend="eager", dynamic=False)
    def outer(c, xs):
        return fullgraph.scan(body, c, xs)

    init, xs = zeros(2) + 1, torch.arange(6, dtype=F64).reshape(3, 2)
    with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
        carry, ys = outer(init, xs)
    assert torch.equal(init, zeros(2) + 1)
    assert torch.equal(xs, torch.arange(6, dtype=F64).reshape(3, 2))
    assert torch.equal(carry, 1 + xs.sum(0))
    assert torch.equal(ys, 1 + xs.cumsum(0))


def test_bound_under_an_outer_compile(adapter):
    @torch.compile(backend="eager", dynamic=False)
    def outer(c, xs):
        return fullgraph.scan(step, c, xs)

    @torch.compile(fullgraph=True, backend="eager", dynamic=False)
    def whole(c, xs):
        return fullgraph.scan(step, c, xs)

    with fullgraph.use_loop_adapter("array_api_compat.torch", adapter):
        with pytest.raises(UnsupportedLoopError, match="has 9 steps, and may have at most 8"):
            outer(zeros(2), zeros(9, 2))
        with pytest.raises(Exception, match="has 9 steps, and may have at most 8"):
            whole(zeros(2), zeros(9, 2))


def test_while_loops_of_the_adapter(adapter):
    state = adapter.while_loop(lambda s: s < 50, lambda s: s * 2, torch.tensor(3.0))
    assert state.item() == 96.0
    with pytest.raises(UnsupportedLoopError, match="while_loop with max_steps"):
        adapter.while_loop(lambda s: s < 50, lambda s: s * 2, torch.tensor(3.0), max_steps=5)
