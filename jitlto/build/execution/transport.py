"""Sending jobs to any executor, as content: a worker needs only jitlto and a compiler.

Processes of ours read the headers, megabytes that most jobs share, from files. A thread or process of another executor,
here or on another machine, is sent them with the job, and passes it on to processes of ours: the bytes are the same.
"""

import os
import pickle
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import cache, lru_cache, partial
from typing import Any, TypeVar

from jitlto.base import __version__
from jitlto.base.errors import JitltoError, ToolchainError
from jitlto.base.text import describe_differences
from jitlto.build.execution import worker
from jitlto.build.execution.workers import ProcessExecutor, WorkerDied, local_executor
from jitlto.compile.architectures import add_variants
from jitlto.compile.compiler import CompileJob, CompileResult, Toolchain, find_toolchain
from jitlto.record.headers import Source, digest_headers

T = TypeVar("T")


def versions() -> dict[str, str]:
    """Return the versions of jitlto and Python, which client and worker must share."""
    return {"jitlto": f"jitlto {__version__}", "Python": f"Python {'.'.join(map(str, sys.version_info[:2]))}"}


def check_versions(worker: str, theirs: Mapping[str, str], ours: Mapping[str, str]) -> None:
    """Check that a worker's versions or identities of components, by name, are the client's; else ToolchainError."""
    for name, version in ours.items():
        if theirs.get(name) != version:
            found, wanted = describe_differences(theirs.get(name) or "none", version)
            what = f"worker {worker} has {found}, the client has {wanted}"
            raise ToolchainError(what, code="toolchain-worker-version", hint=f"install the same {name} on both")


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
    return find_toolchain(name, worker.shared_directory)


def submit(executor: Executor, job: CompileJob, run: Callable[[CompileJob], T]) -> Future[T]:
    """Submit a job to an executor.

    Args:
        executor: A :class:`ProcessExecutor`, whose processes run the job, or any other executor, whose threads or
            processes pass it on to a :class:`ProcessExecutor`. If it has a method ``share``, that gets the headers with
            a key, and returns what is sent in their place.
        job: The job.
        run: A function that takes the job, such as :func:`compile_job`; pickled by reference.

    Returns:
        Future: The result of ``run``. It raises ToolchainError if the worker has a different jitlto, Python or
            compiler, and WorkerDied if the process died.
    """
    headers, text = job.source.headers, job.source.text
    if isinstance(executor, ProcessExecutor):
        return executor.submit(run, replace(job, source=Source(text, executor.send(headers))))
    packed = {name: _compress(content) for name, content in headers.items()}
    if hasattr(executor, "share"):
        packed = executor.share(digest_headers(headers), packed)
    return executor.submit(_receive, versions(), packed, pickle.dumps((run, replace(job, source=Source(text, {})))))


def result_of(future: Future[T]) -> T:
    """Return the result of a job; WorkerDied if not the job but its executor has failed."""
    try:
        return future.result()
    except JitltoError:
        raise
    except Exception as error:
        what = f"the executor failed: {type(error).__name__}: {error}"
        raise WorkerDied(what, hint="see its logs; most often memory is too low") from error


# Of headers: most sets share most of them.
_compress = lru_cache(maxsize=4096)(partial(zlib.compress, level=1))
_decompress = lru_cache(maxsize=4096)(zlib.decompress)


def _receive(client: Mapping[str, str], packed: Mapping[str, bytes], payload: bytes) -> Any:
    """Run a job in a process of ours, in a worker of another executor.

    The arguments have built-in types only, so that a different version of jitlto can read and reject them.
    """
    check_versions(socket.gethostname(), versions(), client)
    run, job = pickle.loads(payload)  # noqa: S301 - from our own client
    headers = {name: _decompress(content) for name, content in packed.items()}
    return submit(local_executor(), replace(job, source=Source(job.source.text, headers)), run).result()
