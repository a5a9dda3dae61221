"""Linking many kernels at once, on threads: nvJitLink scales across them."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeVar

from jitlto.base.errors import JitltoError

T = TypeVar("T")
R = TypeVar("R")

_MEMORY_PER_LINK = 256 << 20  # bytes; more than nvJitLink takes for any family that we have measured


def default_workers(memory: int = _MEMORY_PER_LINK) -> int:
    """Return the number of parallel links, or other jobs of some bytes, that cores and free memory allow."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(len(os.sched_getaffinity(0)), free // memory))


def run_parallel(
    work: Callable[[T], R], items: Iterable[T], workers: int | None = None
) -> Iterator[tuple[int, T, R | JitltoError]]:
    """Call ``work`` for each item on threads; yield position, item and result or error as they finish.

    A caller that stops iterating does not wait for running calls.

    Args:
        work: The function to call; a :class:`JitltoError` that it raises is a result.
        items: The items.
        workers: The number of threads; by default :func:`default_workers`.
    """
    executor = ThreadPoolExecutor(workers or default_workers(), thread_name_prefix="jitlto-link")
    running: dict[Future[R | JitltoError], tuple[int, T]] = {}

    def call(item: T) -> R | JitltoError:
        try:
            return work(item)
        except JitltoError as error:
            # Tracebacks would keep the inputs of every failed link in memory.
            error.__cause__ = error.__context__ = None
            return error.with_traceback(None)

    try:
        for position, item in enumerate(items):
            running[executor.submit(call, item)] = (position, item)
        for future in as_completed(list(running)):
            yield *running.pop(future), future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
