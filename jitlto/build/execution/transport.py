"""Sending jobs to any executor. Headers, megabytes that most jobs share, are sent to each worker once.

A job is sent with the SHA-256 of its headers in their place. Processes of ours read them from files, see
:mod:`jitlto.build.execution.header_files`. A thread or process of a different executor, here or on another machine,
that lacks them answers :class:`~jitlto.build.execution.header_transfer.MissingHeaders` and is sent the job again with
them; it then starts worker processes of ours, so that the bytes are the same.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import replace
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from jitlto.base.errors import ToolchainError
from jitlto.base.text import describe_differences
from jitlto.base.version import __version__
from jitlto.build.execution import workers
from jitlto.build.execution.header_files import read_headers
from jitlto.build.execution.header_transfer import Headers, HeaderStore, MissingHeaders, pack
from jitlto.build.execution.workers import ProcessExecutor, default_jobs, local_executor
from jitlto.compile.architectures import add_variants
from jitlto.compile.compiler import CompileJob, CompileResult, Toolchain, find_toolchain
from jitlto.record.headers import Source, digest_headers

T = TypeVar("T")


@runtime_checkable
class AddressableExecutor(Protocol):
    """An executor whose workers have addresses, which :class:`MissingHeaders` names."""

    supplied: set[str]  #: workers that have asked for headers


_STORE_BYTES = 256 << 20
_store = HeaderStore(_STORE_BYTES)


def _after_fork() -> None:
    global _store
    _store = HeaderStore(_STORE_BYTES)  # a thread that the fork lacks may have held the lock


os.register_at_fork(after_in_child=_after_fork)


def versions() -> dict[str, str]:
    """Return the versions of jitlto and Python, which client and worker must share."""
    return {"jitlto": __version__, "Python": ".".join(map(str, sys.version_info[:2]))}


def check_versions(worker: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Check that a worker's versions or identities of components, by name, are the client's; else ToolchainError."""
    for name, version in ours.items():
        if theirs.get(name) != version:
            found, wanted = describe_differences(theirs.get(name) or "none", version)
            what = f"worker {worker} has {_spell(name, found)}, the client has {_spell(name, wanted)}"
            raise ToolchainError(what, code="toolchain-worker-version", hint=f"install the same {name} on both")


def _spell(name: str, version: str) -> str:
    return version if version.startswith(name) else f"{name} {version}"  # an identity may begin with the name


def compile_job(job: CompileJob) -> CompileResult:
    """Compile a job in this process, whose working directory is ``/``.

    Raises:
        CompileError: If the compiler rejects the source.
        ToolchainError: If the compiler is missing, or differs from the client's.
    """
    compiler = find_compiler(job.toolchain)
    check_versions(socket.gethostname(), {compiler.name: compiler.identify(job.images)}, {job.toolchain: job.identity})
    begin = time.perf_counter()
    compiled = add_variants(compiler, job, compiler.compile(job))
    return CompileResult(compiled, time.perf_counter() - begin, f"{socket.gethostname()}:{os.getpid()}")


@cache
def find_compiler(name: str) -> Toolchain:
    """Return a compiler, loaded once in this process."""
    return find_toolchain(name, workers.shared_directory)


def capacity(executor: Executor, jobs: int | None = None, *, ahead: bool = False) -> int:
    """Return the number of jobs to submit at a time.

    Args:
        executor: Where they run.
        jobs: How many may run at once; by default as many as the executor has workers, or a default.
        ahead: Have the next job wait at each worker of ours, which then need not wait for us. Not where results are
            kept: a build that is killed would lose more of them, and other builds could not claim those jobs.
    """
    workers = getattr(executor, "workers", None) or getattr(executor, "_max_workers", None)
    if not isinstance(workers, int):
        workers = default_jobs()
    if ahead and isinstance(executor, ProcessExecutor) and (jobs or workers) >= workers:
        return 2 * workers
    return max(1, jobs or workers + int(getattr(executor, "backlog", 0)))


