"""Functions that are fused into kernels, on a GPU: by hand and by ``torch.compile``, against PyTorch itself."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from docs.examples.operators import declare_inverse, declare_segment_reduce, declare_transform
from jitlto import torch_fusion, torch_operator
from jitlto.runtime.family import KernelFamily
from tests.support.lazy import Lazy

pytestmark = pytest.mark.gpu
torch = Lazy("torch")


@pytest.fixture(scope="module", autouse=True)
def _needs_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch sees no GPU")


@pytest.fixture(scope="module")
def transform(fft: KernelFamily) -> Any:
    return torch_operator(declare_transform(fft))


@pytest.fixture(scope="module")
def inverse(fft: KernelFamily) -> Any:
    return torch_operator(declare_inverse(fft))


@pytest.fixture
def fused() -> Iterator[Callable[..., Any]]:
    """``torch.compile`` with the pass."""
    torch._dynamo.reset()
    options = {"post_grad_custom_post_pass": torch_fusion()}
    yield lambda function, **more: torch.compile(function, fullgraph=True, options={**options, **more})
    torch._dynamo.reset()


def rows(m: int, n: int, dtype: Any) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(m + n)
    return torch.randn(m, n, generator=generator, device="cuda", dtype=dtype)


def kernels(function: Callable[[], Any]) -> list[str]:
    """The names of the kernels that a call launches."""
    function()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    device = torch.autograd.DeviceType.CUDA
    return [event.name for event in profile.events() if event.device_type == device and "Mem" not in event.name]


def close(result: Any, expected: Any, bound: float = 1e-5) -> None:
    """Compare with what is computed in double: relative to the largest element."""
    assert result.shape == expected.shape
    error = (result.to(expected.dtype) - expected).abs().max() / expected.abs().max()
    assert float(error) < bound, float(error)


# --- by hand ---


def test_an_epilogue_by_hand_reads_numbers_and_columns(fft: KernelFamily) -> None:
    made = declare_transform(fft).with_epilogue("v * scale + bias[col]", bias="complex64", scale="float")
    run = torch_operator(made)
    x, bias = rows(100, 1024, torch.complex64), rows(1, 1025, torch.complex64)[0]
    for some in (bias[:1024], bias[1:]):  # the second begins at an address that has to be copied
        for scale in (0.5, -2.0, 0.5):
            expected = torch.fft.fft(x.to(torch.complex128)) * scale + some
            close(run(x, some, scale), expected)
    assert len(kernels(lambda: run(x, bias[:1024], 0.5))) == 1


def test_an_epilogue_by_hand_may_change_the_dtype(fft: KernelFamily) -> None:
    made = declare_inverse(fft).with_epilogue("gelu(v * 0.001 + r[row])", r="float32", dtype="bfloat16")
    run = torch_operator(made)
    y, r = rows(64, 513, torch.complex64), rows(1, 64, torch.float32)[0]
    expected = torch.fft.irfft(y.to(torch.complex128), norm="forward") * 0.001 + r[:, None]
    result = run(y, r)
    assert result.dtype == torch.bfloat16
    close(result, torch.nn.functional.gelu(expected), 2**-8)
    assert len(kernels(lambda: run(y, r))) == 1


# --- by torch.compile ---


def test_a_scaled_transform_is_one_kernel(transform: Any, fused: Callable[..., Any]) -> None:
    x = rows(1000, 1024, torch.complex64)

    def function(x: Any) -> Any:
        return transform(x, "forward") * 0.5

    run = fused(function)
    assert torch.equal(run(x), function(x))
    assert len(kernels(lambda: run(x))) == 1 < len(kernels(lambda: function(x)))


def test_a_chain_behind_a_transform_is_that_of_inductor(inverse: Any, fused: Callable[..., Any]) -> None:
    y, bias = rows(333, 129, torch.complex64), rows(1, 256, torch.bfloat16)[0]

    gelu, bfloat16 = torch.nn.functional.gelu, torch.bfloat16

    def function(y: Any, bias: Any) -> Any:
        return gelu(inverse(y) * 0.05 + bias).to(bfloat16)

    run, plain = fused(function), torch.compile(function, fullgraph=True)
    result, expected = run(y, bias), plain(y, bias)
    assert result.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(result, expected, rtol=2**-7, atol=1e-6)
    assert len(kernels(lambda: run(y, bias))) == 1
    assert len(kernels(lambda: plain(y, bias))) == 2


def test_a_chain_before_a_transform_is_fused_too(transform: Any, fused: Callable[..., Any]) -> None:
    x, weight = rows(50, 256, torch.complex64), rows(50, 1, torch.complex64)
    index = torch.randint(0, 50, (200,), device="cuda") - 25

    def function(x: Any, weight: Any, index: Any) -> Any:
        return transform((x * weight)[index] * 2, "inverse") + 1

    run = fused(function)
    close(run(x, weight, index), function(x, weight, index).to(torch.complex128))
    assert len(kernels(lambda: run(x, weight, index))) < len(kernels(lambda: function(x, weight, index)))


def test_sizes_may_vary(transform: Any, fused: Callable[..., Any]) -> None:
    function = lambda x, w: transform(x * w, "forward") * 0.5  # noqa: E731
    run = fused(function)
    for m in (7, 20, 333, 20):
        x, w = rows(m, 64, torch.complex64), rows(m, 1, torch.complex64)
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(w, 0)
        assert torch.equal(run(x, w), function(x, w))


def test_a_captured_graph_holds_tables_that_stay(inverse: Any, fused: Callable[..., Any]) -> None:
    function = lambda y, a, b: (inverse(y) * a + b).relu()  # noqa: E731
    run = fused(function, **{"triton.cudagraphs": True})
    for seed in range(5):
        y, a, b = rows(40 + seed, 65, torch.complex64)[:40], rows(40, 1, torch.float32), rows(1, 128, torch.float32)
        close(run(y, a, b).clone(), function(y.to(torch.complex128), a.double(), b.double()))


def test_gradients_keep_what_they_need(transform: Any, fused: Callable[..., Any]) -> None:
    x = rows(10, 64, torch.complex64)

    def function(x: Any) -> Any:
        y = transform(x, "forward")
        return y.abs().sum(), y * 2

    run = fused(function)
    for made, expected in zip(run(x), function(x), strict=True):
        assert torch.allclose(made, expected)


def test_the_fused_operator_is_a_proper_one(inverse: Any) -> None:
    y, a = rows(33, 65, torch.complex64), rows(33, 1, torch.float32)
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda y, a: inverse(y) * a + 1, tracing_mode="fake")(y, a)
    torch_fusion()(traced.graph)
    (call,) = (node for node in traced.graph.nodes if node.op == "call_function")
    text, _, *others = call.args
    torch.library.opcheck(call.target, (text, [y, a], *others))
    torch.testing.assert_close(call.target(text, [y, a], *others), inverse(y) * a + 1)


# --- the family made for it ---


@pytest.fixture(scope="module")
def reduce(segment_reduce: KernelFamily) -> Any:
    return torch_operator(declare_segment_reduce(segment_reduce))


@pytest.mark.parametrize(
    ("dtype", "width", "how"),
    [("float32", 1, "sum"), ("float32", 100, "max"), ("float16", 6, "mean"), ("bfloat16", 64, "sum"),
     ("bfloat16", 128, "max"), ("float32", 64, "mean")],
)  # fmt: skip
def test_messages_are_never_written_to_memory(
    reduce: Any, fused: Callable[..., Any], dtype: str, width: int, how: str
) -> None:
    gelu, kind = torch.nn.functional.gelu, getattr(torch, dtype)
    lengths = torch.tensor([5, 0, 1000, 3, 1, 0, 17] * 10, device="cuda")
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    count = int(offsets[-1])
    index = torch.randint(-100, 100, (count,), device="cuda")
    x, weight, bias = rows(100, width, kind), rows(count, 1, kind), rows(1, width, kind)[0]

    def function(x: Any, weight: Any, bias: Any, index: Any, offsets: Any) -> Any:
        return gelu(reduce((x[index] * weight).relu(), offsets, how) + bias)

    run, plain = fused(function), torch.compile(function, fullgraph=True)
    given = (x, weight, bias, index, offsets)
    # Plain messages are rounded to the dtype, and those of the fused kernel are not: neither is the other's reference.
    messages = (x.double()[index] * weight.double()).relu()
    reduced = torch.segment_reduce(messages, how, offsets=offsets, axis=0)
    exact, result = gelu(reduced + bias.double()), run(*given).double()
    bound = torch.finfo(kind).eps * (reduced.abs() + exact.abs()) + 1e-6
    assert (((result - exact).abs() <= bound) | (result.isnan() & exact.isnan())).all()
    assert len(kernels(lambda: run(*given))) == 1 < len(kernels(lambda: plain(*given)))
