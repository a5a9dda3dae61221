"""Tuning on a device: real times, real results, and launches of what was chosen."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitlto.base.config import Config
from jitlto.cuda import device
from jitlto.database import FragmentDatabase
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session
from jitlto.tuning.bench import Bench
from jitlto.tuning.best import Best

pytestmark = pytest.mark.gpu

#: What ``twice`` and ``square`` make of 2 is the same.
PROBLEM: dict[str, Any] = {"n": 100_000, "data_type": "float"}


@pytest.fixture
def family(tuned_copy: Path, tmp_path: Path) -> KernelFamily:
    names = {"JITLTO_CACHE_DIR": str(tmp_path / "cache"), "JITLTO_WISDOM": str(tmp_path / "own.wisdom")}
    return KernelFamily("mini", FragmentDatabase(tuned_copy), Session(Config.read(names)))


def workload(value: float) -> tuple[Callable[[Best, Any], None], Any]:
    """What launches a variant, and its array."""
    import cupy as cp

    array = cp.full(PROBLEM["n"], value, cp.float32)
    cp.cuda.Device().synchronize()

    def launch(best: Best, stream: Any) -> None:
        grid = -(-PROBLEM["n"] // best.block[0])
        best.launcher(stream, grid, best.block, array, PROBLEM["n"])

    return launch, array


def test_variants_with_the_same_results_are_timed_and_the_fastest_is_used(family: KernelFamily) -> None:
    launch, array = workload(2.0)
    report = family.tune(PROBLEM, launch, [array], budget=30)
    assert not report.outcome.rejected
    assert len(report.entry.trials) == 4
    assert all(1e-7 < trial.seconds < 1e-2 for trial in report.entry.trials)
    assert report.entry.device == device.current_kind()
    best = family.best(**PROBLEM)
    assert (best.origin, best.variant) == ("measured", report.entry.chosen.variant)
    array.fill(2.0)
    with closing(Bench()) as bench:
        launch(best, bench.stream)
        bench.synchronize()
    assert (array.get() == 4.0).all()


def test_variants_with_other_results_are_left_out(family: KernelFamily) -> None:
    launch, array = workload(3.0)
    report = family.tune(PROBLEM, launch, [array], budget=30)
    assert {dict(variant.parameters)["op_name"] for variant in report.outcome.rejected} == {"square"}
    assert len(report.outcome.rejected) == 2


def test_variants_that_the_device_does_not_launch_are_left_out(family: KernelFamily) -> None:
    launch, array = workload(2.0)

    def too_much(best: Best, stream: Any) -> None:
        best.launcher(stream, 1, best.block, array, 1, shared_memory=1 << 30 if best.block == (256,) else 0)

    report = family.tune(PROBLEM, too_much, [array], budget=30)
    assert {variant.block for variant in report.outcome.rejected} == {(256,)}
    launch(family.best(**PROBLEM), 0)  # the context still works


def test_times_are_those_of_the_device() -> None:
    import cupy as cp

    array = cp.zeros(1 << 26, cp.float32)
    with closing(Bench()) as bench:
        stream = cp.cuda.ExternalStream(int(bench.stream.handle))

        def fill(count: int) -> Callable[[], object]:
            def launch() -> None:
                with stream:
                    array[:count].fill(1)

            return launch

        small, large = (np.median([bench.time(launch) for _ in range(20)]) for launch in (fill(1 << 23), fill(1 << 26)))
        assert 3 < large / small < 20


def test_what_it_reads_is_what_it_wrote() -> None:
    import cupy as cp

    array = cp.zeros((3, 5), cp.int32)
    with closing(Bench()) as bench:
        data = np.arange(15, dtype=np.int32).tobytes()
        bench.write(array, data)
        assert bench.read(array) == data
        assert (array.get().ravel() == np.arange(15)).all()
        assert bench.read(cp.zeros(0, cp.int32)) == b""
        with pytest.raises(TypeError):
            bench.read(array[:, :2])
