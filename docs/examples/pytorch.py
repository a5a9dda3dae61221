"""Kernels of the families ``search`` and ``fft`` as operators of PyTorch, and a small model that uses them.

To use the example, copy it: a package that ships kernels has a module like this beside its database. In a checkout,
after ``jitlto build search fft -o kernels.fragdb``::

    export JITLTO_DATABASE_PATH=kernels.fragdb

    import torch
    from docs.examples.pytorch import SpectrumQuantiser

    model = torch.compile(SpectrumQuantiser(1024, 256).cuda(), fullgraph=True)
    indices, distances = model(torch.rand(100, 1024, device="cuda"))
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import jitlto
from docs.examples.operators import declare_nearest, declare_spectrum


@cache
def nearest() -> Any:
    """Return the operator of :func:`declare_nearest`."""
    return jitlto.torch_operator(declare_nearest())


@cache
def spectrum() -> Any:
    """Return the operator of :func:`declare_spectrum`."""
    return jitlto.torch_operator(declare_spectrum())


def fold(size: int, like: Tensor) -> Tensor:
    """Return the weights of a spectrum's elements in the gradient: half of what stands for two conjugate ones."""
    weights = torch.full((size // 2 + 1,), 0.5, dtype=like.dtype, device=like.device)
    weights[0] = weights[-1] = 1
    return weights


class SpectrumQuantiser(nn.Module):  # type: ignore[misc]
    """Assigns signals to the nearest of several spectra, after a filter that can be learned.

    Args:
        size: The length of a signal, a power of two.
        codes: The number of spectra.
    """

    window: Tensor
    weights: Tensor

    def __init__(self, size: int, codes: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.ones(size))
        self.codebook = nn.Parameter(torch.randn(codes, size // 2 + 1).abs())
        self.register_buffer("window", torch.hann_window(size))
        self.register_buffer("weights", fold(size, self.window))
        self._nearest, self._spectrum = nearest(), spectrum()

    def magnitudes(self, signals: Tensor) -> Tensor:
        """Return the magnitudes of the spectra of signals of the shape (m, size)."""
        return torch.view_as_real(self._spectrum(signals * self.filter, self.window, self.weights)).square().sum(-1)

    def forward(self, signals: Tensor) -> tuple[Tensor, Tensor]:
        """Return for each signal the nearest spectrum of the codebook and the squared distance from it."""
        spectra = torch.log1p(self.magnitudes(signals))
        indices, _ = self._nearest(self.codebook, spectra)
        return indices, (self.codebook[indices] - spectra).square().sum(-1)
