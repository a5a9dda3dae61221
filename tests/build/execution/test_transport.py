"""Jobs on their way: headers go once, any executor gives the same result, other versions are refused."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import ToolchainError
from jitlto.base.text import shorten_digests
from jitlto.base.versions import Architecture
from jitlto.build.execution import transport
from jitlto.build.execution.transport import MissingHeaders, capacity, compile_job, submit, with_substitute
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied
from jitlto.compile import compiler as base
from jitlto.compile.compiler import CompileJob
from jitlto.record.fragment import ImageKind
from jitlto.record.headers import Source, digest_headers
from tests.support.errors import raises

HEADERS = {f"h{n}.cuh": os.urandom(10_000) for n in range(20)}


def job(text: bytes = b"text", headers: dict[str, bytes] | None = None, identity: str = "none") -> CompileJob:
    source = Source(text, HEADERS if headers is None else headers)
    return CompileJob("nvrtc", identity, source, (Architecture(75),), ("--std=c++17",), (ImageKind.LTOIR,))


def describe(job: CompileJob) -> tuple[str, CompileJob, str, int]:
    return job.source.sha256, job, str(Path.cwd()), os.getpid()


def fail(job: CompileJob) -> None:
    raise ToolchainError("what", where=job.toolchain)


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


@pytest.mark.slow
def test_errors_come_back_as_they_are() -> None:
    with ProcessExecutor(1) as pool, raises(ToolchainError, None, "what", where="nvrtc"):
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


def end(job: CompileJob) -> None:
    os._exit(3)


class Weighed(ThreadPoolExecutor):
    """Counts the calls, and the bytes of their arguments."""

    calls = sent = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        self.sent += len(pickle.dumps(args))
        return super().submit(fn, *args, **kwargs)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process as a worker that has no headers."""
    with ProcessExecutor(1) as inside:
        monkeypatch.setattr(transport, "local_executor", lambda: inside)
        monkeypatch.setattr(transport, "_asked", {})
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
def test_jobs_that_wait_for_one_worker_bring_its_headers_once() -> None:
    with Weighed(1) as pool:
        jobs = [job(b"%d" % n) for n in range(8)]
        futures = [submit(pool, each, describe) for each in jobs]
        assert [future.result(timeout=60)[1] for future in futures] == jobs
        assert 200_000 < pool.sent < 300_000


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
def test_a_worker_is_sent_only_what_it_lacks_of_a_set() -> None:
    with Weighed(1) as pool:
        assert submit(pool, job(), describe).result(timeout=60)[1] == job()
        assert pool.sent > 200_000
        pool.sent = 0
        changed = job(headers=HEADERS | {"h3.cuh": b"changed", "again.cuh": HEADERS["h5.cuh"]})
        assert submit(pool, changed, describe).result(timeout=60)[1] == changed
        assert pool.sent < 10_000
        assert pool.calls == 2 + 2


def test_the_worker_rejects_a_different_version_of_jitlto_or_python() -> None:
    with ProcessPoolExecutor(1) as pool:
        host = socket.gethostname()
        for name, version in transport.versions().items():
            client = transport.versions() | {name: "0.0.1"}
            ours, theirs = f"client has {name} 0.0.1", f"worker {host} has {name} {version}"
            with raises(ToolchainError, "toolchain-worker-version", ours, theirs):
                # The payload is of a version that this one cannot read.
                pool.submit(transport._receive, client, "", {}, {}, b"?").result(timeout=60)


@pytest.mark.slow
def test_the_worker_rejects_a_different_compiler() -> None:
    identity = base.find_toolchain("nvrtc").identify((ImageKind.LTOIR,))
    with ThreadPoolExecutor(1) as pool:
        names = socket.gethostname(), shorten_digests(identity), "nvrtc 1.0 of another build"
        with raises(ToolchainError, "toolchain-worker-version", *names, hint="nvrtc"):
            submit(pool, job(b"", {}, "nvrtc 1.0 of another build"), compile_job).result(timeout=60)
        result = submit(pool, job(b"__global__ void k() {}", {}, identity), compile_job).result(timeout=60)
        assert result.compiled.kernels == (("_Z1kv", ()),)


@pytest.mark.slow
def test_a_job_that_has_not_started_can_be_cancelled() -> None:
    with ProcessExecutor(1) as pool:
        futures = [submit(pool, job(b"%d" % n), describe) for n in range(50)]
        assert futures[-1].cancel()
        assert futures[0].result(timeout=60)
    outer = with_substitute(inner := Future[int](), lambda error: None)
    assert outer.cancel()
    assert inner.cancelled()


def test_a_future_ends_like_its_substitute() -> None:
    first, second = Future[int](), Future[int]()
    outer = with_substitute(first, lambda error: second if isinstance(error, MissingHeaders) else None)
    first.set_exception(MissingHeaders(frozenset()))
    assert not outer.done()
    second.set_result(5)
    assert outer.result(timeout=1) == 5

    given_up = Future[int]()
    given_up.cancel()
    given_up.set_running_or_notify_cancel()

    def say(error: BaseException) -> None:
        assert isinstance(error, CancelledError)
        raise ToolchainError("gone")

    with raises(ToolchainError, None, "gone"):
        with_substitute(given_up, say).result(timeout=1)


def test_capacity_is_the_number_of_workers() -> None:
    with ProcessExecutor(3) as ours, ThreadPoolExecutor(5) as threads:
        assert (capacity(ours), capacity(threads)) == (6, 5)  # ours have the next job at hand
        assert (capacity(ours, 2), capacity(threads, 2)) == (2, 2)
    assert capacity(Executor()) >= 1


SETS = st.dictionaries(st.text(max_size=3), st.binary(max_size=4), max_size=4)


@pytest.mark.slow
@given(SETS, SETS)
def test_digests_are_equal_only_for_equal_sets(a: dict[str, bytes], b: dict[str, bytes]) -> None:
    assert (digest_headers(a) == digest_headers(b)) == (a == b)
    assert digest_headers(dict(reversed(a.items()))) == digest_headers(a)
