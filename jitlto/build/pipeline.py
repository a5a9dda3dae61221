"""The whole build: load, render, compile, assemble, validate, write."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType

from jitlto.base.errors import BuildError, CompileError, JitltoError
from jitlto.base.text import check_type, format_bytes, pluralize
from jitlto.build import shards
from jitlto.build.binaries import assemble_binaries
from jitlto.build.cache.cache import Cache, CacheUse
from jitlto.build.causes import found_in, group_causes
from jitlto.build.execution.events import Observer
from jitlto.build.execution.request import CompileRequest
from jitlto.build.execution.workers import ProcessExecutor
from jitlto.build.interface_proof import InterfaceCompiler, InterfaceProof, find_broken
from jitlto.build.merge import MergeReport
from jitlto.build.proof import Planned, Proofs, check_interfaces, prove_once
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.scheduler import Scheduler
from jitlto.build.shards import Shard
from jitlto.database import writer
from jitlto.families.declaration import FamilyDeclaration
from jitlto.plan.configuration import allowed_values
from jitlto.record.fragment import sorted_values

# What was compiled is written to shared stores for at most this part of the build's time, but at least these seconds,
# while something is written within those.
_FINISH_PART, _FINISH, _STALL = 0.1, 2.0, 0.5


@dataclass(frozen=True)
class BuildReport(MergeReport):
    """The result of a build."""

    compiled: int  # compiles that were run; the other fragments came from the cache or share a source
    seconds: float  # of wall time
    use: CacheUse = field(default_factory=CacheUse)

    @property
    def summary(self) -> str:
        """What was compiled, what came from the shared store, and how long the build took."""
        use, found, written = self.use, "", ""
        if use.store:
            found = f", {use.store} from the store ({format_bytes(use.bytes_read)})"
        if use.bytes_written:
            written = f", {format_bytes(use.bytes_written)} written to it"
        return f"{self.compiled or 'none'} compiled{found}{written}, {self.seconds:.1f} s"


def build(
    families: Iterable[FamilyDeclaration] | RenderedFamilies,
    output: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    cache: Cache | None = None,
    observer: Observer | None = None,
    keep_going: bool = False,
    shard: Shard | None = None,
    allow_incomplete: bool = False,
    is_proved: bool = True,
    only: Sequence[tuple[str, str]] = (),
) -> BuildReport:
    """Build families into one database. The file is written only if all checks pass, and every kernel plans.

    Args:
        families: Families with distinct names.
        output: The database file.
        jobs: Number of parallel compilers; by default as many as cores and memory allow.
        executor: Where to compile instead, as many at a time as it likes.
        cache: The build cache; None to compile everything.
        observer: Receives the events of the build.
        keep_going: Compile the rest after a failure, and report all failures by cause.
        shard: Build only this part; :func:`jitlto.build.merge.merge_databases` joins the parts.
        allow_incomplete: Write the database although kernels lack something, and report that as advice.
        is_proved: Plan every kernel; otherwise whoever uses one finds out what it lacks.
        only: Parameters, or ``entry``, and values: build the fragments that have one of those given for a parameter,
            or no such parameter.

    Raises:
        JitltoError: The first failure; a BuildError for several.
    """
    begin, output, observer = time.perf_counter(), Path(output), observer or Observer()
    _check_arguments(output, jobs, executor, cache, shard)
    observer.phase("render")
    sources = families if isinstance(families, RenderedFamilies) else RenderedFamilies(families)
    sources = _select(sources, only) if only else sources
    with ExitStack() as stack:
        if executor is None:
            executor = ProcessExecutor(jobs)
            stack.callback(executor.shutdown, cancel_futures=True)
        scheduler = Scheduler(executor, InterfaceCompiler(executor, cache), cache, observer, begin, keep_going)
        fragments, blobs = scheduler.fragments, scheduler.blobs
        scheduler.run(_announce(sources, shard, observer))
        if scheduler.failures:
            raise _explain_all(scheduler)
        proofs = Proofs(cache.store if cache else None)
        assemble_binaries(sources, fragments, blobs)
        keys = sorted((str(request.key), request.cache_key) for request in scheduler.sources)
        known = proofs.key("interfaces", repr(sources.records), keys, sorted(blobs))
        planned, users = Planned(), {f.name for f in sources.families if f.interfaces != f.own_interfaces}
        is_known = not shard and known in proofs.find([known])
        interfaces = None if is_known else InterfaceProof(scheduler.sources, scheduler.interfaces, users)
        sources.check_settings()
        observer.phase("check")
        advice, records = [*sources.advice, *sources.unknown_defaults()], [*sources.records.values()]
        part = None
        if shard and interfaces:
            part = shards.make_part_record(shard, sources, interfaces.faults(), [*map(str, advice)])

        def check(path: Path, digest: str) -> None:
            nonlocal planned
            try:  # kernels are planned while the interfaces are compiled
                if is_proved:
                    of = fragments, path, digest, sources
                    planned = prove_once(proofs, advice, *of, allow_incomplete=allow_incomplete)
            finally:  # its errors say more than that kernels do not plan
                if interfaces:
                    faults = interfaces.faults()
                    for record in (each.with_used(sources.records) for each in records):
                        check_interfaces(record, record.select(fragments), faults, sources)
                    proofs.add(known)

        observer.phase("write")
        digest = writer.write(output, records, fragments, blobs, part=part, check=None if shard else check)
    use, seconds = _finish(cache, scheduler, begin), time.perf_counter() - begin
    made = output, digest, tuple(fragments), tuple(dict.fromkeys(advice)), planned
    return BuildReport(*made, scheduler.compiled, seconds, use)


def _check_arguments(
    output: Path, jobs: int | None, executor: Executor | None, cache: Cache | None, shard: Shard | None
) -> None:
    check_type(jobs, (int, NoneType), "jobs must be a number of processes")  # NaN would start none
    for value, expected in ((executor, Executor), (cache, Cache), (shard, Shard)):
        check_type(value, (expected, NoneType), f"expected a {expected.__name__}")
    if not output.parent.is_dir():
        what = f"the directory {output.parent} does not exist"
        raise BuildError(what, code="build-no-directory", where=str(output), hint="create it first")
    writer.check_writable(output)


def _finish(cache: Cache | None, scheduler: Scheduler, begin: float) -> CacheUse:
    """Bound the directory of a cache, wait for what is written to its store, and return how it was used."""
    if cache is not None:
        if scheduler.compiled:
            cache.store.prune()
        if cache.shared is not None:
            cache.shared.flush(max(_FINISH, _FINISH_PART * (time.perf_counter() - begin)), _STALL)
    counts = cache.shared.counts if cache and cache.shared else Counter[str]()
    traffic = {name: counts[name] for name in ("bytes_read", "bytes_written", "rejected", "failures")}
    return CacheUse(**scheduler.layers, **traffic)


def _select(sources: RenderedFamilies, only: Sequence[tuple[str, str]]) -> RenderedFamilies:
    """Return the sources that have one of the values given for a parameter, or no such parameter."""
    known = sorted_values((name, (value,)) for each in sources.rendered for name, value in each.pairs)
    allowed = allowed_values(only, known, ", ".join(family.name for family in sources.families))
    return sources.select(lambda each: all(value in allowed.get(name, (value,)) for name, value in each.pairs))


def _announce(sources: RenderedFamilies, shard: Shard | None, observer: Observer) -> Iterator[Sequence[CompileRequest]]:
    """Yield batches of requests, the next rendered while one is compiled, and tell the observer of them."""
    batches = sources.by_family() if shard is None else [shards.select(sources.requests, shard)]
    for number, batch in enumerate(batches):
        observer.started([request.key for request in batch])
        if number == 0:
            observer.phase("compile")
        yield batch


def _explain_all(scheduler: Scheduler) -> JitltoError:
    """Return the failure, or an error that groups several by what their compilers say first."""
    if len(scheduler.failures) == 1 or not scheduler.keep_going:
        return _explain(*scheduler.failures[0], scheduler.interfaces)
    ordered = sorted(scheduler.failures, key=lambda failure: failure[0].key)
    failures = [(request, _explain(request, error, scheduler.interfaces)) for request, error in ordered]
    causes = group_causes(found_in(error, str(r.key), r.rendered.combination) for r, error in failures)
    total = len(failures) + len(scheduler.sources)
    what = f"{len(failures)} of {total} fragments failed, {pluralize(len(causes), 'cause')}"
    hint = "no database was written; the build cache keeps what compiled"
    return BuildError(what, code="build-failed-fragments", hint=hint, causes=causes)


def _explain(request: CompileRequest, error: JitltoError, compiler: InterfaceCompiler) -> JitltoError:
    """Return what is to blame for a failure: perhaps an interface that does not compile, and not the source behind."""
    if isinstance(error, CompileError) and error.code == CompileError.code:
        return find_broken(compiler, request.config, request.config.interfaces) or error
    return error
