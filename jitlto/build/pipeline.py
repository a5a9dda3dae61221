"""The whole build: load, render, compile, assemble, validate, write."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from jitlto.base.errors import BuildError, CompileError
from jitlto.base.text import check_type
from jitlto.base.type_spelling import is_same_type
from jitlto.build import proof, shards, validate
from jitlto.build.assemble import assemble
from jitlto.build.cache.cache import Cache, CacheUse, find_use
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.execution import transport
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.execution.request import CompileRequest
from jitlto.build.execution.scheduler import Outcome, Scheduler
from jitlto.build.execution.workers import ProcessExecutor, default_jobs
from jitlto.build.failures import FailedFragmentsError, Failure, group_failures
from jitlto.build.interface_compiler import InterfaceCompiler
from jitlto.build.interface_proof import Faults, InterfaceProof, find_broken
from jitlto.build.interfaces import check_interfaces, own_texts
from jitlto.build.rendered_families import RenderedFamilies, check_reproducible
from jitlto.build.shards import Shard
from jitlto.build.sides import explain
from jitlto.compile.compiler import CompiledSource
from jitlto.database import writer
from jitlto.families.declaration import FamilyDeclaration
from jitlto.families.templates import RenderedSource
from jitlto.record.fragment import Fragment
from jitlto.record.headers import interfaces_first

# What was compiled is written to shared stores for at most this part of the build's time, but at least these seconds,
# while something is written within those.
_FINISH_PART, _FINISH, _STALL = 0.1, 2.0, 0.5
_ERROR = re.compile(r"^(.+?)\((\d+)\): [\w ]*error", re.M)  # of NVRTC and nvcc


@dataclass(frozen=True, slots=True)
class BuildReport:
    """The result of a build."""

    path: Path  # the database
    digest: str  # its logical digest
    fragments: tuple[Fragment, ...]  # all that it holds, sorted by key
    compiled: int  # compiles that were run; the other fragments came from the cache or share a source
    advice: tuple[str, ...]  # warnings about code that is allowed but probably a mistake
    seconds: float  # of wall time
    use: CacheUse = field(default_factory=CacheUse)

    @property
    def summary(self) -> str:
        """What was compiled, what came from shared stores, and how long the build took."""
        compiled = f"{self.compiled or 'none'} compiled"
        return ", ".join([compiled, *self.use.describe_stores(), f"{self.seconds:.1f} s"])


def build(
    families: Iterable[FamilyDeclaration] | RenderedFamilies,
    output: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    cache: Cache | None = None,
    observer: Observer = NO_OBSERVER,
    keep_going: bool = False,
    shard: Shard | None = None,
    allow_incomplete: bool = False,
) -> BuildReport:
    """Build families into one database. The file is written only if all checks pass, and every kernel plans.

    Args:
        families: Families with distinct names.
        output: The database file.
        jobs: Number of parallel compilers; by default the number of ``executor``'s workers, or without an executor as
            many as cores and memory allow.
        executor: Where to compile; by default in worker processes of this build.
        cache: The build cache; None to compile everything.
        observer: Receives the events of the build.
        keep_going: Continue after failures, and report all of them at the end.
        shard: Build only this part; :func:`jitlto.build.merge.merge_databases` joins the parts.
        allow_incomplete: Write the database although kernels lack something, and report that as advice.

    Raises:
        JitltoError: The first failure; with ``keep_going`` a :class:`~jitlto.build.failures.FailedFragmentsError` with
            all fragments that do not compile.
    """
    begin = time.perf_counter()
    output = Path(output)
    _check_arguments(output, jobs, executor, cache, shard)
    observer.phase("render")
    sources = families
    if not isinstance(sources, RenderedFamilies):
        sources = RenderedFamilies(sources, keep_going=keep_going, cache=cache)
    writer.check_writable(output)
    made = _Assembled()
    with _workers(executor, jobs) as pool:
        compile_ = partial(transport.submit, pool, run=transport.compile_job)
        width = transport.capacity(pool, jobs)
        scheduler = Scheduler(compile_, width, cache, observer, begin, made.add, keep_going=keep_going)
        outcome = scheduler.run(_announce(sources, shard, observer))
        compiler = InterfaceCompiler(partial(transport.submit, pool), cache)
        if outcome.failures or sources.failures:
            observer.phase("check")
            _raise_failures(sources, outcome, compiler, keep_going=keep_going)
        interfaces = InterfaceProof(outcome.requests, outcome.sources, compiler)
        sources.check_texts(compiler)
        observer.phase("check")
        advice, records, part = [*sources.advice, *made.list_advice()], [*sources.records.values()], None
        fragments = tuple(sorted(made.fragments, key=lambda fragment: fragment.key))
        find_faults = partial(interfaces.faults, sources.own_interfaces())
        if shard is not None:
            whole = sources.source_digests(), find_faults(), sources.toolchain_identities()
            part = shards.make_part_record(shard, *whole, advice)

        def check(digest: str) -> None:
            try:  # kernels are planned while the interfaces are compiled
                store = cache.store if cache else None
                proof.prove_once(
                    advice, records, fragments, (), store, digest, sources.show, allow_incomplete=allow_incomplete
                )
            finally:  # its errors say more than that kernels do not plan
                _validate(sources, made.fragments, find_faults())

        observer.phase("write")
        digest = writer.write(output, records, fragments, made.blobs, part=part, check=None if shard else check)
    if cache is not None and outcome.compiled:
        cache.store.prune()
    if cache is not None and cache.stores is not None:
        cache.stores.flush(max(_FINISH, _FINISH_PART * (time.perf_counter() - begin)), _STALL)
    use, seconds = find_use(outcome.layers, outcome.seconds_saved, cache), time.perf_counter() - begin
    return BuildReport(output, digest, fragments, outcome.compiled, tuple(dict.fromkeys(advice)), seconds, use)


def _check_arguments(output: Path, jobs: object, executor: object, cache: object, shard: object) -> None:
    for value, expected, what in (
        (jobs, int, "jobs must be a number"),
        (executor, Executor, "executor must be a concurrent.futures.Executor"),
        (cache, Cache, "cache must be a Cache, as open_cache returns"),
        (shard, Shard, "shard must be a Shard"),
    ):
        if value is not None:
            check_type(value, expected, what)
    if not output.parent.is_dir():
        what = f"the directory {output.parent} does not exist"
        raise BuildError(what, code="build-no-directory", where=str(output), hint="create it first")


def _announce(sources: RenderedFamilies, shard: Shard | None, observer: Observer) -> Iterator[Sequence[CompileRequest]]:
    """Yield batches of requests as they are rendered, checked, and tell the observer of them.

    While the first is compiled, the next is rendered.
    """
    batches = sources.by_family() if shard is None else [sources.select(shard)]
    checked, failed = 0, 0
    for number, batch in enumerate(batches):
        # Those of other shards too.
        check_reproducible(sources.rendered[checked:])
        sources.check_interfaces(sources.rendered[checked:])
        checked = len(sources.rendered)
        failures, failed = sources.failures[failed:], len(sources.failures)
        keys = [request.key for request in batch]
        observer.started([*keys, *(failure.rendered.key for failure in failures)])
        for failure in failures:
            observer.failed(failure.rendered.key, failure.error)
        if number == 0:
            observer.phase("compile")
        yield batch


@contextmanager
def _workers(executor: Executor | None, jobs: int | None) -> Iterator[Executor]:
    """Where to compile: a caller's executor, or processes of this build that end with it."""
    if executor is not None:
        yield executor
        return
    pool = ProcessExecutor(jobs or default_jobs())
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _raise_failures(
    sources: RenderedFamilies, outcome: Outcome, compiler: InterfaceCompiler, *, keep_going: bool
) -> None:
    """Raise the failures of all steps so far; a source behind an interface that does not compile is not to blame."""
    broken: dict[CompileConfig, BuildError | None] = {}
    failures = []
    for position, failure in outcome.failures:
        error, config = failure.error, outcome.requests[position].config
        if _may_be_broken(failure, config):
            if config not in broken:
                broken[config] = find_broken(compiler, config, config.interfaces)
            error = broken[config] or error
            if isinstance(error, CompileError):
                explain(error, failure.rendered, config)
        failures.append(Failure(failure.rendered, error))
    if failures and not keep_going:
        raise failures[0].error
    if failed := [*sources.failures, *failures]:
        tried = [failure.rendered for failure in sources.failures] + [request.rendered for request in outcome.requests]
        raise FailedFragmentsError(group_failures(failed, tried), len(tried))


