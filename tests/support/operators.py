"""Operators to test with: declarations, a family in CUDA C++, and the same kernels in NumPy for tensors on the CPU."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jitlto import Array, Backward, Flag, Launch, Operator, Output, Scalar

FLOATS = {"T": ("float32", "float64")}

FAMILY = {
    "family.toml": """
[family]
name = "operators"

[entrypoint.square]
matrix   = "types.json"
template = "square.cu.jinja"
key      = ["data_type"]
params   = ["x", "y", "n", "factor"]

[entrypoint.square_backward]
matrix   = "types.json"
template = "square_backward.cu.jinja"
key      = ["data_type"]
params   = ["grad_y", "x", "grad_x", "n", "factor"]

[entrypoint.reduce_rows]
matrix   = "reduce_rows.json"
template = "reduce_rows.cu.jinja"
key      = ["data_type", "reduction"]
params   = ["x", "bits", "values", "counts", "m", "n"]

[entrypoint.accumulate]
matrix   = "types.json"
template = "accumulate.cu.jinja"
key      = ["data_type"]
params   = ["total", "x", "n"]
""",
    "types.json": '{"data_type": ["float", "double"]}',
    "reduce_rows.json": '{"data_type": ["float", "double"], "reduction": ["sum", "largest"]}',
    "square.cu.jinja": """
template <typename T> __global__ void square(const T* x, T* y, long long n, double factor) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = static_cast<T>(factor) * x[i] * x[i];
}
template __global__ void square<{{data_type}}>(const {{data_type}}*, {{data_type}}*, long long, double);
""",
    "square_backward.cu.jinja": """
template <typename T>
__global__ void square_backward(const T* grad_y, const T* x, T* grad_x, long long n, double factor) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) grad_x[i] = static_cast<T>(factor) * 2 * x[i] * grad_y[i];
}
template __global__ void square_backward<{{data_type}}>(const {{data_type}}*, const {{data_type}}*, {{data_type}}*,
                                                        long long, double);
""",
    "reduce_rows.cu.jinja": """
namespace {{reduction}} {
template <typename T>
__global__ void reduce_rows(const T* x, const bool* bits, T* values, long long* counts, int m, int n) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m) return;
  T value = 0;
  long long count = 0;
  for (int i = 0; i < n; ++i) {
    if (bits != nullptr && !bits[i]) continue;
    T next = x[(long long)row * n + i];
    value = {% if reduction == "sum" %}value + next{% else %}count == 0 || next > value ? next : value{% endif %};
    ++count;
  }
  values[row] = value;
  counts[row] = count;
}
}
template __global__ void {{reduction}}::reduce_rows<{{data_type}}>(
    const {{data_type}}*, const bool*, {{data_type}}*, long long*, int, int);
""",
    "accumulate.cu.jinja": """
