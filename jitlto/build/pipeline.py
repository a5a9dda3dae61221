"""The whole build: load, render, compile, assemble, validate, write."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from jitlto.build import shards, validate
from jitlto.build.assemble import assemble
from jitlto.build.cache import rebuild_reason
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.compilers.base import Toolchain, find_toolchain
from jitlto.build.execution import transport
from jitlto.build.execution.costs import costs, estimate
from jitlto.build.execution.dask import DaskExecutor
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.execution.scheduler import CompileRequest, Outcome, Scheduler
from jitlto.build.execution.workers import ProcessExecutor, default_jobs
from jitlto.build.failures import FailedFragmentsError, Failure, group_failures
from jitlto.build.shards import Shard
from jitlto.build.templates import RenderedSource, render_family
from jitlto.cuda import nvrtc
from jitlto.errors import BuildError, FamilyError, JitltoError
from jitlto.model.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey
from jitlto.model.headers import HeaderSearch
from jitlto.storage import database
from jitlto.storage.declaration import FamilyDeclaration

_CLOCK = re.compile(rb"\b__(?:DATE|TIME|TIMESTAMP)__\b")


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What a build did.

    Parameters
    ----------
    path : Path
        The database.
    digest : str
        Its logical digest.
    fragments : tuple of Fragment
        All that it holds, sorted by key.
    compiled : int
        How many compiles were run; the other fragments came from the cache or share a source.
    advice : tuple of str
        What is allowed but probably not meant.
    seconds : float
        Wall time.
    """

    path: Path
    digest: str
    fragments: tuple[Fragment, ...]
    compiled: int
    advice: tuple[str, ...]
    seconds: float


class Project:
    """Families that are built together, rendered, with how each is compiled.

    Matrices are parsed, templates rendered and headers read once, whatever is then asked of it.

    Parameters
    ----------
    families : sequence of FamilyDeclaration
        With distinct names.
    keep_going : bool
        Keep what cannot be rendered in ``failures`` instead of raising the first.

    Raises
    ------
    JitltoError
        If a matrix, a template or an interface is invalid, or a compiler is missing.
    """

    def __init__(self, families: Sequence[FamilyDeclaration], *, keep_going: bool = False) -> None:
        names = [family.name for family in families]
        for family in families:
            if names.count(family.name) > 1:
                raise FamilyError(
                    f"duplicate family {family.name!r}",
                    code="family-duplicate",
                    where=str(family.path),
                    hint="give each family a name of its own",
                )
        toolchains: dict[str, Toolchain] = {}
        self.requests: list[CompileRequest] = []
        self.failures: list[Failure] = []
        self.advice: list[str] = []
        for family in families:
            toolchain = toolchains.get(family.toolchain) or find_toolchain(family.toolchain)
            toolchains[family.toolchain] = toolchain
            search, own = HeaderSearch([*family.include, *toolchain.header_roots()]), HeaderSearch(family.include)
            options, images = family.compiler_options(), family.images
            config = CompileConfig(toolchain, search, own, family.architectures, options, images)
            on_error = self._add_failure if keep_going else None
            rendered = render_family(family, on_error=on_error, on_warning=self.advice.append)
            self.requests += [CompileRequest(source, config) for source in rendered]
        self.records = {family.name: family_record(family) for family in families}

    def _add_failure(self, rendered: RenderedSource, error: JitltoError) -> None:
        self.failures.append(Failure(rendered, error))

    @cached_property
    def keys(self) -> tuple[FragmentKey, ...]:
        """All fragments, in the order of rendering."""
        return tuple(request.rendered.key for request in self.requests)

    def check_reproducible(self) -> None:
        """Check that neither a template nor a header of the families uses the clock.

        Raises
        ------
        BuildError
            At the first ``__DATE__``, ``__TIME__`` or ``__TIMESTAMP__``.
        """
        checked: set[tuple[str, str]] = set()  # headers that an earlier source includes
        for request in self.requests:
            rendered, source = request.rendered, request.config.own_closure(request.rendered.source)
            headers = {n: text for n, text in source.headers.items() if (rendered.key.family, n) not in checked}
            checked.update((rendered.key.family, name) for name in headers)
            for name, text in ((str(rendered.group.template), source.text), *headers.items()):
                if match := _CLOCK.search(text):
                    raise BuildError(
                        f"{match[0].decode()} makes every build different",
                        code="build-not-reproducible",
                        where=f"{name}:{text[: match.start()].count(bytes([10])) + 1}",
                        hint="pass the value through the matrix, or as an option -DNAME=value",
                    )

    def source_digests(self) -> dict[FragmentKey, str]:
        """What the author wrote of each fragment, see :func:`jitlto.build.shards.digest_source`."""
        return {r.rendered.key: shards.digest_source(r.rendered, r.config) for r in self.requests}

    def toolchain_identities(self) -> dict[str, str]:
        """The identity of each family's compiler."""
        return {r.rendered.key.family: r.config.toolchain.identity for r in self.requests}

    def shard_items(self, recorded: Mapping[str, int]) -> list[shards.ShardItem]:
        """What :mod:`~jitlto.build.shards` balances: each fragment with its compile and cost.

        Parameters
        ----------
        recorded : mapping of str to int
            Recorded costs, as :func:`jitlto.build.execution.costs.read_costs` returns them.
        """
        estimates = {
            str(r.rendered.key): estimate(r.config.closure(r.rendered.source), len(r.config.architectures))
            for r in self.requests
        }
        cost = costs(estimates, recorded)
        return [
            shards.ShardItem(key, f"{key.family} {r.config.source_key(r.rendered.source)}", cost[str(key)])
            for key, r in zip(self.keys, self.requests, strict=True)
        ]

    def select(self, shard: Shard | None, recorded: Mapping[str, int]) -> list[CompileRequest]:
        """The requests of one shard, or all."""
        if shard is None:
            return self.requests
        keys = shards.select_fragments(self.shard_items(recorded), shard)
        return [request for request in self.requests if request.rendered.key in keys]

    def find_uncached(self, cache: Cache | None) -> list[FragmentKey]:
        """The fragments that a build would compile."""
        return [request.rendered.key for request in self.requests if not _is_cached(request, cache)]

    def explain_rebuild(self, key: FragmentKey, cache: Cache | None) -> list[str]:
        """Explain why a fragment would be compiled, field by field.

        Raises
        ------
        BuildError
            If no family has such a fragment.
        """
        request = next((request for request in self.requests if request.rendered.key == key), None)
        if request is None:
            raise BuildError(
                f"no fragment {key}",
                code="build-unknown-fragment",
                hint="`jitlto build --dry-run` lists the fragments of a build",
            )
        if cache is None:
            return ["there is no cache: everything is compiled"]
        now: dict[str, str | dict[str, str]] = {**request.config.fields(request.rendered.source)}
        before = cache.history(key)
        if before is not None:
            headers = before.get("headers", {})
            now["headers"] = request.config.current_headers(headers) if isinstance(headers, dict) else {}
        return rebuild_reason.explain(before, now, is_cached=_is_cached(request, cache))


