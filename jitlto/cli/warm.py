"""``jitlto warm``: links plans ahead, into the user's cache or into a pack, on a machine with or without a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jitlto import config
from jitlto.cli.cache import pairs, places, size
from jitlto.cli.check import cause_as_dict, print_cause
from jitlto.cli.families import DB_HELP, find_family
from jitlto.cli.outcome import conclude
from jitlto.cli.output import print_json, progress
from jitlto.cli.paths import FILE, PATH
from jitlto.cli.targets import parse_targets
from jitlto.cuda import toolkit
from jitlto.errors import JitltoError, LoggedError, NoDeviceError, RegistryError
from jitlto.model.text import pluralize
from jitlto.model.versions import Architecture

if TYPE_CHECKING:  # what usage errors need not wait for
    from jitlto.runtime.family import KernelFamily
    from jitlto.runtime.linking.kernel_cache import CubinCache, LinkedKernel
    from jitlto.runtime.linking.link_key import Recipe
    from jitlto.runtime.planning.plan import Plan
    from jitlto.runtime.planning.recording import Request
    from jitlto.verify.findings import Cause


@dataclass(frozen=True, slots=True)
class _Job:
    """One plan to link; without ``arch`` for the current device, and ``family`` is why there is none, if so."""

    request: Request
    arch: Architecture | None
    family: KernelFamily | JitltoError

    def plan(self) -> Plan:
        if isinstance(self.family, JitltoError):
            raise self.family
        return self.request.plan(self.family, self.arch)


@dataclass(frozen=True, slots=True)
class _Work:
    """All that is asked for, and what of it is left out, with the reason."""

    jobs: list[_Job]
    left_out: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a job: its recipe and where the kernel is from, or what went wrong."""

    job: _Job
    arch: str | None
    recipe: Recipe | None
    database: Path | None
    layer: str
    error: JitltoError | None


_Get = Callable[["Plan"], "LinkedKernel"]


