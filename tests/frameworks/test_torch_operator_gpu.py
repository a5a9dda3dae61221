"""Operators of PyTorch on a GPU: against NumPy in float64, compiled, exported, differentiated, captured, in streams."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto import torch_operator
from jitlto.base.config import Config
from jitlto.base.errors import OperatorError
from jitlto.cuda import device
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from tests.support.errors import raises
from tests.support.families import built, tiered
from tests.support.lazy import Lazy
from tests.support.operators import FAMILY, declare

pytestmark = pytest.mark.gpu
torch, torch_kernel = Lazy("torch"), Lazy("jitlto.frameworks.torch_kernel")

_namespaces = (f"jitlto_gpu_test{number}" for number in itertools.count())


class World:
    """The operators of a namespace of their own."""

    def __init__(self, family: KernelFamily) -> None:
        self.namespace = next(_namespaces)
        self.declared = declare(family, self.namespace)
        self.square = torch_operator(self.declared["square"])
        self.reduce_rows = torch_operator(self.declared["reduce_rows"])
        self.accumulate = torch_operator(self.declared["accumulate"])


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> KernelFamily:
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")
    return built(tmp_path_factory.mktemp("operators"), FAMILY, "operators")


@pytest.fixture(scope="module")
def world(family: KernelFamily) -> World:
    return World(family)


@pytest.fixture
def compiled() -> Iterator[Callable[..., Any]]:
    torch._dynamo.reset()
    yield lambda function, **how: torch.compile(function, fullgraph=True, **how)
    torch._dynamo.reset()


def rows(m: int = 100, n: int = 37, dtype: Any = None, seed: int = 1) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(m, n, generator=generator, device="cuda", dtype=dtype or torch.float32)


def numpy(tensor: Any) -> Any:
    return tensor.detach().double().cpu().numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (100, 37), (3, 1000), (0, 5)])
def test_results_are_those_of_numpy(world: World, dtype: str, shape: tuple[int, int]) -> None:
    x = rows(*shape, dtype=getattr(torch, dtype))
    bits = torch.arange(shape[1], device="cuda") % 3 != 1
    tolerance = {"rtol": 1e-6 if dtype == "float32" else 1e-14, "atol": 1e-5 if dtype == "float32" else 1e-12}
    for _ in range(2):
        np.testing.assert_allclose(numpy(world.square(x, 1.5)), 1.5 * numpy(x) ** 2, **tolerance)
        values, counts = world.reduce_rows(x, bits)
        np.testing.assert_allclose(numpy(values), numpy(x)[:, bits.cpu().numpy()].sum(1), rtol=1e-4, atol=1e-3)
        assert counts.tolist() == [int(bits.sum())] * shape[0]
        np.testing.assert_array_equal(numpy(world.reduce_rows(x, None, "largest")[0]), numpy(x).max(1))


def test_views_parameters_and_mutations(world: World) -> None:
    x = rows()
    for view in (x.t(), x[:, ::3], x[5:], x.expand(3, 100, 37), torch.nn.Parameter(x)):
        np.testing.assert_allclose(numpy(world.square(view)), numpy(view) ** 2, rtol=1e-6)
    total = torch.zeros(37, 100, device="cuda")
    for number in (1, 2):
        world.accumulate(total, x.t())
        world.accumulate(total.t(), x)
        np.testing.assert_allclose(numpy(total), 2 * number * numpy(x.t()), rtol=1e-6)


def _model(world: World) -> Callable[[Any], Any]:
    square, reduce_rows, sin, relu = world.square, world.reduce_rows, torch.sin, torch.relu  # traced: nothing lazy

    def model(x: Any) -> Any:
        values, counts = reduce_rows(square(sin(x) * 2, 1.5) + 1)
        return relu(values - counts)

    return model


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled_code_has_no_graph_break_and_the_same_numbers(
    world: World, compiled: Callable[..., Any], mode: str
) -> None:
    model = _model(world)
    assert torch._dynamo.explain(model)(rows()).graph_break_count == 0
    fast = compiled(model, mode=mode)
    for seed in range(5):  # the third call and later ones replay a graph in reduce-overhead
        x = rows(seed=seed)
        torch.testing.assert_close(fast(x).clone(), model(x))


def test_a_cuda_graph_replays_it_with_new_values(world: World) -> None:
    x, total = rows(), torch.zeros(100, 37, device="cuda")
    world.accumulate(total, world.square(x))  # links and loads
    graph = torch.cuda.CUDAGraph()
    total.zero_()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = world.square(x, 2.0)
        world.accumulate(total, y)
    for number in range(1, 4):
        x.fill_(number)
        graph.replay()
    torch.cuda.synchronize()
    assert y.unique().tolist() == [18.0]
    assert total.unique().tolist() == [2.0 * (1 + 4 + 9)]


def test_a_graph_holds_kernels_with_lto(tmp_path: Path) -> None:
    files = tiered(FAMILY, "operators", f'"{device.architecture()}"')
    database = built(tmp_path, files, "operators").database
    fresh = KernelFamily("operators", database, Session(Config.read({"JITLTO_CACHE": "off"})))
    world, x, graph = World(fresh), rows(), torch.cuda.CUDAGraph()
    launcher = fresh.launcher(entry="square", data_type="float")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = world.square(x, 2.0)
    assert (launcher.tier, fresh.session.events.counters()["linked_fast"]) == ("lto", 1)
    graph.replay()
    torch.testing.assert_close(y, 2 * x * x)


def test_a_kernel_can_be_launched_first_in_a_capture(family: KernelFamily) -> None:
    fresh = World(family)  # knows no shape yet
    x = rows()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fresh.square(x)
    x.fill_(3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert y.unique().tolist() == [9.0]


def test_a_launch_is_in_the_current_stream(world: World) -> None:
    x = torch.zeros(1 << 20, device="cuda")
    world.square(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)  # cycles: a launch in any other stream would read zeros
        x.fill_(2.0)
        y = world.square(x)
    stream.synchronize()
    assert y.unique().tolist() == [4.0]


def _reuse_memory_early(world: World) -> float:
    """Call the operator in a busy stream on memory of the default stream that is given to another tensor at once."""
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    size = 1 << 22
    x = torch.full((size,), 3.0, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(400_000_000)
        y = world.square(x)
    del x
    other = torch.full((size,), 5.0, device="cuda")  # the allocator gives the memory of x to whoever asks next
    torch.cuda.synchronize()
    del other
    found = y.unique()
    return float(found[0]) if len(found) == 1 else float("nan")


def test_memory_that_a_stream_still_reads_is_not_reused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.square(torch.ones(1 << 22, device="cuda"))  # the launch below is not the first
    assert _reuse_memory_early(world) == 9.0
    # Without record_stream it is.
    monkeypatch.setattr(torch_kernel.Cuda, "keep", lambda self, tensors, index: None)
    fresh = World(world.declared["square"].loaded)
    fresh.square(torch.ones(1 << 22, device="cuda"))
    assert _reuse_memory_early(fresh) != 9.0


def test_every_device_is_used_whatever_the_current_one_is(world: World) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    for _ in range(2):
        for index in (0, 1):
            x = torch.full((5,), 2.0 + index, device=f"cuda:{index}")
            y = world.square(x)
            assert y.device == x.device
            assert y.tolist() == [(2.0 + index) ** 2] * 5
    assert torch.cuda.current_device() == 0
    with raises(OperatorError, "operator-call", "x", "cuda:1", hint="cuda:0"):
        world.accumulate(torch.zeros(3, device="cuda:0"), torch.ones(3, device="cuda:1"))