def _is_cached(request: CompileRequest, cache: Cache | None) -> bool:
    if cache is None:
        return False
    return cache.find(request.config.source_key(request.rendered.source), request.config) is not None


def build(
    families: Sequence[FamilyDeclaration] | Project,
    output: Path,
    *,
    jobs: int | None = None,
    executor: Executor | None = None,
    cache: Cache | None = None,
    observer: Observer = NO_OBSERVER,
    keep_going: bool = False,
    shard: Shard | None = None,
    recorded: Mapping[str, int] | None = None,
) -> BuildReport:
    """Build families into one database. The file appears when everything has held, or not at all.

    Parameters
    ----------
    families : sequence of FamilyDeclaration, or Project
        With distinct names.
    output : Path
        The database file.
    jobs : int, optional
        Compilers at once; by default as many as cores and memory allow, or as many as ``executor`` has workers.
    executor : concurrent.futures.Executor, optional
        Where to compile; by default worker processes of this build.
    cache : Cache, optional
        Where compiled sources are looked up and stored.
    observer : Observer
        Notified of what happens.
    keep_going : bool
        Compile all that compiles before the failures are reported, together.
    shard : Shard, optional
        Build this part only; :func:`jitlto.build.merge.merge_databases` joins the parts.
    recorded : mapping of str to int, optional
        Costs by which shards are balanced.

    Returns
    -------
    BuildReport

    Raises
    ------
    JitltoError
        The first thing that does not hold, from the matrix to the file; with ``keep_going`` a
        :class:`~jitlto.build.failures.FailedFragmentsError` for all that does not compile.
    """
    begin = time.perf_counter()
    if not output.parent.is_dir():
        raise BuildError(
            f"the directory {output.parent} does not exist",
            code="build-no-directory",
            where=str(output),
            hint="create it first",
        )
    observer.phase("render")
    project = families if isinstance(families, Project) else Project(families, keep_going=keep_going)
    database.check_writable(output)
    project.check_reproducible()
    requests = project.select(shard, recorded or {})
    observer.started([request.rendered.key for request in requests], cache.costs() if cache else None)
    observer.phase("compile")
    outcome = _compile(requests, begin, jobs, executor, cache, observer, keep_going=keep_going)
    observer.phase("check")
    made = _assemble(project, requests, outcome, keep_going=keep_going)
    advice, part = _validate(project, made, shard)
    observer.phase("write")
    fragments = tuple(sorted(made.fragments, key=lambda fragment: fragment.key))
    digest = database.write(output, list(project.records.values()), fragments, made.blobs, part=part)
    if cache is not None:
        cache.store.prune()
    return BuildReport(output, digest, fragments, outcome.compiled, advice, time.perf_counter() - begin)