@click.command(epilog="Example: jitlto warm used.jsonl --arch sm_90,sm_100 --db search.fragdb -o search.pack")
@click.argument("target", metavar="FILE|[PACKAGE:]FAMILY")
@click.argument("settings", metavar="[NAME=VALUE]...", nargs=-1)
@click.option("--arch", "archs", multiple=True, metavar="ARCH[,ARCH]...", help="Targets, e.g. sm_90,sm_100.")
@click.option("--db", "database", type=PATH, help=DB_HELP)
@click.option("-o", "--output", type=FILE, help="Write a pack there.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Links at once [default: as cores and memory bear].")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def warm(
    target: str,
    settings: tuple[str, ...],
    archs: tuple[str, ...],
    database: Path | None,
    output: Path | None,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Link kernels ahead, so that programs find them. Needs no GPU if --arch is given.

    FILE is what JITLTO_RECORD wrote: the plans that a program used, each for its own architecture or for those of
    --arch. FAMILY stands for all its kernels, or those that agree with NAME=VALUE; NAME=A,B takes both values.

    They go into the user's cache, or with -o into a pack, which holds these kernels and no others. What is there
    already is not linked again.
    """

    def run() -> bool:
        targets = parse_targets(",".join(archs).split(",") if archs else (), "--arch")
        return _warm(target, settings, targets, database, output, jobs, as_json)

    conclude(run)


def _warm(
    target: str,
    settings: Sequence[str],
    targets: Sequence[Architecture],
    database: Path | None,
    output: Path | None,
    jobs: int | None,
    as_json: bool,
) -> bool:
    if Path(target).is_file() and settings:
        raise click.UsageError(f"{target} is a file, which NAME=VALUE does not restrict")
    cache = _cache(output)  # before a family is loaded, which goes without a cache that cannot be used, and says so
    if Path(target).is_file():
        work = _recorded(Path(target), targets, database)
    else:
        work = _of_family(target, settings, targets, database)
    begin = time.perf_counter()
    entries: dict[str, bytes] = {}
    get = _cache_get(cache) if output is None else _pack_get(cache, output, entries)
    outcomes = _link_all(work.jobs, get, jobs)
    if output is None:
        outcomes = _kept(outcomes, cache)
    elif entries:
        from jitlto.runtime.linking import packs

        try:
            packs.write(output, entries)
        except OSError as error:
            raise JitltoError(
                f"cannot be written: {error.strerror or error}",
                where=str(output),
                hint="make room there, or name a file elsewhere: -o PACK",
            ) from None
    causes = _causes(outcomes)
    if as_json:
        _print_as_json(work, outcomes, causes, output, time.perf_counter() - begin)
    else:
        _print(work, outcomes, causes, time.perf_counter() - begin)
        if output is not None:
            _print_pack(output, entries, outcomes)
    return not causes


def _device() -> list[None]:
    """The target that stands for the current device: which one that is, its fragments have a say in."""
    from jitlto.cuda import device

    try:
        device.current()
    except NoDeviceError as error:
        raise click.UsageError(f"give --arch, e.g. --arch sm_90, for {error.what}") from None
    return [None]


def _recorded(path: Path, targets: Sequence[Architecture], database: Path | None) -> _Work:
    """What a recorded file asks for; of a named database, no more than it holds."""
    from jitlto.runtime.discovery.registry import default
    from jitlto.runtime.planning import recording

    used = recording.read(path)
    if not used:
        raise JitltoError("holds no plan", where=str(path), hint="run the program with JITLTO_RECORD=FILE")
    held = default().open(database).families if database else None
    mine = [plan for plan in used if held is None or plan.request.family in held]
    if not mine:
        names = ", ".join(sorted({plan.request.family for plan in used}))
        raise JitltoError(
            f"holds none of the families in {path}: {names}",
            where=str(database),
            hint=f"they were recorded from {', '.join(sorted({plan.database for plan in used}))}",
        )
    families: dict[str, KernelFamily | JitltoError] = {}
    jobs = []
    for plan in mine:
        name = plan.request.family
        if name not in families:
            try:
                families[name] = find_family(name, database)
            except JitltoError as error:
                families[name] = error
        jobs += [_Job(plan.request, target, families[name]) for target in targets or [plan.arch]]
    return _Work(jobs, len(used) - len(mine), f"of families that {database} does not hold")


def _of_family(name: str, settings: Sequence[str], targets: Sequence[Architecture], database: Path | None) -> _Work:
    """The kernels of a family that agree with the settings, but for those that need callers' code."""
    from jitlto.model import enumeration
    from jitlto.runtime.planning.recording import Request

    try:
        family = find_family(name, database)
    except RegistryError as error:
        if ":" in name or ("/" not in name and "." not in name):
            raise
        raise JitltoError(
            "there is no such file, and no family of that name",
            where=name,
            hint="JITLTO_RECORD=FILE makes a file; a FAMILY is looked up in --db, or in JITLTO_DATABASE_PATH and "
            "installed packages",
        ) from error
    where: Sequence[Architecture | None] = targets or _device()
    wanted = _wanted(family, settings)
    jobs: list[_Job] = []
    waiting = 0
    for kernel in enumeration.kernels(family.index, enumeration.left_to_callers(family.record, family.index)):
        if not isinstance(kernel, enumeration.Kernel):
            continue
        # A parameter on which a kernel does not depend agrees with every value.
        if any(kernel.configuration.get(parameter) not in (None, *values) for parameter, values in wanted.items()):
            continue
        if kernel.left:
            waiting += 1
            continue
        request = Request(family.name, kernel.resolution.entry.key.group, kernel.configuration)
        jobs += [_Job(request, target, family) for target in where]
    if not jobs and not waiting:
        raise JitltoError("no kernel has these values together", where=name, hint="`jitlto ls DB` lists the fragments")
    return _Work(jobs, waiting, "that need callers' code; record a program that uses them")


def _wanted(family: KernelFamily, settings: Sequence[str]) -> dict[str, set[str]]:
    """The values that each parameter may have, as the family spells them."""
    from jitlto.model.configuration import normalise

    wanted: dict[str, set[str]] = {}
    for parameter, text in pairs(settings):
        # A comma may be part of a value, as in the name of a template's instance.
        several = [text] if text in family.parameters.get(parameter, ()) else text.split(",")
        for value in several:
            spelled = normalise({parameter: value}, family.parameters, family.name)
            wanted.setdefault(parameter, set()).update(spelled.values())
    return wanted


def _cache(output: Path | None) -> CubinCache:
    """The user's cache: to fill it, or, for a pack, to take from it what is there."""
    from jitlto.runtime.linking import kernel_cache
    from jitlto.runtime.linking.kernel_cache import CubinCache

    setting, place = config.current().cache, places()[0]
    if output is not None:
        _refuse_unwritable(output)
        return CubinCache(kernel_cache.default().store)
    if setting != "on":
        raise JitltoError(
            f"JITLTO_CACHE={setting}: nothing is added to the cache of linked kernels",
            where=str(place.directory),
            hint="leave JITLTO_CACHE unset, or write a pack: -o PACK",
        )
    # Linking is what this command is for, whatever JITLTO_MODE says.
    return CubinCache(place.open())


def _refuse_unwritable(output: Path) -> None:
    parent = output.absolute().parent
    if not parent.is_dir():
        raise JitltoError("cannot be written: its directory does not exist", where=str(output), hint="make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise JitltoError("cannot be written: its directory takes no files", where=str(output))


def _cache_get(cache: CubinCache) -> _Get:
    """Find a plan's kernel where programs find it, or link it into the user's cache."""
    return lambda plan: cache.kernel(plan.recipe, plan.link_anew, plan.database.location)


def _pack_get(cache: CubinCache, output: Path, entries: dict[str, bytes]) -> _Get:
    """Find a plan's kernel in the pack that is replaced or where programs do, or link it; add it to the entries."""
    from jitlto.runtime.linking.kernel_cache import pack, unpack
    from jitlto.runtime.linking.packs import Pack

    old: Pack | None = None
    if output.exists():
        try:
            if not output.is_file():
                raise ValueError("is no file")
            old = Pack(output.absolute())  # as a family's own packs are named, for what is said of it once
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise JitltoError(
                f"is no pack that can be replaced: it {error}", where=str(output), hint="remove it, or name another"
            ) from error

    def get(plan: Plan) -> LinkedKernel:
        digest = plan.digest
        payload = old.get(digest) if old else None
        found = unpack(digest, payload, 0.0, "pack") if payload else None
        kernel = found or cache.find(digest, plan.database.location) or plan.link_anew()
        entries[digest] = pack(plan.recipe, kernel)
        return kernel

    return get


def _link_all(jobs: Sequence[_Job], get: _Get, workers: int | None) -> list[_Outcome]:
    """Link all, several at once, each digest once: threads, for nvJitLink scales across them."""
    from jitlto.verify.link_all import default_jobs

    claimed: dict[str, _Job] = {}

    def outcome(job: _Job) -> _Outcome | None:
        try:
            plan = job.plan()
            if claimed.setdefault(plan.digest, job) is not job:
                return None
            return _Outcome(job, plan.target.sm, plan.recipe, plan.database.path, get(plan).layer, None)
        except JitltoError as error:
            # Tracebacks would hold the inputs of every link that failed.
            error.__cause__ = error.__context__ = None
            return _Outcome(job, job.arch and job.arch.sm, None, None, "", error.with_traceback(None))

    executor = ThreadPoolExecutor(workers or default_jobs(), thread_name_prefix="jitlto-warm")
    try:
        with progress("linking") as (started, done):
            started(len(jobs))
            futures = [executor.submit(outcome, job) for job in jobs]
            for future in as_completed(futures):
                done(future.result())
        return [found for future in futures if (found := future.result()) is not None]
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _kept(outcomes: Sequence[_Outcome], cache: CubinCache) -> list[_Outcome]:
    """The outcomes, with a failure for each kernel that was linked and is not in the cache now."""
    kept = []
    for outcome in outcomes:
        recipe, database = outcome.recipe, outcome.database
        if recipe and database and outcome.layer != "pack" and cache.find(recipe.digest, database) is None:
            kept.append(replace(outcome, layer="", error=_not_kept(cache)))
        else:
            kept.append(outcome)
    return kept


def _not_kept(cache: CubinCache) -> JitltoError:
    """Why a kernel that was linked is not in the cache: nothing can be written there, or its bound is too low."""
    refused = cache.store.refused if cache.store else None
    if refused:
        return JitltoError(
            f"was linked, and the cache has not kept it: {places()[0].directory}: {refused}",
            hint="make room there, name another directory with JITLTO_CACHE_DIR, or write a pack: -o PACK",
        )
    return JitltoError(
        f"was linked, and the cache has not kept it: its bound is too low ({size(places()[0].bound)})",
        hint="raise JITLTO_CACHE_SIZE, or write a pack: -o PACK",
    )


def _causes(outcomes: Sequence[_Outcome]) -> list[Cause]:
    from jitlto.verify.findings import Causes, Finding, Kind

    failed = [(place, outcome, outcome.error) for place, outcome in enumerate(outcomes) if outcome.error]
    families = {id(o.job.family): o.job.family for _, o, _ in failed if not isinstance(o.job.family, JitltoError)}
    causes = Causes(f for family in families.values() for f in family.database.fragments(family.name))
    for place, outcome, error in failed:
        request = outcome.job.request
        subject = f"{request.family}/{request.entry}" if request.entry else request.family
        finding = Finding(
            Kind.LINK,
            f"{error.where}: {error.what}" if error.where else error.what,
            error.hint,
            subject,
            request.configuration,
            error.log if isinstance(error, LoggedError) else "",
            outcome.arch,
        )
        causes.add(finding, place)
    return causes.all()


def _counts(outcomes: Sequence[_Outcome]) -> tuple[int, int, int]:
    """How many were linked, were there already, and failed."""
    failed = sum(outcome.error is not None for outcome in outcomes)
    linked = sum(outcome.layer == "link" for outcome in outcomes)
    return linked, len(outcomes) - linked - failed, failed


def _print(work: _Work, outcomes: Sequence[_Outcome], causes: Sequence[Cause], seconds: float) -> None:
    for cause in causes:
        print_cause("linking", cause)
    linked, found, failed = _counts(outcomes)
    archs = ", ".join(dict.fromkeys(outcome.arch or "the current device" for outcome in outcomes))
    state = f"{linked} linked, {found} there already" + (f", {failed} failed" if failed else "")
    click.echo(f"{pluralize(len(outcomes), 'kernel')} for {archs}: {state}" if outcomes else "no kernel to link")
    if work.left_out:
        click.echo(f"left out {pluralize(work.left_out, 'plan')} {work.why}")
    click.echo(f"nvJitLink {toolkit.nvjitlink_version()}, {seconds:.1f} s")


def _print_pack(output: Path, entries: Mapping[str, bytes], outcomes: Sequence[_Outcome]) -> None:
    if not entries:
        click.echo(f"{output}: not written, for there is nothing to put into it")
        return
    click.echo(f"{output}: {pluralize(len(entries), 'kernel')}, {size(output.stat().st_size)}")
    for stem in sorted({outcome.database.stem for outcome in outcomes if outcome.database}):
        if not (output.name.startswith(f"{stem}.") and output.suffix == ".pack"):
            click.echo(f"  to be found, it has to lie beside {stem}.fragdb as {stem}.pack or {stem}.*.pack")


def _print_as_json(
    work: _Work, outcomes: Sequence[_Outcome], causes: Sequence[Cause], output: Path | None, seconds: float
) -> None:
    linked, found, failed = _counts(outcomes)
    print_json(
        {
            "linked": linked,
            "found": found,
            "failed": failed,
            "left_out": work.left_out,
            "pack": str(output) if output and linked + found else None,
            "nvjitlink": str(toolkit.nvjitlink_version()),
            "seconds": round(seconds, 3),
            "kernels": [
                {
                    "kernel": outcome.recipe.kernel,
                    "configuration": dict(outcome.recipe.configuration),
                    "arch": outcome.arch,
                    "digest": outcome.recipe.digest,
                    "layer": outcome.layer,
                }
                for outcome in outcomes
                if outcome.recipe and not outcome.error
            ],
            "failures": [cause_as_dict(cause) for cause in causes],
        }
    )
