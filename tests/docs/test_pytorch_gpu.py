"""The example of operators of PyTorch on a GPU: against PyTorch's own functions and NumPy in float64."""

from typing import Any

import numpy as np
import pytest

from jitlto import KernelFamily, torch_operator
from tests.support.lazy import Lazy
from tests.support.search_reference import pack_bitset, reference

pytestmark = pytest.mark.gpu
torch, example = Lazy("torch"), Lazy("docs.examples.pytorch")


@pytest.fixture
def nearest(search: KernelFamily) -> Any:
    return torch_operator(example.declare_nearest(search))


@pytest.fixture
def spectrum(fft: KernelFamily) -> Any:
    return torch_operator(example.declare_spectrum(fft))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_nearest_rows_are_those_of_numpy(nearest: Any, dtype: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(1)
    dataset, queries = (
        torch.randn(count, 64, device="cuda", generator=generator).to(getattr(torch, dtype)) for count in (1000, 20)
    )
    mask = np.arange(1000) % 3 == 0
    bits = torch.from_numpy(pack_bitset(mask).view(np.int32)).view(torch.uint32).cuda()
    exact = ((dataset.double()[None] - queries.double()[:, None]) ** 2).sum(-1).cpu().numpy()
    for _ in range(2):
        for given, eligible in ((None, exact), (bits, np.where(mask, exact, np.inf))):
            indices, distances = nearest(dataset, queries, given)
            np.testing.assert_array_equal(indices.cpu(), eligible.argmin(1))
            np.testing.assert_allclose(distances.cpu(), eligible.min(1), rtol=1e-5)
    exact_indices, _ = reference(dataset.cpu().numpy(), queries.cpu().numpy(), "inner_product")
    np.testing.assert_array_equal(nearest(dataset, queries, None, "inner_product")[0].cpu(), exact_indices)


@pytest.mark.parametrize("n", [2, 64, 1024, 8192])
def test_the_spectrum_and_its_gradient_are_those_of_pytorch(spectrum: Any, n: int) -> None:
    window = torch.hann_window(n, dtype=torch.float64, device="cuda") + 0.1
    weights = example.fold(n, window)
    x = torch.randn(2, 3, n, dtype=torch.float64, device="cuda", requires_grad=True)
    for _ in range(2):
        found, wanted = spectrum(x, window, weights), torch.fft.rfft(x * window)
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)
        direction = torch.randn_like(wanted)
        gradients = [torch.autograd.grad(each, x, direction)[0] for each in (found, wanted)]
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_gradients_agree_with_differences_and_opcheck_passes(spectrum: Any) -> None:
    window = torch.hann_window(16, dtype=torch.float64, device="cuda") + 0.1
    weights = example.fold(16, window)
    x = torch.randn(3, 16, dtype=torch.float64, device="cuda", requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: spectrum(x, window, weights), (x,))
    assert set(torch.library.opcheck(spectrum, (x, window, weights)).values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_the_model_compiles_without_a_graph_break(
    nearest: Any, spectrum: Any, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(example, "nearest", lambda: nearest)
    monkeypatch.setattr(example, "spectrum", lambda: spectrum)
    torch._dynamo.reset()
    torch.manual_seed(1)
    model = example.SpectrumQuantiser(1024, 50).cuda()
    fast = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for _ in range(4):
            signals = torch.randn(100, 1024, device="cuda")
            indices, distances = (each.clone() for each in fast(signals))
            wanted = model(signals)
            torch.testing.assert_close(distances, wanted[1], rtol=1e-4, atol=1e-3)
            assert (indices == wanted[0]).double().mean() > 0.95  # two spectra may be equally near up to rounding
    fast(torch.randn(100, 1024, device="cuda"))[1].sum().backward()
    assert model.filter.grad.isfinite().all()
    torch._dynamo.reset()