template <typename T> __global__ void accumulate(T* total, const T* x, long long n) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < n) total[i] += x[i];
}
template __global__ void accumulate<{{data_type}}>({{data_type}}*, const {{data_type}}*, long long);
""",
}


def count(case: Any) -> Any:
    """The number of elements of an array of the shape ``*s``."""
    product = 1
    for size in case.s:
        product = product * size
    return product


def _over_elements(case: Any) -> Launch:
    return Launch(grid=-(-count(case) // 256), block=256)


def _by_type(case: Any) -> dict[str, object]:
    return {"data_type": case.T}


def declare(family: Any, namespace: str) -> dict[str, Operator]:
    """The operators ``square`` with a backward, ``reduce_rows`` and ``accumulate`` of a family, by name."""
    backward = Operator(
        f"{namespace}::square_backward",
        family,
        (Array("grad_y", "T", "*s"), Array("x", "T", "*s"), Scalar("factor", "float")),
        (Output("grad_x", "T", "*s"),),
        _by_type,
        _over_elements,
        ("grad_y", "x", "grad_x", count, "factor"),
        FLOATS,
        entry="square_backward",
    )
    square = Operator(
        f"{namespace}::square",
        family,
        (Array("x", "T", "*s"), Scalar("factor", "float", 1.0)),
        (Output("y", "T", "*s"),),
        _by_type,
        _over_elements,
        ("x", "y", count, "factor"),
        FLOATS,
        entry="square",
        backward=Backward(backward, ("grad_y", "x", "factor"), ("x",)),
    )
    reduce_rows = Operator(
        f"{namespace}::reduce_rows",
        family,
        (Array("x", "T", "m n"), Array("bits", "bool", "n", optional=True), Flag("reduction", "str", "sum")),
        (Output("values", "T", "m"), Output("counts", "int64", lambda case: (case.m,))),
        lambda case: {"data_type": case.T, "reduction": case.reduction},
        lambda case: Launch(grid=-(-case.m // 64), block=64),
        ("x", "bits", "values", "counts", "m", "n"),
        FLOATS,
        entry="reduce_rows",
    )
    accumulate = Operator(
        f"{namespace}::accumulate",
        family,
        (Array("total", "T", "*s", mutated=True), Array("x", "T", "*s")),
        (),
        _by_type,
        _over_elements,
        ("total", "x", count),
        FLOATS,
        entry="accumulate",
    )
    return {operator.name: operator for operator in (backward, square, reduce_rows, accumulate)}


# --- the same kernels on the CPU ---


def _square(read: Any, x: Any, y: Any, n: int, factor: float) -> None:
    read(y, n)[:] = factor * read(x, n) ** 2


def _square_backward(read: Any, grad_y: Any, x: Any, grad_x: Any, n: int, factor: float) -> None:
    read(grad_x, n)[:] = factor * 2 * read(x, n) * read(grad_y, n)


def _reduce_rows(read: Any, x: Any, bits: Any, values: Any, counts: Any, m: int, n: int) -> None:
    chosen = np.ones(n, bool) if bits is None else read(bits, n, np.bool_)
    rows = read(x, m * n).reshape(m, n)[:, chosen]
    read(values, m)[:] = (rows.sum(1) if read.chosen["reduction"] == "sum" else rows.max(1)) if rows.size else 0
    read(counts, m, np.int64)[:] = chosen.sum()


def _accumulate(read: Any, total: Any, x: Any, n: int) -> None:
    read(total, n)[:] += read(x, n)


KERNELS: dict[str, Callable[..., None]] = {
    "square": _square,
    "square_backward": _square_backward,
    "reduce_rows": _reduce_rows,
    "accumulate": _accumulate,
}


@dataclass(frozen=True)
class Reader:
    """Reads what a launcher is given for a pointer, a tensor at first and addresses later, as an array of NumPy's."""

    chosen: dict[str, object]

    def __call__(self, pointer: Any, size: int, dtype: Any = None) -> NDArray[Any]:
        dtype = np.dtype(dtype or {"float": np.float32, "double": np.float64}[str(self.chosen["data_type"])])
        address = pointer if isinstance(pointer, int) else pointer.data_ptr()
        if size == 0:
            return np.empty(0, dtype)
        interface = {"data": (address, False), "shape": (size,), "typestr": dtype.str, "version": 3}
        return np.asarray(type("View", (), {"__array_interface__": interface})())


@dataclass
class CpuFamily:
    """A family whose launchers run at once, on the CPU.

    Attributes:
        kernels: What each entry does: a function of a reader and the kernel's arguments.
        launches: Entry, values that chose the kernel, stream, grid, block, arguments and attributes of each launch.
    """

    kernels: Mapping[Any, Callable[..., None]] = field(default_factory=lambda: KERNELS)
    launches: list[tuple[Any, ...]] = field(default_factory=list)

    def launcher(self, *, entry: str | None, link_options: None, **chosen: object) -> Callable[..., None]:
        """Take the place of ``KernelFamily.launcher``."""

        def launch(stream: int, grid: Any, block: Any, *arguments: Any, **attributes: Any) -> None:
            self.launches.append((entry, chosen, stream, grid, block, arguments, attributes))
            self.kernels[entry](Reader(chosen), *arguments)

        return launch


@dataclass
class CpuBackend:
    """Has operators run on tensors on the CPU, as if that was a device with streams."""

    current_stream: int = 0
    current: int = -1  # what PyTorch calls the CPU's number
    guarded: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    key = "CPU"

    def stream(self, index: int) -> int:
        """Return the handle of the current stream."""
        return self.current_stream

    def device(self) -> int:
        """Return the current device."""
        return self.current

    @contextlib.contextmanager
    def guard(self, index: int) -> Any:
        """Note the device, and make it the current one."""
        self.guarded.append(index)
        before, self.current = self.current, index
        yield
        self.current = before

    def keep(self, tensors: Sequence[Any], index: int) -> None:
        """Note the addresses of tensors."""
        self.kept += [tensor.data_ptr() for tensor in tensors if tensor is not None]
