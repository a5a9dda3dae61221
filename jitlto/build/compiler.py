"""Compiling in worker processes: NVRTC serialises threads, and its crash must not be the build's."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from jitlto import fatbin, nvrtc
from jitlto.build.render import Rendered
from jitlto.build.workers import ProcessExecutor, WorkerDied
from jitlto.errors import BuildError, CompileError
from jitlto.headers import HeaderSearch, Source
from jitlto.versions import Architecture

_BYTES_A_JOB = 1 << 30  # NVRTC stays below half of this on the heaviest CCCL headers


@dataclass(frozen=True, slots=True)
class Unit:
    """What one source became: fatbins of LTO-IR by architecture beside all of :class:`~jitlto.nvrtc.Compiled`."""

    compiled: nvrtc.Compiled
    fatbins: dict[Architecture, bytes]


def default_jobs() -> int:
    """How many compilers may run at once: one a core that this process may use, and no more than memory bears."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return cores
    return max(1, min(cores, memory // _BYTES_A_JOB))


def compile_all(
    sources: Sequence[Rendered],
    search: HeaderSearch,
    architectures: Sequence[Architecture],
    options: Sequence[str],
    *,
    jobs: int,
    done: Callable[[Rendered], None],
) -> list[Unit]:
    """Compile sources in worker processes, equal ones once.

    Parameters
    ----------
    sources : sequence of Rendered
        What to compile.
    search : HeaderSearch
        Where its headers are found.
    architectures : sequence of Architecture
        What LTO-IR to make.
    options : sequence of str
        Compiler options.
    jobs : int
        Worker processes.
    done : callable
        Told of each source that is compiled, in order.

    Returns
    -------
    list of Unit
        In the order of ``sources``.

    Raises
    ------
    CompileError
        At the first source that does not compile, with the compiler's lines, the source around them, the template
        and the combination.
    BuildError
        If a compiler process dies.
    """
    by_text: dict[str, list[int]] = {}
    for position, rendered in enumerate(sources):
        by_text.setdefault(rendered.source, []).append(position)
    units: dict[int, Unit] = {}
    with ProcessExecutor(min(jobs, len(by_text)) or 1) as pool:
        try:
            waiting: _Waiting = {
                _submit(pool, search, rendered.source, architectures, options, ()): (positions, ())
                for positions in by_text.values()
                for rendered in [sources[positions[0]]]
            }
            _collect(pool, waiting, sources, search, architectures, options, units, done)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [units[position] for position in range(len(sources))]


_Waiting = dict["Future[Unit]", tuple[list[int], tuple[str, ...]]]


def _collect(
    pool: Executor,
    waiting: _Waiting,
    sources: Sequence[Rendered],
    search: HeaderSearch,
    architectures: Sequence[Architecture],
    options: Sequence[str],
    units: dict[int, Unit],
    done: Callable[[Rendered], None],
) -> None:
    failed: tuple[int, CompileError] | None = None
    while waiting:
        again: _Waiting = {}
        # In order, not as they complete: of several errors the same one is reported every time.
        for future, (positions, extra) in waiting.items():
            if failed is not None and failed[0] < positions[0]:
                future.cancel()
                continue
            rendered = sources[positions[0]]
            try:
                unit = future.result()
            except CompileError as error:
                # An include through a macro, which no reading of the text can follow: give that header too.
                name = nvrtc.missing_header(error.log)
                if name is None or name in extra or search.find(name) is None:
                    failed = (
                        positions[0],
                        nvrtc.annotate(error, f"{rendered.key}.cu", rendered.text, rendered.origin),
                    )
                else:
                    more = (*extra, name)
                    again[_submit(pool, search, rendered.source, architectures, options, more)] = (positions, more)
            except WorkerDied as error:
                raise BuildError(
                    f"a compiler process died with exit status {error}",
                    where=rendered.origin,
                    hint="out of memory, or a compiler bug: build with --jobs 1 to see which source",
                ) from error
            else:
                for position in positions:
                    units[position] = unit
                    done(sources[position])
        waiting = again
    if failed is not None:
        raise failed[1] from None


def _submit(
    pool: Executor,
    search: HeaderSearch,
    text: str,
    architectures: Sequence[Architecture],
    options: Sequence[str],
    extra: tuple[str, ...],
) -> Future[Unit]:
    return pool.submit(_compile, search.closure(text.encode(), extra), tuple(architectures), tuple(options))


def _compile(source: Source, architectures: tuple[Architecture, ...], options: tuple[str, ...]) -> Unit:
    compiled = nvrtc.compile_source(source, architectures, options)
    return Unit(compiled, {a: fatbin.wrap_ltoir(ltoir, a) for a, ltoir in compiled.ltoir.items()})
