"""An index of ``ivf_flat`` is built and searched without CuPy compiling anything, in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jitlto.runtime.family import KernelFamily
from tests.support.process import ROOT

pytestmark = pytest.mark.gpu

#: CuPy writes each module that it compiles below its cache directory.
_SCRIPT = """
import sys
import cupy, numpy
from docs.examples.ivf_flat import Index
dtype, database = sys.argv[1:]
random = numpy.random.default_rng(1)
dataset = random.integers(0, 100, (20_000, {dim})).astype(dtype)
allowed = random.random(30_000) < 0.5
for data in (dataset, cupy.asarray(dataset)):
    index = Index.build(data, 64, kernels=database)
index.add(dataset[:10_000])
index.save("index.npz")
for each in (index, Index.load("index.npz", kernels=database)):
    for count in (1, 100, 2000):
        for metric in ("sqeuclidean", "cosine"):
            each.search(data[:count], 10, n_probes=8, metric=metric)
        each.search(dataset[:count], 200, n_probes=64, allowed=allowed)
cupy.cuda.Device().synchronize()
"""


@pytest.mark.parametrize(("dtype", "dim"), [("float32", 32), ("float16", 100), ("int8", 20)])
def test_cupy_compiles_nothing(ivf_flat_batch: KernelFamily, tmp_path: Path, dtype: str, dim: int) -> None:
    cache = tmp_path / "cupy"
    cache.mkdir()
    environment = os.environ | {"CUPY_CACHE_DIR": str(cache), "CUPY_CACHE_IN_MEMORY": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", _SCRIPT.format(dim=dim), dtype, str(ivf_flat_batch.database.path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in cache.rglob("*") if path.is_file()] == []
