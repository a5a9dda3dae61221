"""Kernels of the families ``search``, ``fft`` and ``segment_reduce``, declared as operators."""

from math import prod
from typing import Any

from docs.examples import fft, segment_reduce
from jitlto import Array, Backward, Flag, Launch, Operator, Output, Seam
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
        parameters=("values", "offsets", "reduced", lambda case: case.ends - 1, "width", "prologue", "epilogue"),
        prologue=Seam("segment_load", "values", lambda case: _SEGMENT_LOAD % (case.T.cpp, _segments(case).veclen)),
        epilogue=Seam("segment_store", "reduced", lambda case: _SEGMENT_STORE % (case.T.cpp, _segments(case).veclen)),
        examples=[{"reduce": ("sum", "mean", "max"), "width": (1, 2, 4, 64)}],
    )


def _segments(case: Case) -> segment_reduce.Launch:
    return segment_reduce.Launch.of(case.ends - 1, case.width, case.T)


def declare_transform(family: Any = "fft") -> Operator:
    """Declare the Fourier transform of complex rows, into whose kernel functions can be fused on both sides."""
    return Operator(
        "jitlto_examples::transform",
        family,
        arguments=(Array("x", "C", "*rows n"), Flag("direction", "str", "forward")),
        outputs=(Output("y", "C", "*rows n"),),
        dtypes={"C": ("complex64", "complex128")},
        configuration=lambda case: _configuration(case, "c2c", case.direction, real=_REALS[case.C], **_PLAIN),
        launch=lambda case: _launch(case, "c2c", _REALS[case.C]),
        parameters=("x", "y", _count, "prologue", "epilogue"),
        prologue=Seam("fft_load", "x", lambda case: _LOAD % ((_COMPLEX[case.C],) * 3)),
        epilogue=Seam("fft_store", "y", lambda case: _STORE % ((_COMPLEX[case.C],) * 3)),
        examples=[{"direction": ("forward", "inverse")}],
    )


def declare_inverse(family: Any = "fft") -> Operator:
    """Declare the transform of halves of complex rows back to real ones, with the same seams."""
    return Operator(
        "jitlto_examples::inverse",
        family,
        arguments=(Array("y", "C", "*rows k"),),
        outputs=(Output("x", lambda case: _REALS[case.C], lambda case: (*case.rows, 2 * (case.k - 1))),),
        dtypes={"C": ("complex64", "complex128")},
        configuration=lambda case: _configuration(
            case, "c2r", "inverse", real=_REALS[case.C], size=2 * (case.k - 1), **_PLAIN
        ),
        launch=lambda case: _launch(case, "c2r", _REALS[case.C], 2 * (case.k - 1)),
        parameters=("y", "x", _count, "prologue", "epilogue"),
        prologue=Seam("fft_load", "y", lambda case: _LOAD % ((_COMPLEX[case.C],) * 3)),
        epilogue=Seam("fft_store", "x", lambda case: _STORE % ((_REAL[case.C],) * 3)),
        examples=[{"k": (33,)}],
    )


_PLAIN = {"load": "identity", "store": "identity"}
_REALS = {"complex64": "float32", "complex128": "float64"}
_COMPLEX = {"complex64": "float2", "complex128": "double2"}
_REAL = {"complex64": "float", "complex128": "double"}
_LOAD = """
__device__ %s fft_load(const %s*, unsigned int row, unsigned int index, unsigned int length, void* info) {
  %s value[1];
  fused::load(row, index, length, value, info);
  return value[0];
}
"""
_STORE = """
__device__ void fft_store(%s* output, unsigned int row, unsigned int index, unsigned int length, %s value, void* info) {
  const %s values[1] = {value};
  fused::store(output, row, index, length, values, info);
}
"""


_SEGMENT_LOAD = """
__device__ void segment_load(const %s*, unsigned long long element, unsigned int column, unsigned int width, void* info,
                             float (&value)[%d]) {
  fused::load(element, column, width, value, info);
}
"""
_SEGMENT_STORE = """
__device__ void segment_store(%s* output, unsigned long long row, unsigned int column, unsigned int width,
                              const float (&value)[%d], void* info) {
  fused::store(output, row, column, width, value, info);
}
"""


def _configuration(
    case: Case, kind: str, direction: str, *, real: str | None = None, size: int | None = None, **callbacks: str
) -> dict[str, object]:
    data_type, size = real or case.T, size or case.n
    return {"kind": kind, "direction": direction, "data_type": data_type, "size": size, **callbacks}


def _launch(case: Case, kind: str, dtype: str | None = None, size: int | None = None) -> Launch:
    how = fft.Launch.of(size or case.n, dtype or case.T, kind)
    return Launch(grid=-(-_count(case) // how.rows), block=how.block, shared_memory=how.shared_memory)


def _count(case: Case) -> int:
    return prod(case.rows)