def _may_be_broken(failure: Failure, config: CompileConfig) -> bool:
    """Return whether a source may fail because an interface does: there, where its own code begins, or at its end."""
    error, rendered = failure.error, failure.rendered
    if not isinstance(error, CompileError) or error.code != CompileError.code:
        return False
    first = _ERROR.search(error.log)
    if first is None or "At end of source: error" in error.log:
        return True
    text = own_texts(rendered, config).get(first[1])
    if text is None:
        return first[1] in config.own_closure(interfaces_first(config.interfaces)).headers
    lines = enumerate(map(bytes.strip, text.split(b"\n")), 1)
    return int(first[2]) <= next((n for n, line in lines if line and not line.startswith((b"#", b"//"))), 1)


@dataclass
class _Assembled:
    """The fragments of a build, their images by SHA-256, and advice."""

    fragments: list[Fragment] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    advice: dict[str, str] = field(default_factory=dict)  # by group
    structures: dict[tuple[str, str], bool] = field(default_factory=dict)  # family and name: whether a kernel takes it

    def add(self, rendered: RenderedSource, compiled: CompiledSource) -> None:
        """Create the fragment of a compiled source, as soon as it is compiled."""
        fragment, images = assemble(rendered, compiled)
        self.fragments.append(fragment)
        self.blobs.update(images)
        every = max((text for _, text in rendered.group.structures), key=len, default="")
        for name, _ in rendered.group.structures:
            is_field = len(re.findall(rf"(?<![\w:]){re.escape(name)}(?![\w:])", every)) > 1
            is_taken = is_field or any(is_same_type(name, parameter.type) for parameter in fragment.signature)
            self.structures[rendered.key.family, name] = is_taken or self.structures.get(
                (rendered.key.family, name), False
            )
        unknown = [p.name for number, p in enumerate(fragment.signature) if p.name == f"arg{number}"]
        if unknown and not rendered.params:
            kernel = f"{rendered.key.family}/{rendered.key.group}"
            text = (
                f"{kernel}: the kernel's parameters are called {', '.join(unknown)}, because their names are not known"
            )
            self.advice[kernel] = f"{text}; name them in params"

    def list_advice(self) -> Iterator[str]:
        """Yield the advice, sorted."""
        for _, text in sorted(self.advice.items()):
            yield text
        for (family, name), is_taken in sorted(self.structures.items()):
            if not is_taken:
                text = f'{family}: no kernel takes the structure of [struct."{name}"] by value'
                yield f"{text}; write its name as C++ has it, with namespaces, or remove it"


def _validate(sources: RenderedFamilies, made: Sequence[Fragment], faults: Faults) -> None:
    """Check the fragments of each family, and those that it uses, against each other."""
    for record in (each.with_used(sources.records) for each in sources.records.values()):
        fragments = record.select(made)
        check_interfaces(record, fragments, faults, sources.origins().get, sources.show)
        validate.check_layouts(fragments)
