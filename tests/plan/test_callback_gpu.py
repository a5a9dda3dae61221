"""Callbacks of fragments in cuFFT's transforms, against NumPy in double precision."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.callbacks import callbacks

pytestmark = pytest.mark.gpu

_FORWARD = -1
#: Of ``cufftType`` and ``cufftXtCallbackType``: transform, load and store.
_KINDS = {"float": (0x29, 0x0, 0x4, "cufftExecC2C"), "double": (0x69, 0x1, 0x5, "cufftExecZ2Z")}
_OLD_NAME = "__cufftXtSetJITCallback_12_7"  # in CUDA 12, whose header renames it


@pytest.fixture(scope="module")
def cufft() -> ctypes.CDLL:
    pathfinder = pytest.importorskip("cuda.pathfinder")
    try:
        library = ctypes.CDLL(pathfinder.load_nvidia_dynamic_lib("cufft").abs_path)
    except (pathfinder.DynamicLibNotFoundError, OSError) as error:
        pytest.skip(f"cuFFT is not installed: {str(error).partition(chr(10))[0]}")
    version = ctypes.c_int()
    assert library.cufftGetVersion(ctypes.byref(version)) == 0
    name = "cufftXtSetJITCallback" if version.value >= 12_000 else _OLD_NAME
    if not hasattr(library, name):
        pytest.skip(f"cuFFT {version.value} takes no LTO callbacks")
    library.set_callback = getattr(library, name)
    library.set_callback.argtypes = [
        ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
    ]  # fmt: skip
    return library


@pytest.mark.parametrize("size", [8, 256, 1000])
@pytest.mark.parametrize("data_type", _KINDS)
def test_cufft_loads_and_stores_through_fragments(
    cufft: ctypes.CDLL, tmp_path: Path, data_type: str, size: int
) -> None:
    import cupy as cp

    family, batch = callbacks(tmp_path), 3
    kind, load, store, execute = _KINDS[data_type]
    real = np.dtype({"float": np.float32, "double": np.float64}[data_type])
    dtype = np.result_type(real, np.complex64)
    random = np.random.default_rng(size)
    values = (random.standard_normal((batch, size)) + 1j * random.standard_normal((batch, size))).astype(dtype)
    info = np.array([0.5, 3.0], real)
    given, made, on_device = cp.asarray(values), cp.full((batch, size), np.nan, dtype), cp.asarray(info)
    caller_info = (ctypes.c_void_p * 1)(on_device.data.ptr)

    def call(name: str, *arguments: Any) -> None:
        status = getattr(cufft, name)(*arguments)
        assert status == 0, f"{name} returned {status}"

    handle, work = ctypes.c_int(), ctypes.c_size_t()
    call("cufftCreate", ctypes.byref(handle))
    try:
        kept = []  # until the plan is made: cuFFT copies neither the name nor the code
        for group, of in (("scale", load), ("shift", store)):
            name, ltoir = family.callback(group, type=data_type)
            kept.append((name.encode(), ltoir))
            call("set_callback", handle, kept[-1][0], ltoir, len(ltoir), of, caller_info)
        call("cufftMakePlan1d", handle, size, kind, batch, ctypes.byref(work))
        pointers = (ctypes.c_void_p(array.data.ptr) for array in (given, made))
        call(execute, handle, *pointers, _FORWARD)
        cp.cuda.runtime.deviceSynchronize()
    finally:
        cufft.cufftDestroy(handle)
    factors = 0.5 * (np.arange(batch * size) % 7).reshape(batch, size)
    exact = np.fft.fft(values.astype(np.complex128) * factors, axis=1) + 3.0
    error = np.linalg.norm(cp.asnumpy(made) - exact) / np.linalg.norm(exact)
    assert error < 8 * np.log2(size) * np.finfo(real).eps
