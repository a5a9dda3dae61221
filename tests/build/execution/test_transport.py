"""Jobs on their way: headers are sent once, any executor gives the same result, other versions are refused."""

import os
import pickle
import socket
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import ToolchainError
from jitlto.base.versions import Architecture
from jitlto.build.execution import transport
from jitlto.build.execution.transport import compile_job, submit
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied
from jitlto.compile import compiler as base
from jitlto.compile.compiler import CompileJob
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import HeaderSet, Source, digest_headers
from tests.support.errors import raises

HEADERS = {f"h{n}.cuh": os.urandom(10_000) for n in range(20)}
LTOIR = ((ImageKind.LTOIR, Architecture(75)),)
SETS = st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=4)


def job(text: bytes = b"text", headers: dict[str, bytes] | None = None, identity: str = "none") -> CompileJob:
    source = Source(text, HEADERS if headers is None else headers)
    return CompileJob("nvrtc", identity, source, (Architecture(75),), ("--std=c++17",), LTOIR)


def describe(job: CompileJob) -> tuple[str, CompileJob, str, int]:
    return job.source.sha256, job, str(Path.cwd()), os.getpid()


def fail(job: CompileJob) -> None:
    raise ToolchainError("what", where=job.toolchain)


def end(job: CompileJob) -> None:
    os._exit(3)


@settings(max_examples=20)
@given(st.lists(SETS, max_size=5))
def test_every_set_of_headers_is_read_as_it_was_written(sets: list[dict[str, bytes]]) -> None:
    with ProcessExecutor(1) as pool:
        every = [pool.send(headers) for headers in sets]
        for sent, headers in zip(every, sets, strict=True):
            received = pickle.loads(pickle.dumps(sent))  # noqa: S301
            assert isinstance(received, HeaderSet)
            assert received == headers
        contents = {content for headers in sets for content in headers.values()}
        held = sum(path.stat().st_size for path in pool.directory.iterdir() if path.is_file() and path.suffix != ".set")
        assert held == sum(map(len, contents))


@given(SETS, SETS)
def test_digests_are_equal_only_for_equal_sets(a: dict[str, bytes], b: dict[str, bytes]) -> None:
    assert (digest_headers(a) == digest_headers(b)) == (a == b)
    assert digest_headers(dict(reversed(a.items()))) == digest_headers(a)


class Counting(ProcessExecutor):
    """Counts the bytes of the calls."""

    sent = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        Counting.sent += len(pickle.dumps((fn, args, kwargs)))
        return super().submit(fn, *args, **kwargs)


@pytest.mark.slow
def test_processes_of_ours_read_headers_from_files() -> None:
    Counting.sent = 0
    with Counting(2) as pool:
        jobs = [job(b"%d" % n) for n in range(50)]
        results = [future.result(timeout=60) for future in [submit(pool, j, describe) for j in jobs]]
        assert [result[:2] for result in results] == [(j.source.sha256, j) for j in jobs]
        changed = job(headers=HEADERS | {"h3.cuh": b"changed"})
        assert submit(pool, changed, describe).result(timeout=60)[1] == changed
        assert Counting.sent < 51 * 1000
        with raises(ToolchainError, None, "what", where="nvrtc"):
            submit(pool, job(), fail).result(timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("make", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_does_jobs_in_processes_of_ours(make: Any) -> None:
    with make(2) as pool:
        jobs = [job(b"%d" % n) for n in range(20)]
        results = [future.result(timeout=60) for future in [submit(pool, j, describe) for j in jobs]]
        assert [result[:2] for result in results] == [(j.source.sha256, j) for j in jobs]
        assert {result[2] for result in results} == {"/"}
        assert os.getpid() not in {result[3] for result in results}
        assert not {result[3] for result in results} & set(getattr(pool, "_processes", None) or {})
        with raises(ToolchainError, None, "what", where="nvrtc"):
            submit(pool, job(), fail).result(timeout=60)
        with raises(WorkerDied, None, "exit status 3"):
            submit(pool, job(), end).result(timeout=60)


def test_the_worker_rejects_a_different_version_of_jitlto_or_python() -> None:
    with ProcessPoolExecutor(1) as pool:
        host = socket.gethostname()
        for name, version in transport.versions().items():
            client = transport.versions() | {name: f"{name} 0.0.1"}
            ours, theirs = f"client has {name} 0.0.1", f"worker {host} has {version}"
            with raises(ToolchainError, "toolchain-worker-version", ours, theirs):
                # The payload is of a version that this one cannot read.
                pool.submit(transport._receive, client, {}, b"?").result(timeout=60)


@pytest.mark.slow
def test_the_worker_rejects_a_different_compiler() -> None:
    identity = base.find_toolchain("nvrtc").identify(LTOIR)
    with ThreadPoolExecutor(1) as pool:
        names = socket.gethostname(), " ".join(identity.split()[:2]), "nvrtc 1.0 of another build"
        with raises(ToolchainError, "toolchain-worker-version", *names, hint="nvrtc"):
            submit(pool, job(b"", {}, "nvrtc 1.0 of another build"), compile_job).result(timeout=60)
        result = submit(pool, job(b"__global__ void k() {}", {}, identity), compile_job).result(timeout=60)
        assert result.compiled.kernels == (("_Z1kv", ()),)
