"""Fourier transforms of CuPy arrays with the kernels of the family ``fft``, with callbacks linked into them.

This is an example of a front end: it chooses a kernel with a dispatcher, knows how to launch it, and allocates arrays.
jitlto itself knows nothing about any particular family. To use the example, copy it: a package that ships kernels has a
module like this beside its database. In a checkout, after ``jitlto build fft -o fft.fragdb``::

    import cupy, jitlto, numpy
    from docs.examples import fft

    family = jitlto.load("fft", "fft.fragdb")
    windowed = fft.plan(1024, 1000, "float32", load="window", load_info=numpy.hanning(1024), family=family)
    spectra = windowed(cupy.ones((1000, 1024), "complex64"))

A callback is either the name of one that the family ships, or the CUDA C++ source of your own, with the signature that
the family's ``fft_load.cuh`` or ``fft_store.cuh`` declares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

import jitlto

if TYPE_CHECKING:
    from jitlto.launch.dispatcher import Dispatcher
    from jitlto.launch.launcher import Launcher
    from jitlto.runtime.family import KernelFamily

_STORED_COMPLEX = {"float32": "complex64", "float64": "complex128"}
#: What the ``info`` of each shipped callback contains.
_NEEDS = {
    "scale": "a factor",
    "window": "the factors of a row",
    "pad": "the number of elements of a row in memory",
    "crop": "the number of elements of a row in memory",
}


@dataclass(frozen=True)
class Launch:
    """The launch configuration of a kernel, following ``worker.cuh`` of the family.

    Attributes:
        rows: Transforms per block.
        block: Threads per block.
        shared_memory: Dynamic shared memory of a block, in bytes.
    """

    rows: int
    block: int
    shared_memory: int

    @classmethod
    def of(cls, size: int, dtype: DTypeLike, kind: str) -> Launch:
        """Return the launch configuration for transforms of ``size`` points."""
        complex_points, length = (size, size) if kind == "c2c" else (size // 2, size // 2 + 1)
        threads = complex_points // _points(complex_points)
        block = max(128, threads)
        rows = block // threads
        return cls(rows, block, rows * length * 2 * _computed(dtype).itemsize)


@dataclass(frozen=True, eq=False)
class Plan:
    """Transforms of one size, number and type, ready to be called. Made by :func:`plan`.

    Attributes:
        launcher: The kernel.
        launch: Its launch configuration.
        batch: The number of rows to transform.
        input_shape: The shape of the input; None if a callback of the caller's decides what is read.
        output_shape: The shape of the output that a call allocates.
        input_dtype: The dtype of the input.
        output_dtype: The dtype of the output.
        load_info: The data passed to the load callback: a device array, or None.
        store_info: The same for the store callback.
    """

    launcher: Launcher
    launch: Launch
    batch: int
    input_shape: tuple[int, ...] | None
    output_shape: tuple[int, ...]
    input_dtype: np.dtype[Any]
    output_dtype: np.dtype[Any]
    load_info: Any
    store_info: Any

    def __call__(self, rows: Any, output: Any = None, *, stream: Any = None) -> Any:
        """Run the transforms.

        Args:
            rows: The input, contiguous. Half-precision complex numbers are pairs of float16, in an extra last
                dimension of 2.
            output: The array to write to, by default a new one. It may be the input if the transform is
                complex-to-complex and its callbacks leave each element in its place; otherwise it must not overlap it.
            stream: By default CuPy's current stream.

        Returns:
            The output. It is not divided by the size in either direction.

        Raises:
            ValueError: If an array has the wrong dtype or number of elements, or is not aligned to its elements.
        """
        import cupy

        if output is None:
            output = cupy.empty(self.output_shape, self.output_dtype)
        elif output.dtype != self.output_dtype or output.size < prod(self.output_shape):
            raise ValueError(f"the output is not an array of {self.output_dtype} with shape {self.output_shape}")
        if rows.dtype != self.input_dtype or (self.input_shape is not None and rows.size != prod(self.input_shape)):
            raise ValueError(f"the input is not an array of {self.input_dtype}, {self.input_shape or 'any shape'}")
        for array, shape in ((rows, self.input_shape), (output, self.output_shape)):
            element = array.itemsize * (2 if shape and len(shape) == 3 else 1)  # a pair is read at once
            if array.data.ptr % element:
                raise ValueError(
                    f"an array of {array.dtype} begins at an address that is not a multiple of {element}: copy it"
                )
        self.launcher(
            cupy.cuda.get_current_stream() if stream is None else stream,
            -(-self.batch // self.launch.rows),
            self.launch.block,
            rows,
            output,
            self.batch,
            self.load_info,
            self.store_info,
            shared_memory=self.launch.shared_memory,
        )
        return output


def plan(
    size: int,
    batch: int,
    dtype: DTypeLike = "float32",
    kind: str = "c2c",
    direction: str | None = None,
    *,
    load: str = "identity",
    store: str = "identity",
    load_info: Any = None,
    store_info: Any = None,
    family: KernelFamily | None = None,
    link_mode: str = "lto",
) -> Plan:
    """Choose, link and load the kernel for a batch of transforms. Needs a GPU.

    Args:
        size: Points of a transform: a power of two from 2 to 8192.
        batch: The number of transforms.
        dtype: The type in memory of real numbers and of the parts of complex ones: float16, float32 or float64.
        kind: ``c2c``, ``r2c`` or ``c2r``.
        direction: ``forward`` or ``inverse``. Only ``c2c`` has a choice; its default is forward.
        load: ``identity``, ``scale``, ``window``, ``pad``, or the source of a callback in CUDA C++.
        store: ``identity``, ``scale``, ``window``, ``crop``, or the source of a callback in CUDA C++.
        load_info: For ``scale``, the factor; for ``window``, the factors of a row; for ``pad`` and ``crop``, the number
            of elements of a row in memory; for your own callback, a device array or None, which it gets as ``info``.
        store_info: The same for ``store``.
        family: By default the family ``fft`` found on ``JITLTO_DATABASE_PATH``.
        link_mode: ``ptx`` links without link-time optimisation, for comparison: every element is then read and written
            through a call.

    Raises:
        ValueError: If a callback lacks data that it needs, or the data does not fit.
        JitltoError: If there is no such kernel, a callback does not compile or fit, or there is no GPU.
    """
    if batch < 1:
        raise ValueError(f"a plan needs one row or more, not {batch}")
    for callback, given, what in ((load, load_info, "load_info"), (store, store_info, "store_info")):
        if given is None and callback in _NEEDS:
            raise ValueError(f"{callback} needs {_NEEDS[callback]}: give {what}")
    import cupy

    family = family or _found()
    real = np.dtype(dtype)
    direction = direction or ("inverse" if kind == "c2r" else "forward")
    chosen = {"kind": kind, "direction": direction, "data_type": real, "size": size, "load": load, "store": store}
    launcher = _launcher(family, link_mode, chosen)

    input_length = size // 2 + 1 if kind == "c2r" else size
    output_length = size // 2 + 1 if kind == "r2c" else size
    input_dtype, input_parts = _element(real, kind != "r2c")
    output_dtype, output_parts = _element(real, kind != "c2r")
    stored = int(load_info) if load == "pad" else input_length
    kept = min(int(store_info), output_length) if store == "crop" else output_length
    infos = _info(load, load_info, input_length, real), _info(store, store_info, output_length, real)
    cupy.cuda.get_current_stream().synchronize()  # copied on this stream, but a plan may be called on any
    return Plan(
        launcher,
        Launch.of(size, real, kind),
        batch,
        None if _is_source(load) else (batch, stored, *input_parts),
        (batch, kept, *output_parts),
        input_dtype,
        output_dtype,
        *infos,
    )


def _launcher(family: KernelFamily, link_mode: str, chosen: dict[str, Any]) -> Launcher:
    sources = {name: chosen[name] for name in ("load", "store") if _is_source(chosen[name])}
    if not sources:
        return _dispatcher(family, link_mode)(*chosen.values())
    planner = family.planner(**{name: value for name, value in chosen.items() if name not in sources})
    for name, text in sources.items():
        planner.add_source(text, f"{name}.cu")
    return planner.launcher(link_mode=link_mode)


@lru_cache(maxsize=8)
def _dispatcher(family: KernelFamily, link_mode: str) -> Dispatcher:
    return family.dispatcher("kind", "direction", "data_type", "size", "load", "store", link_mode=link_mode)


@cache
def _found() -> KernelFamily:
    return jitlto.load("fft")


def _points(size: int) -> int:
    """Return how many of a transform's complex points a thread holds."""
    if size == 64:
        return 8
    return min(size, 16) if size < 4096 else 32


def _is_source(callback: str) -> bool:
    return not callback.isidentifier()


def _computed(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the real type that the kernel computes with."""
    return np.dtype("float64" if np.dtype(dtype) == np.float64 else "float32")


def _element(real: np.dtype[Any], is_complex: bool) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return an array's dtype and its extra dimensions: NumPy has no half-precision complex numbers."""
    if not is_complex:
        return real, ()
    stored = _STORED_COMPLEX.get(real.name)
    return (real, (2,)) if stored is None else (np.dtype(stored), ())


def _info(callback: str, given: Any, length: int, real: np.dtype[Any]) -> Any:
    """Return the data for a callback, on the device."""
    import cupy

    if _is_source(callback):
        return given
    if callback == "identity":
        return None
    if callback in ("pad", "crop"):
        if not 1 <= int(given) <= length:
            raise ValueError(f"{callback}: a row has 1 to {length} elements in memory, not {given}")
        return cupy.array([given], np.uint32)
    values = cupy.asarray(given, _computed(real)).reshape(-1)
    wanted = length if callback == "window" else 1
    if values.size != wanted:
        raise ValueError(f"{callback} takes {wanted} values of {_computed(real)}, got {values.size}")
    return values
