"""The kernels of ``ivf_flat_batch`` on a CPU, behind the interface of a family, and NumPy in CuPy's place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.process import ROOT

COMPILER = shutil.which("g++")
#: What the host library holds of each entry point, by the values that choose a kernel.
_NAMES = {
    "measure_rows": "measure_rows_of_queries",
    "count_lists": "count_pairs_of_lists",
    "begin_lists": "begins_of_lists",
    "place_pairs": "places_of_pairs",
    "average_rows": "rows_averaged",
    "count_rows": "counts_of_rows",
    "gather_rows": "rows_gathered",
    "label_rows": "labels_of_rows",
    "merge_results": "results_merged",
    "move_lists": "lists_moved",
    "narrow_ids": "ids_narrowed",
    "pack_bits": "bits_packed",
    "place_rows": "places_of_rows",
}
_SHARED = 8192 * 16
#: The most blocks at once, so that blocks compute several tiles.
_BLOCKS = 3


class HostFamily:
    """The kernels of ``ivf_flat_batch`` for vectors of float.

    Args:
        directory: Where the library is compiled.
        metric_name: The metric of all kernels, as in the family.
        filter_name: Likewise.
        post_lambda_name: Likewise.
    """

    def __init__(self, directory: Path, metric_name: str, filter_name: str, post_lambda_name: str) -> None:
        assert COMPILER is not None
        self.linked = {"metric_name": metric_name, "filter_name": filter_name, "post_lambda_name": post_lambda_name}
        library = directory / "_".join(["host", *self.linked.values()])
        # Unknown pragmas: unroll.
        options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-ffp-contract=off"]
        folders = ("tests/families/ivf_flat_host", "fragments/ivf_flat_batch", "fragments/ivf_flat")
        includes = [f"-I{ROOT / folder}" for folder in folders]
        macros = [
            f'-DMETRIC="metric_{metric_name}.cuh"',
            f'-DFILTER="filter_{filter_name}.cuh"',
            f'-DPOST_LAMBDA="post_lambda_{post_lambda_name}.cuh"',
        ]
        source = str(ROOT / "tests/families/ivf_flat_host/kernels.cpp")
        command = [COMPILER, *options, *includes, *macros, source, "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self._library = ctypes.CDLL(str(library))

    def dispatcher(self, *names: str, entry: str) -> Callable[..., Any]:
        """As of a family."""

        def choose(*values: Any) -> HostLauncher:
            chosen = dict(zip(names, values, strict=True))
            for name, value in self.linked.items():
                assert chosen.get(name, value) == value, f"{name}={chosen[name]} is not compiled"
            if entry == "tiled_scan":
                assert str(chosen["data_type"]) == "float32"
                symbol = f"tiled_scan_{chosen['veclen']}_{str(chosen['compute_norm']).lower()}"
            elif entry in ("sort_probes", "index_step"):
                symbol = _NAMES[chosen["step"]]
            elif entry in ("convert_rows", "store_rows"):
                symbol = f"{entry}_{values[0]}"
            else:
                symbol = f"{entry}_{chosen['capacity']}_{chosen['order']}"
            return self._launcher(symbol)

        return choose

    def find_lists(self, begins: Any, tiles: int) -> Any:
        """The list that each tile belongs to, as the device function of `tile.cuh` says."""
        found = np.zeros(tiles, np.uint32)
        if tiles:
            self._launcher("lists_of_tiles")(None, tiles, 32, begins, found, len(begins) - 1)
        return found

    def _launcher(self, symbol: str) -> HostLauncher:
        address = getattr(self._library, symbol)
        address.restype = ctypes.c_void_p
        return HostLauncher(address())


class HostLauncher:
    """A kernel on a CPU, called like a launcher."""

    def __init__(self, address: int) -> None:
        self._address = address

    def __call__(self, _stream: object, grid: int, block: int, *arguments: Any, shared_memory: int = 0) -> None:
        """Launch it: arrays become pointers, other numbers uint32."""
        assert grid > 0
        assert 0 < block <= 1024
        assert shared_memory <= _SHARED
        values = [_converted(argument) for argument in arguments]
        types = [ctypes.c_uint32, ctypes.c_uint32, *map(type, values)]
        ctypes.CFUNCTYPE(None, *types)(self._address)(grid, block, *values)

    def max_blocks(self, _block: int, _shared_memory: int) -> int:
        """A few."""
        return _BLOCKS


def _converted(argument: Any) -> Any:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_uint32(argument)


@contextmanager
def numpy_for_cupy(*modules: ModuleType) -> Iterator[None]:
    """Let modules of the example compute with NumPy's arrays; what is not initialised holds what no kernel writes."""

    def empty(shape: Any, dtype: Any = np.float64) -> Any:
        made = np.empty(shape, dtype)
        made.view(np.uint8).fill(0xA5)
        return made

    def gemm(transa: str, transb: str, a: Any, b: Any, out: Any, alpha: float) -> None:
        assert (transa, transb) == ("N", "T")
        with np.errstate(invalid="ignore"):  # rows may hold infinities
            out[:] = np.float32(alpha) * (a @ b.T)

    def filled_up(held: Any, rows: Any) -> Any:
        filled = np.zeros((len(rows), held.chunks * held.veclen), held.vectors.dtype)
        filled[:, : held.dim] = rows
        return filled

    members = {name: getattr(np, name) for name in dir(np) if not name.startswith("_")}
    runtime = SimpleNamespace(getDevice=lambda: 0)
    cuda = SimpleNamespace(get_current_stream=lambda: None, runtime=runtime)
    fake = SimpleNamespace(**members | {"empty": empty, "asnumpy": np.asarray, "cuda": cuda})
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            patch.setattr(module, "cupy", fake)
            if hasattr(module, "Lists"):  # whose own asks for addresses
                patch.setattr(module.Lists, "filled_up", filled_up)
            if hasattr(module, "_no_ids"):  # whose own asks CuPy's memory to set itself
                patch.setattr(module, "_no_ids", lambda count: np.full(count, -1))
        cublas = ModuleType("cupy.cublas")
        cublas.gemm = gemm  # type: ignore[attr-defined]
        patch.setitem(sys.modules, "cupy.cublas", cublas)
        patch.setattr("cupy.cublas", cublas, raising=False)
        yield
