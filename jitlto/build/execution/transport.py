"""Sending jobs to any executor. Headers, megabytes that most jobs share, are sent to each worker once.

Processes of ours read them from files, see :mod:`jitlto.build.execution.header_files`. A thread or process of another
executor, here or on another machine, passes the job on to processes of ours, so that the bytes are the same. If those
lack headers, it answers :class:`MissingHeaders` and is sent the job again with them.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Executor, Future
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeVar

from jitlto.base.errors import ToolchainError
from jitlto.base.text import describe_differences
from jitlto.base.version import __version__
from jitlto.build.execution import forkserver
from jitlto.build.execution.header_files import names_of
from jitlto.build.execution.workers import ProcessExecutor, default_jobs, local_executor
from jitlto.compile.architectures import add_variants
from jitlto.compile.compiler import CompileJob, CompileResult, Toolchain, find_toolchain
from jitlto.record.headers import Source, digest_headers

T = TypeVar("T")

_ARRIVAL = 2.0  # seconds in which headers that a worker has asked for may come, before another job asks for them too


class MissingHeaders(Exception):  # noqa: N818 - a request for them, which never leaves this package
    """A worker lacks headers: those contents, by SHA-256, that no other job has been asked for."""

    def __init__(self, contents: frozenset[bytes]) -> None:
        super().__init__(contents)
        self.contents = contents


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
    return find_toolchain(name, forkserver.shared_directory)


def capacity(executor: Executor, jobs: int | None = None) -> int:
    """Return the number of jobs to submit at a time: of each worker of ours, the next too, which then waits there.

    Args:
        executor: Where they run.
        jobs: How many may run at once; by default as many as the executor has workers, or a default.
    """
    workers = getattr(executor, "workers", None) or getattr(executor, "_max_workers", None)
    if not isinstance(workers, int):
        workers = default_jobs()
    if isinstance(executor, ProcessExecutor) and (jobs or workers) >= workers:
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
    if isinstance(executor, ProcessExecutor):
        executor.preload(_load_compiler, job.toolchain)
        headers = executor.headers.send(job.source.headers)
        return executor.submit(run, replace(job, source=Source(job.source.text, headers)))
    digest, names = digest_headers(job.source.headers), names_of(job.source.headers)
    payload = pickle.dumps((run, replace(job, source=Source(job.source.text, {}))))

    def send(wanted: frozenset[bytes]) -> Future[T]:
        contents = {names[name]: content for name, content in job.source.headers.items() if names[name] in wanted}
        packed = {sha256: _compress(content) for sha256, content in contents.items()}
        return executor.submit(_receive, versions(), digest, names, packed, payload)

    def resend(error: BaseException) -> Future[T] | None:
        return send(error.contents) if isinstance(error, MissingHeaders) else None

    return with_substitute(send(frozenset()), resend)


@lru_cache(maxsize=4096)
def _compress(content: bytes) -> bytes:
    # Once for all workers.
    return zlib.compress(content, 1)


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


# --- in a worker of another executor

_asked: dict[bytes, float] = {}  # contents that jobs were asked for, and when


def _receive(
    client: Mapping[str, str], digest: str, names: Mapping[str, bytes], packed: Mapping[bytes, bytes], payload: bytes
) -> Any:
    # The arguments have built-in types only, so that a different version of jitlto can read and reject them.
    check_versions(socket.gethostname(), versions(), client)
    executor = local_executor()
    executor.headers.add({sha256: zlib.decompress(content) for sha256, content in packed.items()})
    if missing := executor.headers.lacking(names.values()):
        now = time.monotonic()
        wanted = frozenset(each for each in missing if now - _asked.get(each, -_ARRIVAL) >= _ARRIVAL)
        _asked.update(dict.fromkeys(wanted, now))
        time.sleep(0 if wanted else 0.01)
        raise MissingHeaders(wanted)
    run, job = pickle.loads(payload)  # noqa: S301 - from our own client
    headers = executor.headers.join(digest, names)
    return executor.submit(run, replace(job, source=Source(job.source.text, headers))).result()
