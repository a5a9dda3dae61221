"""Kernels of the families ``search``, ``fft`` and ``segment_reduce``, declared as operators."""

from math import prod
from typing import Any

from docs.examples import fft, segment_reduce
from jitlto import Array, Backward, Flag, Launch, Operator, Output
from jitlto.frameworks.parts import Case


def declare_nearest(family: Any = "search", index: str = "int64") -> Operator:
    """Declare the search for the row of a dataset that is nearest to each query.

    Its arguments are the dataset and the queries, float32 or float16; optionally ``bits``, which let row r pass if bit
    r % 32 of word r // 32 is set; and the metric, ``euclidean`` or ``inner_product``. It returns the rows, -1 where
    there is none, and their distances. Rows are counted as ``int64`` or, for JAX without 64-bit types, ``uint32``.
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
        outputs=(Output("indices", index, "m"), Output("distances", "float32", "m")),
        dtypes={"T": ("float32", "float16")},
        configuration=lambda case: {
            "data_type": case.T,
            "out_type": "float",
            "idx_type": f"{index}_t",
            "optimized_name": "optimized",
            "veclen": 4,
            "distance_name": case.metric,
            "filter_name": "filter_bitset" if "bits" in case.given else "filter_none",
        },
        launch=lambda case: Launch(grid=case.m, block=256),
        parameters=("dataset", "queries", "indices", "distances", "n", "m", "d", "bits"),
        examples=[{"metric": ("euclidean", "inner_product")}],
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
        examples=[{"T": (t,), "C": (c,)} for t, c in zip(reals, complexes, strict=True)],
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


def declare_segment_reduce(family: Any = "segment_reduce", index: str = "int64") -> Operator:
    """Declare the reduction of rows of consecutive elements: their sum, mean or maximum.

    Its arguments are the elements; the offsets of the rows among them, one more than there are rows, which begin with 0
    and don't decrease; and the reduction: ``sum``, ``mean`` or ``max``. Offsets are ``int64`` or ``int32``.
    """
    return Operator(
        "jitlto_examples::segment_reduce",
        family,
        arguments=(Array("values", "T", "n width"), Array("offsets", index, "ends"), Flag("reduce", "str", "sum")),
        outputs=(Output("reduced", "T", lambda case: (case.ends - 1, case.width)),),
        dtypes={"T": ("float32", "float16", "bfloat16")},
        configuration=lambda case: {
            "reduce": case.reduce,
            "data_type": case.T,
            "index_type": f"{index}_t",
            "veclen": _segments(case).veclen,
            "load": "identity",
            "store": "identity",
        },
        launch=lambda case: Launch(grid=_segments(case).grid, block=_segments(case).block),
        parameters=("values", "offsets", "reduced", lambda case: case.ends - 1, "width", None, None),
        examples=[{"reduce": ("sum", "mean", "max"), "width": (1, 2, 4, 64)}],
    )


def _segments(case: Case) -> segment_reduce.Launch:
    return segment_reduce.Launch.of(case.ends - 1, case.width, case.T)


def _configuration(case: Case, kind: str, direction: str, **callbacks: str) -> dict[str, object]:
    return {"kind": kind, "direction": direction, "data_type": case.T, "size": case.n, **callbacks}


def _launch(case: Case, kind: str) -> Launch:
    how = fft.Launch.of(case.n, case.T, kind)
    return Launch(grid=-(-_count(case) // how.rows), block=how.block, shared_memory=how.shared_memory)


def _count(case: Case) -> int:
    return prod(case.rows)
