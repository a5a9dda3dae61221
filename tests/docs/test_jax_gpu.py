"""The example of calls from JAX on a GPU: against NumPy in float64 and JAX's own functions."""

import os
from typing import Any

import numpy as np
import pytest

from jitlto import KernelFamily, jax_call
from tests.support.lazy import Lazy

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
pytestmark = pytest.mark.gpu
jax, example = Lazy("jax"), Lazy("docs.examples.jax_calls")


@pytest.fixture
def calls(search: KernelFamily, fft: KernelFamily, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """The example's functions, with kernels of the families under test."""
    nearest = jax_call(example.declare_nearest(search, "uint32"))
    spectrum = jax_call(example.declare_spectrum(fft))
    monkeypatch.setattr(example, "nearest", lambda: nearest)
    monkeypatch.setattr(example, "spectrum", lambda: spectrum)
    return nearest, spectrum


def test_the_model_is_right_and_its_gradient_is_that_of_jax(
    calls: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    parameters = example.initial(jax.random.key(1), 256, 40)
    signals = jax.random.normal(jax.random.key(2), (30, 256))
    window = np.hanning(257)[:-1]
    spectra = np.log1p(np.abs(np.fft.rfft(np.asarray(signals, np.float64) * window)) ** 2)
    squares = ((np.asarray(parameters["codebook"], np.float64)[None] - spectra[:, None]) ** 2).sum(-1)
    for function in (example.quantise, jax.jit(example.quantise)):
        indices, distances = function(parameters, signals)
        np.testing.assert_array_equal(indices, squares.argmin(1))
        np.testing.assert_allclose(distances, squares.min(1), rtol=1e-4)

    def loss(parameters: Any) -> Any:
        return example.quantise(parameters, signals)[1].mean()

    found = jax.jit(jax.grad(loss))(parameters)
    monkeypatch.setattr(example, "spectrum", lambda: lambda x, window, _: jax.numpy.fft.rfft(x * window))
    wanted = jax.grad(loss)(parameters)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=2e-3, atol=1e-5)


def test_gradients_of_complex_results_are_those_of_jax(calls: tuple[Any, Any]) -> None:
    x, window = jax.random.normal(jax.random.key(1), (3, 64)), jax.numpy.hanning(65)[:-1]
    _, pull_back = jax.vjp(lambda x: calls[1](x, window, example.fold(64)), x)
    wanted, pull_back_of_jax = jax.vjp(lambda x: jax.numpy.fft.rfft(x * window), x)
    direction = jax.random.normal(jax.random.key(2), wanted.shape, wanted.dtype)
    np.testing.assert_allclose(pull_back(direction)[0], pull_back_of_jax(direction)[0], rtol=1e-4, atol=1e-4)
