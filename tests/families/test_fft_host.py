"""The kernels of ``fft``, compiled for the CPU as they stand: indices, barriers and errors, where there is no GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from docs.examples.fft import Launch
from tests.support.fft_reference import (
    DTYPES,
    SIZES,
    TRANSFORMS,
    bound,
    check,
    exact,
    make_rows,
    norms,
    transformed,
    typical,
)
from tests.support.process import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++")
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True, check=True).stdout
    if int(version.split(".")[0]) < 12:
        pytest.skip(f"g++ {version.strip()} has no _Float16")
    path = tmp_path_factory.mktemp("fft_host") / "main"
    # Unknown pragmas: unroll.
    options = ["-std=c++20", "-O0", "-Wno-unknown-pragmas", "-ffp-contract=off", "-pthread"]
    includes = [f"-I{ROOT / 'tests/families/fft_host'}", f"-I{ROOT / 'fragments/fft'}"]
    main = str(ROOT / "tests/families/fft_host/main.cpp")
    done = subprocess.run([compiler, *options, *includes, main, "-o", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return path


#: Every size of one type; of the others those for which main.cpp compiles, too.
CASES = [(size, each) for each in DTYPES for size in (SIZES if each == "float" else (2, 32, 512, 8192))]


@pytest.mark.parametrize(("size", "data_type"), CASES)
def test_every_transform_agrees_with_numpy(program: Path, size: int, data_type: str) -> None:
    dtype = DTYPES[data_type]
    for kind, direction in TRANSFORMS:
        launch = Launch.of(size, dtype, kind)
        batch = launch.rows + 3  # several blocks, the last one not full
        rng = np.random.default_rng(size)
        rows = make_rows(rng, batch, size // 2 + 1 if kind == "c2r" else size, dtype, real=kind == "r2c")
        arguments = [str(program), kind, direction, data_type, str(size), str(batch), str(launch.shared_memory)]
        done = subprocess.run(arguments, input=rows.tobytes(), capture_output=True, timeout=100)
        # Callbacks are called once for each element, too, and no shared memory is used that the launch does not have.
        assert done.returncode == 0, done.stderr.decode()
        output = done.stdout

        expected = transformed(exact(rows, real=kind == "r2c"), size, kind, direction)
        like = make_rows(rng, 1, 1, dtype, real=kind == "c2r")
        pairs = (2,) if kind != "c2r" and dtype == "float16" else ()
        written = np.frombuffer(output, like.dtype).reshape(*expected.shape, *pairs)
        result = exact(written, real=kind == "c2r")
        what = f"{kind} {direction} of {size} in {dtype}"
        check(result, expected, norms(expected), bound(size, dtype, kind) + bound(size, "float64", kind), dtype, what)
        if dtype != "float16":
            error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
            assert error <= 1.5 * typical(size, dtype), f"{what}: {error:.3g}"