def _compile(
    requests: Sequence[CompileRequest],
    begin: float,
    jobs: int | None,
    executor: Executor | None,
    cache: Cache | None,
    observer: Observer,
    *,
    keep_going: bool,
) -> Outcome:
    pool = executor or ProcessExecutor(jobs or default_jobs())
    try:
        if isinstance(pool, DaskExecutor):  # before anything is compiled; each job is checked again
            pool.check({r.config.toolchain.name: r.config.toolchain.identity for r in requests})
        submit = partial(transport.submit, pool, run=transport.compile_job)
        width = jobs or transport.capacity(pool)
        outcome = Scheduler(submit, width, cache, observer, begin, keep_going=keep_going).run(requests)
    finally:
        if executor is None:
            pool.shutdown(cancel_futures=True)
    if outcome.failures and not keep_going:
        raise outcome.failures[0][1].error
    return outcome


@dataclass
class _Assembled:
    """The fragments of a build, the bytes of their images by SHA-256, and the family's headers that each includes."""

    fragments: list[Fragment] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    includes: dict[FragmentKey, frozenset[str]] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)


def _assemble(
    project: Project, requests: Sequence[CompileRequest], outcome: Outcome, *, keep_going: bool
) -> _Assembled:
    """Make fragments of compiled sources; raise what has failed up to here."""
    made = _Assembled()
    failed = [*project.failures, *(failure for _, failure in outcome.failures)]
    for position, compiled in sorted(outcome.sources.items()):
        rendered, config = requests[position].rendered, requests[position].config
        try:
            fragment, images = assemble(rendered, compiled)
        except BuildError as error:
            if not keep_going:
                raise
            failed.append(Failure(rendered, error))
            continue
        made.fragments.append(fragment)
        made.blobs.update(images)
        made.includes[fragment.key] = frozenset(config.own_closure(rendered.source).headers)
        if nvrtc.NOT_PROBED in compiled.log:
            made.advice.append(f"{fragment.key}: {nvrtc.NOT_PROBED}")
    if failed:
        sources = [failure.rendered for failure in project.failures] + [request.rendered for request in requests]
        raise FailedFragmentsError(group_failures(failed, sources), len(sources))
    return made


def _validate(project: Project, made: _Assembled, shard: Shard | None) -> tuple[tuple[str, ...], PartRecord | None]:
    """Check the fragments of each family against each other, which a shard leaves to the merge."""
    records = list(project.records.values())
    advice = [*project.advice, *sorted(made.advice)]
    if shard is not None:
        digests, identities = project.source_digests(), project.toolchain_identities()
        part = shards.make_part_record(shard, digests, records, made.includes, identities, advice)
        return tuple(advice), part
    for record in records:
        own = [fragment for fragment in made.fragments if fragment.key.family == record.name]
        own.sort(key=lambda fragment: fragment.key)
        validate.check_interface_includes(record, own, made.includes)
        advice += validate.check_fragments(record, own)
    return tuple(advice), None


def family_record(family: FamilyDeclaration) -> FamilyRecord:
    """Return what the run side must know of a family: its groups, and the headers of its own behind its interfaces.

    Raises
    ------
    FamilyError
        If an interface header is not in the family's include directories.
    """
    search = HeaderSearch(family.include)
    for group in family.groups:
        if group.interface and search.find(group.interface) is None:
            raise FamilyError(
                f"interface {group.interface!r} does not exist",
                code="family-interface",
                where=f"{family.path} [{group.role}.{group.name}]",
                hint=f"looked for in {', '.join(map(str, family.include))}",
            )
    include = "".join(f'#include "{name}"\n' for name in family.interfaces)
    headers = search.closure(include.encode()).headers
    return FamilyRecord(
        family.name,
        family.source_options(),
        family.link,
        family.architectures,
        tuple(GroupRecord(g.name, g.role, g.key, g.interface, g.template is None) for g in family.groups),
        tuple(sorted((name, text.decode("utf-8", "surrogateescape")) for name, text in headers.items())),
    )
