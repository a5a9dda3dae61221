"""A Dask cluster of real processes: the same bytes, lost workers, different versions, and wrong addresses."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import Any

import pytest

import jitlto
from jitlto.base.errors import BuildError, ToolchainError
from jitlto.base.versions import Architecture
from jitlto.build.execution import transport
from jitlto.build.execution.dask import DaskExecutor, connect
from jitlto.build.execution.transport import compile_job
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.pipeline import build
from jitlto.compile import compiler as base
from jitlto.compile.compiler import CompileJob
from jitlto.families import declaration
from jitlto.record.headers import Source
from tests.support.compiled import forms
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.lazy import Lazy

dask = Lazy("distributed")

ROOT = Path(jitlto.__file__).parent.parent


@contextlib.contextmanager
def started(workers: int = 2, *, processes: bool = True) -> Iterator[Any]:
    """A cluster."""
    with dask.LocalCluster(
        processes=processes,
        protocol="tcp",
        n_workers=workers,
        threads_per_worker=1,
        dashboard_address=None,
        silence_logs=50,
    ) as made:
        if workers:
            made.wait_for_workers(workers)
        yield made


def url(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


@contextlib.contextmanager
def connected(cluster: Any) -> Iterator[DaskExecutor]:
    made = connect(url(cluster))
    yield made
    made.shutdown(cancel_futures=True)  # what a failed test leaves, nobody may be there to do


@pytest.fixture
def executor() -> Iterator[DaskExecutor]:
    """An executor with a cluster of its own, whose workers may be killed."""
    with started() as cluster, connected(cluster) as made:
        yield made


def jobs(count: int, identity: str | None = None) -> list[CompileJob]:
    headers = {"a.cuh": b"#pragma once\n__device__ inline int two() { return 2; }\n" + b"// long\n" * 50_000}
    return [
        CompileJob(
            "nvrtc",
            identity or base.find_toolchain("nvrtc").identity,
            Source(b'#include "a.cuh"\n__device__ int f%d(int a) { return a * two() + %d; }' % (n, n), headers),
            (Architecture(75),),
            ("--std=c++17",),
            forms((Architecture(75),)),
        )
        for n in range(count)
    ]


@pytest.mark.slow
def test_a_worker_killed_in_mid_build_costs_only_time(executor: DaskExecutor) -> None:
    with ProcessExecutor(2) as local:
        submitted = [transport.submit(local, job, compile_job) for job in jobs(24)]
        here = [future.result(timeout=120).compiled for future in submitted]
    pids = list(executor._client.run(os.getpid).values())
    futures = [transport.submit(executor, job, compile_job) for job in jobs(24)]
    wait(futures, timeout=60, return_when=FIRST_COMPLETED)
    assert not all(future.done() for future in futures)
    os.kill(pids[0], signal.SIGKILL)
    assert [future.result(timeout=120).compiled for future in futures] == here


def test_closing_leaves_the_cluster_as_it_is() -> None:
    with started(processes=False) as cluster:
        for _ in range(2):
            with connect(url(cluster)) as executor:
                assert executor.submit(pow, 2, 5).result(timeout=60) == 32
                assert executor.submit(int, "20", base=3).result(timeout=60) == 6
        assert len(cluster.scheduler_info["workers"]) == 2


class _Worker:
    """A Dask worker started as users do, with a directory first on its module search path."""

    def __init__(self, cluster: Any, first: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--no-nanny",
             "--nthreads", "1", "--no-dashboard"],
            env=os.environ | {"PYTHONPATH": str(first)}, cwd="/", stderr=subprocess.DEVNULL,
        )  # fmt: skip
        cluster.wait_for_workers(1)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def bare() -> Iterator[Any]:
    """A cluster without workers."""
    with started(workers=0) as made:
        yield made


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A directory with a different version of jitlto."""
    shutil.copytree(ROOT / "jitlto", tmp_path / "jitlto")
    module = tmp_path / "jitlto" / "base/__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.0.7"', module.read_text()))
    return tmp_path


@pytest.mark.slow
def test_a_worker_with_a_different_jitlto_or_none_is_an_error(bare: Any, other: Path, tmp_path: Path) -> None:
    (tmp_path / "none" / "jitlto").mkdir(parents=True)
    (tmp_path / "none" / "jitlto" / "__init__.py").write_text("raise ImportError('no jitlto here')")
    with _Worker(bare, other), connected(bare) as executor:
        names = "has jitlto 0.0.7", f"client has jitlto {jitlto.__version__}"
        with raises(ToolchainError, "toolchain-worker-version", *names, hint="same jitlto"):
            transport.result_of(transport.submit(executor, jobs(1)[0], compile_job))
    with _Worker(bare, tmp_path / "none"), raises(ToolchainError, "toolchain-worker", "no jitlto here"):
        connect(url(bare))


@pytest.mark.parametrize("wrong", ["dask://", "dask://host:port", "dask://host:99999", "http://host:80", ""])
def test_an_invalid_address_is_an_error(wrong: str) -> None:
    with raises(BuildError, "build-cluster-address", repr(wrong), hint="dask://HOST:PORT"):
        connect(wrong)


def test_an_unreachable_address_is_an_error_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        begin = time.monotonic()
        for address in (f"127.0.0.1:{taken.getsockname()[1]}", "no-such-host.invalid:8786"):
            with raises(BuildError, "build-cluster-unreachable", where=address):
                connect(f"dask://{address}")
        assert time.monotonic() - begin < 15


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolchainError) as caught:
        connect("dask://127.0.0.1:8786")
    assert "jitlto[dask]" in str(caught.value.hint)


@pytest.mark.slow
def test_a_database_built_on_a_cluster_is_the_same_file(executor: DaskExecutor, tmp_path: Path) -> None:
    families = [declaration.load_family(write_family(tmp_path / "mini", MINI))]
    here = build(families, tmp_path / "here.fragdb", jobs=1, cache=None)
    there = build(families, tmp_path / "there.fragdb", executor=executor, cache=None)
    assert there.compiled == 6
    assert there.path.read_bytes() == here.path.read_bytes()
