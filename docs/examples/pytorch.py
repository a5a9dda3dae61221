"""Kernels of the families ``search`` and ``fft`` as operators of PyTorch, and a small model that uses them.

To use the example, copy it: a package that ships kernels has a module like this beside its database. In a checkout,
after ``jitlto build search fft -o kernels.fragdb``::

    export JITLTO_DATABASE_PATH=kernels.fragdb

    import torch
    from docs.examples.pytorch import SpectrumQuantiser

    model = torch.compile(SpectrumQuantiser(1024, 256).cuda(), fullgraph=True)
    indices, distances = model(torch.rand(100, 1024, device="cuda"))
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

import jitlto
from docs.examples import fft
from jitlto import Array, Backward, Flag, Launch, Operator, Output
from jitlto.runtime.operators.parts import Case


def declare_nearest(family: Any = "search") -> Operator:
    """Declare the search for the row of a dataset that is nearest to each query.

    Its arguments are the dataset and the queries, float32 or float16; optionally ``bits``, which let row r pass if bit
    r % 32 of word r // 32 is set; and the metric, ``euclidean`` or ``inner_product``. It returns the rows, -1 where
    there is none, and their distances.
    """
    return Operator(
        "jitlto_examples::nearest",
        family,
        arguments=(
            Array("dataset", "T", "n d"),
            Array("queries", "T", "m d"),
            Array("bits", "uint32", "words", optional=True),
            Flag("metric", "str", "euclidean"),
        ),
        outputs=(Output("indices", "int64", "m"), Output("distances", "float32", "m")),
        dtypes={"T": ("float32", "float16")},
        configuration=lambda case: {
            "data_type": case.T,
            "out_type": "float",
            "idx_type": "int64_t",
            "optimized_name": "optimized",
            "veclen": 4,
            "distance_name": case.metric,
            "filter_name": "filter_bitset" if "bits" in case.given else "filter_none",
        },
        launch=lambda case: Launch(grid=case.m, block=256),
        parameters=("dataset", "queries", "indices", "distances", "n", "m", "d", "bits"),
    )


def declare_spectrum(family: Any = "fft") -> Operator:
    """Declare the Fourier transform of rows of real numbers times a window, which is linked into the kernel.

    Its arguments are the rows, of a power of two of numbers from 2 to 8192; the window; and the weights that
    :func:`fold` makes, which the gradient needs. The gradient of the transform is the transform back: the weights are
    applied where it reads and the window where it writes, by callbacks too.
    """
    reals, complexes = ("float32", "float64"), ("complex64", "complex128")
    backward = Operator(
        "jitlto_examples::spectrum_backward",
        family,
        arguments=(Array("grad", "C", "*rows k"), Array("window", "T", "n"), Array("weights", "T", "k")),
        outputs=(Output("grad_x", "T", "*rows n"),),
        dtypes={"T": reals, "C": complexes},
        configuration=lambda case: _configuration(case, "c2r", "inverse", load="window", store="window"),
        launch=lambda case: _launch(case, "c2r"),
        parameters=("grad", "grad_x", _count, "weights", "window"),
    )
    return Operator(
        "jitlto_examples::spectrum",
        family,
        arguments=(Array("x", "T", "*rows n"), Array("window", "T", "n"), Array("weights", "T", "k")),
        outputs=(Output("y", lambda case: complexes[reals.index(case.T)], lambda case: (*case.rows, case.n // 2 + 1)),),
        dtypes={"T": reals},
        configuration=lambda case: _configuration(case, "r2c", "forward", load="window", store="identity"),
        launch=lambda case: _launch(case, "r2c"),
        parameters=("x", "y", _count, "window", None),
        backward=Backward(backward, arguments=("grad_y", "window", "weights"), gradients=("x",)),
    )


def _configuration(case: Case, kind: str, direction: str, **callbacks: str) -> dict[str, object]:
    return {"kind": kind, "direction": direction, "data_type": case.T, "size": case.n, **callbacks}


def _launch(case: Case, kind: str) -> Launch:
    how = fft.Launch.of(case.n, case.T, kind)
    return Launch(grid=-(-_count(case) // how.rows), block=how.block, shared_memory=how.shared_memory)


def _count(case: Case) -> int:
    return prod(case.rows)


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
