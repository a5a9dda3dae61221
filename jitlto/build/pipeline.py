"""The whole build: from families to a fragment database."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jitlto.build import failures, shards, validate
from jitlto.build.assemble import assemble
from jitlto.build.cache import rebuild_reason as explaining
from jitlto.build.cache.cache import Cache
from jitlto.build.cache.keys import Recipe
from jitlto.build.compilers import base
from jitlto.build.compilers.base import Toolchain
from jitlto.build.compilers.compiled_source import Job
from jitlto.build.execution import transport
from jitlto.build.execution.compile_result import Report, compile_reported
from jitlto.build.execution.costs import costs as costs_of
from jitlto.build.execution.costs import estimate
from jitlto.build.execution.dask import DaskExecutor
from jitlto.build.execution.events import NO_OBSERVER, Observer
from jitlto.build.execution.scheduler import Engine, Outcome, Request
from jitlto.build.execution.workers import ProcessExecutor, default_jobs
from jitlto.build.shards import Shard
from jitlto.build.templates import RenderedSource, render_family
from jitlto.cuda import nvrtc
from jitlto.errors import BuildError, FamilyError, JitltoError
from jitlto.model.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.model.fragment import Fragment, FragmentKey
from jitlto.model.headers import HeaderSearch
from jitlto.storage import database
from jitlto.storage.declaration import Family

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

    Parameters
    ----------
    families : sequence of Family
        With distinct names.
    keep_going : bool
        Keep what cannot be rendered in ``failures`` instead of raising the first.

    Raises
    ------
    JitltoError
        If a matrix, a template or an interface does not hold, or a compiler is missing.
    """

    def __init__(self, families: Sequence[Family], *, keep_going: bool = False) -> None:
        names = [family.name for family in families]
        for family in families:
            if names.count(family.name) > 1:
                raise FamilyError(
                    f"two families are called {family.name!r}",
                    where=str(family.path),
                    hint="give each a name of its own",
                )
        compilers: dict[str, Toolchain] = {}
        self.requests: list[Request] = []
        self.failures: list[failures.Failure] = []
        self.advice: list[str] = []
        for family in families:
            compiler = compilers.get(family.toolchain) or base.find(family.toolchain)
            compilers[family.toolchain] = compiler
            search = HeaderSearch([*family.include, *compiler.header_roots()])
            own = HeaderSearch(family.include)
            recipe = Recipe(compiler, search, own, family.architectures, family.compiler_options(), family.images)
            on_error = self._keep if keep_going else None
            sources = render_family(family, on_error=on_error, on_warning=self.advice.append)
            self.requests += [Request(rendered, recipe) for rendered in sources]
        self.records = {family.name: family_record(family) for family in families}

    def _keep(self, rendered: RenderedSource, error: JitltoError) -> None:
        self.failures.append(failures.Failure(rendered, error))

    @cached_property
    def keys(self) -> tuple[FragmentKey, ...]:
        """All fragments, in the order of rendering."""
        return tuple(request.rendered.key for request in self.requests)

    def refuse_clock(self) -> None:
        """Refuse what gives other bytes at every build, in the templates and in the families' own headers.

        Raises
        ------
        BuildError
            At the first ``__DATE__``, ``__TIME__`` or ``__TIMESTAMP__``.
        """
        clean: set[tuple[str, str]] = set()  # headers that a source before has reached
        for request in self.requests:
            rendered = request.rendered
            closure = request.recipe.own.closure(rendered.source.encode())
            headers = {n: t for n, t in closure.headers.items() if (rendered.key.family, n) not in clean}
            clean.update((rendered.key.family, name) for name in headers)
            for name, text in ((str(rendered.group.template), closure.text), *headers.items()):
                if match := _CLOCK.search(text):
                    raise BuildError(
                        f"{match[0].decode()} makes every build another one",
                        where=f"{name}:{text[: match.start()].count(bytes([10])) + 1}",
                        hint="pass what is wanted through the matrix, or as an option -DNAME=value",
                    )

    def contents(self) -> dict[FragmentKey, str]:
        """What the author wrote of each fragment, see :func:`jitlto.build.shards.digest_source`."""
        return {r.rendered.key: shards.digest_source(r.rendered, r.recipe) for r in self.requests}

    def identities(self) -> dict[str, str]:
        """The identity of each family's compiler."""
        return {request.rendered.key.family: request.recipe.toolchain.identity for request in self.requests}

    def items(self, recorded: Mapping[str, int]) -> list[shards.ShardItem]:
        """What :mod:`~jitlto.build.shards` balances: each fragment with its compile and cost.

        Parameters
        ----------
        recorded : mapping of str to int
            Recorded costs, as :func:`jitlto.build.execution.costs.read_costs` gives them.
        """
        estimates = {}
        for request in self.requests:
            closure = request.recipe.search.closure(request.rendered.source.encode())
            estimates[str(request.rendered.key)] = estimate(closure, len(request.recipe.architectures))
        cost = costs_of(estimates, recorded)
        return [
            shards.ShardItem(
                request.rendered.key,
                f"{request.rendered.key.family} {request.recipe.first(request.rendered.source)}",
                cost[str(request.rendered.key)],
            )
            for request in self.requests
        ]

    def missing(self, cache: Cache | None) -> list[FragmentKey]:
        """The fragments that a build would compile."""
        return [
            r.rendered.key
            for r in self.requests
            if cache is None or cache.find(r.recipe.first(r.rendered.source), r.recipe) is None
        ]

    def explain(self, key: FragmentKey, cache: Cache | None) -> list[str]:
        """Why a fragment would be compiled, field by field.

        Raises
        ------
        BuildError
            If no family has such a fragment.
        """
        request = next((r for r in self.requests if r.rendered.key == key), None)
        if request is None:
            raise BuildError(f"no fragment {key}", hint="`jitlto build --dry-run` lists the fragments of a build")
        if cache is None:
            return ["there is no cache: everything is compiled"]
        source = request.rendered.source
        now: dict[str, str | Mapping[str, str]] = {**request.recipe.fields(source)}
        before = cache.history(key)
        if before is not None:
            known = before.get("headers", {})
            now["headers"] = request.recipe.states(known) if isinstance(known, dict) else {}
        differences, none = explaining.explain(before, now), explaining.explain(now, now)
        found = cache.find(request.recipe.first(source), request.recipe) is not None
        if found and before is not None and differences != none:
            return [*differences, "but the cache has it from an earlier build: it would be taken from there"]
        if not found and differences == none:
            return ["nothing differs, but the cache has lost it: removed for space, or damaged"]
        return differences


