"""Linking many kernels to see that they link: in parallel, all failures found, the results thrown away."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from jitlto.cuda import toolkit
from jitlto.errors import JitltoError, VersionError
from jitlto.model.compatibility import extra, reads
from jitlto.model.enumeration import Kernel
from jitlto.model.fragment import Fragment, ImageKind
from jitlto.model.versions import Architecture
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.planning.plan import Plan

_MEMORY_PER_LINK = 256 << 20  # bytes; nvJitLink takes less for the families that we know


@dataclass(frozen=True, slots=True)
class LinkJob:
    """One kernel to link for one architecture."""

    family: KernelFamily
    kernel: Kernel
    arch: Architecture
    mode: str

    def plan(self) -> Plan:
        """The plan, which holds no bytes."""
        options = self.family.record.link
        return Plan(
            self.family.name,
            self.kernel.resolution,
            (),
            options,
            options,
            self.mode,
            self.arch,
            self.family.database,
        )


def default_jobs() -> int:
    """How many links at once cores and free memory bear."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return cores
    return max(1, min(cores, free // _MEMORY_PER_LINK))


def refuse_unreadable(fragments: Sequence[Fragment], mode: str, where: str) -> None:
    """Refuse what no kernel could be linked from: fragments that the nvJitLink at hand cannot read.

    Parameters
    ----------
    fragments : sequence of Fragment
        All that would be linked.
    mode : str
        ``lto`` or ``ptx``.
    where : str
        The database, for the message.

    Raises
    ------
    VersionError
        If there are such fragments.
    ToolchainError
        If there is no nvJitLink.
    """
    linker = toolkit.nvjitlink_version()
    kind = ImageKind.LTOIR if mode == "lto" else ImageKind.PTX
    unreadable = [f for f in fragments if not any(reads(image, linker) for image in f.images_of(kind))]
    if not unreadable:
        return
    what = "LTO-IR" if kind is ImageKind.LTOIR else "PTX"
    made = max(image.version for f in unreadable for image in f.images)
    some = any(True for f in unreadable for _ in f.images_of(kind))
    count = "its" if len(unreadable) == len(fragments) else f"{len(unreadable)} of its {len(fragments)}"
    state = f"hold {what} made by CUDA {made}" if some else f"hold no {what}"
    remedy = f"install an nvJitLink of CUDA {made.major}, {made} or newer ({extra(made, linker)})"
    remedy += f", or build them with a compiler no newer than {linker}" if some else ""
    if mode == "ptx" and not some:
        remedy = 'link the LTO-IR instead: --mode lto; or build with images = ["ltoir", "ptx"] in family.toml'
    if mode == "lto" and all(any(reads(i, linker) for i in f.images_of(ImageKind.PTX)) for f in unreadable):
        remedy = f"link the PTX instead: --mode ptx; or {remedy}"
    raise VersionError(f"cannot be linked by nvJitLink {linker}: {count} fragments {state}", where=where, hint=remedy)


def link_all(
    jobs: Iterable[LinkJob], workers: int, done: Callable[[object], None]
) -> Iterator[tuple[int, LinkJob, JitltoError]]:
    """Link all, several at once, and yield those that fail, with their places, as they fail.

    Threads, for nvJitLink scales across them; never more than a few jobs wait. Whoever stops in between does not wait
    for the links that run.

    Parameters
    ----------
    jobs : iterable of LinkJob
        Read as they are needed.
    workers : int
        How many at once.
    done : callable
        Told of each that is done.
    """
    executor = ThreadPoolExecutor(workers, thread_name_prefix="jitlto-link")
    running: dict[Future[JitltoError | None], tuple[int, LinkJob]] = {}

    def finished() -> Iterator[tuple[int, LinkJob, JitltoError]]:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            place, job = running.pop(future)
            error = future.result()
            done(job)
            if error is not None:
                yield place, job, error

    try:
        for place, job in enumerate(jobs):
            running[executor.submit(_outcome, job)] = (place, job)
            if len(running) >= 2 * workers:
                yield from finished()
        while running:
            yield from finished()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _outcome(job: LinkJob) -> JitltoError | None:
    try:
        job.plan().link_anew()
    except JitltoError as error:
        # Tracebacks would hold the inputs of every link that failed.
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    return None
