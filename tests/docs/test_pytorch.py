"""The example of operators of PyTorch fits the shipped families, and its model is right; kernels are NumPy's here."""

import os
from typing import Any

import numpy as np
import pytest

from jitlto import KernelFamily, Operator, torch_operator
from tests.support.lazy import Lazy
from tests.support.operators import CpuBackend, CpuFamily, Reader
from tests.support.shipped import ALL

torch, example = Lazy("torch"), Lazy("docs.examples.pytorch")
module = Lazy("jitlto.frameworks.torch_operator")


def _nearest(read: Reader, dataset: Any, queries: Any, indices: Any, distances: Any, *sizes: Any) -> None:
    n, m, d, bits = sizes
    assert bits is None
    rows, wanted = (read(each, count * d, np.float32).reshape(count, d) for each, count in ((dataset, n), (queries, m)))
    found = ((rows[None] - wanted[:, None]) ** 2).sum(-1)
    read(indices, m, np.int64)[:] = found.argmin(1)
    read(distances, m, np.float32)[:] = found.min(1)


def _fft(read: Reader, source: Any, target: Any, count: int, load: Any, store: Any) -> None:
    n, is_double = int(str(read.chosen["size"])), read.chosen["data_type"] == "double"
    k = n // 2 + 1
    real, other = (np.float64, np.complex128) if is_double else (np.float32, np.complex64)
    if read.chosen["kind"] == "r2c":
        rows = read(source, count * n, real).reshape(count, n) * read(load, n, real)
        read(target, count * k, other)[:] = np.fft.rfft(rows).ravel()
    else:
        rows = read(source, count * k, other).reshape(count, k) * read(load, k, real)
        read(target, count * n, real)[:] = (np.fft.irfft(rows, norm="forward") * read(store, n, real)).ravel()


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The example's operators, on the CPU."""
    monkeypatch.setattr(module, "make_backend", CpuBackend)
    families = CpuFamily({None: _nearest}), CpuFamily({None: _fft})
    nearest = torch_operator(example.declare_nearest(lambda: families[0]))
    spectrum = torch_operator(example.declare_spectrum(lambda: families[1]))
    monkeypatch.setattr(example, "nearest", lambda: nearest)
    monkeypatch.setattr(example, "spectrum", lambda: spectrum)
    return nearest, spectrum


@pytest.mark.slow
def test_the_model_is_right_and_traced_without_a_graph_break(operators: tuple[Any, Any]) -> None:
    model = example.SpectrumQuantiser(64, 10)
    signals = torch.randn(7, 64, generator=torch.Generator().manual_seed(1))
    spectra = np.log1p(np.abs(np.fft.rfft(signals.numpy() * np.float64(model.window.numpy()))) ** 2)
    squares = ((model.codebook.detach().double().numpy()[None] - spectra[:, None]) ** 2).sum(-1)
    for function in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        indices, distances = function(signals)
        np.testing.assert_array_equal(indices, squares.argmin(1))
        np.testing.assert_allclose(distances.detach(), squares.min(1), rtol=1e-4)
        distances.sum().backward()
    assert model.filter.grad.isfinite().all()


@pytest.mark.slow
def test_the_gradient_of_the_spectrum_agrees_with_differences(operators: tuple[Any, Any]) -> None:
    for n in (2, 16):
        x = torch.randn(3, n, dtype=torch.float64, requires_grad=True)
        window = torch.hann_window(n, dtype=torch.float64) + 0.1
        weights = example.fold(n, window)
        spectrum = operators[1]
        assert torch.autograd.gradcheck(lambda x: spectrum(x, window, weights), (x,))  # noqa: B023
    assert set(torch.library.opcheck(spectrum, (x, window, weights)).values()) == {"SUCCESS"}


def _fits(operator: Operator, values: list[Any], family: KernelFamily) -> None:
    call = operator.resolve(operator.bind(values))
    plan = family.plan(arch="sm_90", **call.configuration)
    assert len(plan.chosen.signature) == len(call.parameters)
    for parameter, (place, value) in zip(plan.chosen.signature, call.parameters, strict=True):
        assert (place is not None or value is None) == ("*" in parameter.type), parameter


@pytest.mark.slow
def test_the_search_fits_its_family(search: KernelFamily) -> None:
    for dtype in ("float32", "float16"):
        for bits in (None, ((32,), "uint32")):
            for metric in ("euclidean", "inner_product"):
                values = [((1000, 64), dtype), ((10, 64), dtype), bits, metric]
                _fits(example.declare_nearest(search), values, search)


@pytest.mark.slow
def test_the_transform_and_its_gradient_fit_their_family(fft: KernelFamily) -> None:
    operator = example.declare_spectrum(fft)
    types = {"float": ("float32", "complex64"), "double": ("float64", "complex128")}
    built = {(each["kind"], each["data_type"], int(each["size"])) for each in fft.configurations()}
    fitting = set()
    for kind, data_type, n in built:
        real, other = types.get(data_type, ("", ""))
        window, weights = ((n,), real), ((n // 2 + 1,), real)
        if real and kind == "r2c":
            _fits(operator, [((3, 5, n), real), window, weights], fft)
        elif real and kind == "c2r":
            _fits(operator.backward.operator, [((3, 5, n // 2 + 1), other), window, weights], fft)
        else:
            continue
        fitting.add((kind, data_type))
    assert len(fitting) == 4 if ALL in os.environ else fitting  # otherwise each value is built, not each pair