def submit(executor: Executor, job: CompileJob, run: Callable[[CompileJob], T]) -> Future[T]:
    """Submit a job to an executor.

    Args:
        executor: A :class:`ProcessExecutor`, whose processes run the job, or any other executor, whose threads or
            processes pass it on to a :class:`ProcessExecutor`.
        job: The job; its headers are sent only if the worker lacks them.
        run: A function that takes the job, such as :func:`compile_job`; pickled by reference.

    Returns:
        Future: The result of ``run``. It raises ToolchainError if the worker has a different jitlto, Python or
            compiler, and WorkerDied if the process died. It can be cancelled until it is done, but a compile that a
            different executor's worker has started runs to its end.
    """
    payload = pickle.dumps((run, replace(job, source=Source(job.source.text, {}))))
    if isinstance(executor, ProcessExecutor):
        return executor.submit(_work, payload, *executor.write_headers(job.source.headers))
    headers = digest_headers(job.source.headers)

    wanted: frozenset[bytes] | None = frozenset()

    def resend(error: BaseException) -> Future[T] | None:
        nonlocal wanted
        if not isinstance(error, MissingHeaders):
            return None
        asked = error.contents
        if error.worker is not None and isinstance(executor, AddressableExecutor):
            if asked is None and error.worker in executor.supplied:  # other jobs bring headers there
                asked = frozenset()
            executor.supplied.add(error.worker)
        # Each attempt may reach a worker that lacks others.
        wanted = None if wanted is None or asked is None else wanted | asked
        return executor.submit(_receive, versions(), headers, payload, pack(job.source.headers, wanted))

    return with_substitute(executor.submit(_receive, versions(), headers, payload, None), resend)


def preload(executor: Executor, toolchain: str) -> None:
    """Load a compiler where worker processes of ours are forked."""
    if isinstance(executor, ProcessExecutor):
        executor.preload(_load_compiler, toolchain)


def warm_up(executor: Executor, toolchain: str) -> None:
    """Have a worker process of ours start with a compiler, while its first job is still being prepared."""
    if isinstance(executor, ProcessExecutor):
        executor.preload(_load_compiler, toolchain)
        executor.submit(_load_compiler, toolchain)


def _load_compiler(name: str) -> None:
    find_compiler(name).load()


def with_substitute(first: Future[T], substitute: Callable[[BaseException], Future[T] | None]) -> Future[T]:
    """Return a future with the result of ``first``, or of its substitute if it fails.

    ``substitute`` gets the error (CancelledError if the executor cancelled the attempt). It returns the next attempt,
    or None to keep the error, or raises a different one.
    """
    outer: Future[T] = Future()
    current = first

    def done(attempt: Future[T]) -> None:
        nonlocal current
        error = CancelledError() if attempt.cancelled() else attempt.exception()
        following = None
        if error is not None and not outer.cancelled():
            try:
                following = substitute(error)
            except Exception as failure:  # noqa: BLE001 - the future raises it
                error = failure
        if following is not None:
            current = following
            current.add_done_callback(done)
        elif outer.set_running_or_notify_cancel():
            if error is None:
                outer.set_result(attempt.result())
            else:
                outer.set_exception(error)

    outer.add_done_callback(lambda _: outer.cancelled() and current.cancel())
    first.add_done_callback(done)
    return outer


def _receive(client: Mapping[str, str], headers: str, payload: bytes, packed: bytes | None) -> Any:
    # In a worker of a different executor. The arguments have built-in types only, so that a different version of
    # jitlto can read and reject them.
    check_versions(socket.gethostname(), versions(), client)
    contents = _store.get(headers) if packed is None else _store.receive(headers, packed)
    run, job = _open(payload, contents)
    return submit(local_executor(), job, run).result()


def _work(payload: bytes, directory: str, headers: str) -> Any:
    # In a process of ours.
    run, job = _open(payload, read_headers(directory, headers))
    return run(job)


def _open(payload: bytes, contents: Headers) -> tuple[Callable[[CompileJob], object], CompileJob]:
    run, job = pickle.loads(payload)  # noqa: S301 - from our own client
    return run, replace(job, source=Source(job.source.text, contents))