def build(
    families: Sequence[Family] | Project,
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
    families : sequence of Family, or Project
        With distinct names.
    output : Path
        The database file.
    jobs : int, optional
        Compilers at once; by default as many as cores and memory bear, or as many as ``executor`` has workers.
    executor : concurrent.futures.Executor, optional
        Where to compile; by default worker processes of this build.
    cache : Cache, optional
        Where units are looked for and kept.
    observer : Observer
        Told what happens.
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
        raise BuildError(f"the directory {output.parent} does not exist", where=str(output), hint="create it first")
    observer.phase("render")
    project = families if isinstance(families, Project) else Project(families, keep_going=keep_going)
    database.check_writable(output)
    project.refuse_clock()
    requests = project.requests
    if shard is not None:
        mine = shards.select_fragments(project.items(recorded or {}), shard)
        requests = [request for request in requests if request.rendered.key in mine]
    observer.started([request.rendered.key for request in requests], cache.costs() if cache else None)
    observer.phase("compile")
    outcome = _compile(requests, begin, jobs, executor, cache, observer, keep_going=keep_going)
    observer.phase("check")
    failed = [*project.failures, *(failure for _, failure in outcome.failures)]
    fragments, blobs, includes = [], {}, {}
    for position, unit in sorted(outcome.units.items()):
        rendered = requests[position].rendered
        try:
            fragment, images = assemble(rendered, unit)
        except BuildError as error:
            if not keep_going:
                raise
            failed.append(failures.Failure(rendered, error))
            continue
        fragments.append(fragment)
        includes[fragment.key] = requests[position].recipe.own.reachable(rendered.source.encode())
        blobs.update(images)
    if failed:
        sources = [failure.rendered for failure in project.failures] + [request.rendered for request in requests]
        raise failures.FailedFragmentsError(failures.group(failed, sources), len(sources))
    fragments.sort(key=lambda fragment: fragment.key)
    unseen = sorted(requests[p].rendered.key for p, unit in outcome.units.items() if nvrtc.NOT_PROBED in unit.log)
    advice = [*project.advice, *(f"{key}: {nvrtc.NOT_PROBED}" for key in unseen)]
    part: PartRecord | None = None
    records = list(project.records.values())
    if shard is None:
        for record in records:
            own = [fragment for fragment in fragments if fragment.key.family == record.name]
            validate.check_interface_includes(record, own, includes)
            advice += validate.check_fragments(record, own)
    else:
        part = shards.make_part_record(shard, project.contents(), records, includes, project.identities(), advice)
    observer.phase("write")
    digest = database.write(output, records, fragments, blobs, part=part)
    if cache is not None:
        cache.store.prune()
    return BuildReport(output, digest, tuple(fragments), outcome.compiled, tuple(advice), time.perf_counter() - begin)


def _compile(
    requests: Sequence[Request],
    begin: float,
    jobs: int | None,
    executor: Executor | None,
    cache: Cache | None,
    observer: Observer,
    *,
    keep_going: bool,
) -> Outcome:
    own = None if executor else ProcessExecutor(jobs or default_jobs())
    pool = executor or own
    assert pool is not None  # noqa: S101 - one of the two
    width = jobs or transport.capacity(pool)

    def submit(job: Job) -> Future[Report]:
        return transport.submit(pool, job, compile_reported)

    engine = Engine(submit, width, cache, observer, begin, keep_going=keep_going)
    if isinstance(pool, DaskExecutor):  # before anything is compiled; each job is checked again
        pool.check({r.recipe.toolchain.name: r.recipe.toolchain.identity for r in requests})
    try:
        outcome = engine.run(requests)
    finally:
        if own is not None:
            own.shutdown(cancel_futures=True)
    if outcome.failures and not keep_going:
        raise outcome.failures[0][1].error
    return outcome


def family_record(family: Family) -> FamilyRecord:
    """What the run side must know of a family: its groups, and the family's own headers behind its interfaces.

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
                where=f"{family.path} [{group.role}.{group.name}]",
                hint=f"it is looked for in {', '.join(map(str, family.include))}",
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
