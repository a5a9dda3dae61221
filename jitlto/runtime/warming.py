"""Linking ahead of time: recorded kernels, or all of a family, into the user's cache and shared stores, or a pack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jitlto.base import config, files
from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.base.user_caches import user_caches
from jitlto.base.versions import Architecture
from jitlto.link import packs, requests
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.packs import Pack
from jitlto.link.parallel import run_parallel
from jitlto.link.sources import CONTENTS, KERNELS, REQUESTS, SharedKernels
from jitlto.plan import enumeration
from jitlto.plan.cache_entry import LinkKey
from jitlto.plan.configuration import normalize_configuration
from jitlto.plan.plan import Plan, Request
from jitlto.runtime import recording, session
from jitlto.runtime.family import KernelFamily

_FLUSH, _STALL = 60.0, 5.0  # seconds to wait for what is written to shared stores, in all and for one of them


@dataclass(frozen=True, slots=True)
class WarmJob:
    """One plan to link, for the current device if ``arch`` is None; ``family`` is an error if it was not found."""

    request: Request
    arch: Architecture | None
    family: KernelFamily | JitltoError

    def plan(self) -> Plan:
        if isinstance(self.family, JitltoError):
            raise self.family
        return self.family.plan_request(self.request, self.arch)


@dataclass(frozen=True, slots=True)
class WarmJobs:
    """Plans to link, and the number of plans left out, with the reason."""

    jobs: list[WarmJob]
    left_out: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WarmOutcome:
    """The outcome of a job: the kernel's key, database and layer (``link`` if it was linked now), or an error."""

    job: WarmJob
    arch: str | None
    key: LinkKey | None = None
    database: Path | None = None
    layer: str = ""
    error: JitltoError | None = None


@dataclass(frozen=True, slots=True)
class WarmResult:
    """All outcomes, each digest once.

    Args:
        outcomes: Of each digest one.
        packed: Kernels in the written pack.
        shared: Kernels that were written to shared stores, which had lacked them.
        unshared: Kernels that could not be written to one, at least.
    """

    outcomes: list[WarmOutcome] = field(default_factory=list)
    packed: int = 0
    shared: int = 0
    unshared: int = 0

    @property
    def failures(self) -> list[WarmOutcome]:
        return [outcome for outcome in self.outcomes if outcome.error]

    @property
    def linked(self) -> int:
        return sum(outcome.layer == "link" for outcome in self.outcomes)

    @property
    def found(self) -> int:
        return len(self.outcomes) - self.linked - len(self.failures)


def recorded_jobs(
    path: Path, find: Callable[[str], KernelFamily], targets: Sequence[Architecture] = (), database: Path | None = None
) -> WarmJobs:
    """Return jobs for the plans in a file that ``JITLTO_RECORD`` wrote.

    Args:
        path: The file.
        find: Finds a family by name; an error that it raises becomes the outcome of the family's jobs.
        targets: Target architectures for all plans; by default each plan's own.
        database: If given, plans of families that this database does not hold are left out.

    Raises:
        JitltoError: If the file holds no plan, or no plan of the database's families.
    """
    used = recording.read(path)
    if not used:
        raise JitltoError(
            "the file holds no plan",
            code="jitlto-nothing-recorded",
            where=str(path),
            hint=f"record one: JITLTO_RECORD={path} PROGRAM",
        )
    held = session.default.registry.open(database).families if database else None
    own = [plan for plan in used if held is None or plan.request.family in held]
    if not own:
        names = ", ".join(sorted({plan.request.family for plan in used}))
        raise JitltoError(
            f"holds none of the families in {path}: {names}",
            code="jitlto-nothing-recorded",
            where=str(database),
            hint=f"they were recorded from {', '.join(sorted({plan.database for plan in used}))}",
        )
    families: dict[str, KernelFamily | JitltoError] = {}
    jobs = []
    for plan in own:
        name = plan.request.family
        if name not in families:
            try:
                families[name] = find(name)
            except JitltoError as error:
                families[name] = error
        jobs += [WarmJob(plan.request, target, families[name]) for target in targets or [plan.arch]]
    return WarmJobs(jobs, len(used) - len(own), f"of families that {database} does not hold")


def family_jobs(
    family: KernelFamily, settings: Iterable[tuple[str, str]], targets: Sequence[Architecture | None]
) -> WarmJobs:
    """Return jobs for the kernels of a family that need no caller's code.

    Args:
        family: The family.
        settings: Parameters and their allowed values, separated by commas; values of a repeated name add up. The name
            ``entry`` stands for entrypoints.
        targets: Target architectures; None stands for the current device.

    Raises:
        JitltoError: If no kernel has these values.
    """
    allowed = _allowed_values(family, settings)
    jobs: list[WarmJob] = []
    waiting = 0
    for kernel in enumeration.enumerate_kernels(
        family.index, enumeration.find_user_symbols(family.record, family.index)
    ):
        if not isinstance(kernel, enumeration.Kernel):
            continue
        # A parameter on which a kernel does not depend agrees with every value.
        own = {"entry": kernel.resolution.entry.key.group, **kernel.configuration}
        if any(own.get(name) not in (None, *values) for name, values in allowed.items()):
            continue
        if kernel.user_symbols:
            waiting += 1
            continue
        request = Request(family.name, kernel.resolution.entry.key.group, kernel.configuration)
        jobs += [WarmJob(request, target, family) for target in targets]
    if not jobs and not waiting:
        raise JitltoError(
            "no kernel has this combination of values",
            code="jitlto-no-such-kernel",
            where=family.name,
            hint="list the fragments: jitlto ls DB",
        )
    return WarmJobs(jobs, waiting, "that need callers' code; record a program that uses them")


def _allowed_values(family: KernelFamily, settings: Iterable[tuple[str, str]]) -> Mapping[str, set[str]]:
    allowed: dict[str, set[str]] = {}
    known = {**family.parameters, "entry": family.entrypoints}
    for parameter, text in settings:
        # A comma may be part of a value, as in a template's arguments.
        several = [text] if text in known.get(parameter, ()) else text.split(",")
        for value in several:
            spelled = normalize_configuration({parameter: value}, known, family.name)
            allowed.setdefault(parameter, set()).update(spelled.values())
    return allowed


class WarmTarget:
    """The destination of kernels: the user's cache and the shared stores, and the pack at ``output``.

    The pack then holds exactly these kernels, and shared stores are only read.

    Create it before loading a family: it raises an error for an unusable cache, but loading only warns.

    Args:
        output: The pack; None for the caches alone.

    Raises:
        JitltoError: If the cache is off or cannot be used and there is no pack, or the pack cannot be written.
    """

    def __init__(self, output: Path | None = None) -> None:
        self._output = output
        own = session.default.kernel_cache
        if output is not None:
            _check_pack(output)
        store = _writable_cache() if output is None else own.store
        shared = SharedKernels(config.current(), readonly=output is not None) if own.shared else None
        # Linking is allowed even with JITLTO_MODE=cached, because that is this command's purpose.
        self._cache = KernelCache(store, shared=shared)
        self._before = shared.stores.statistics if shared is not None else None

    def link(
        self, jobs: Sequence[WarmJob], workers: int | None = None, on_job: Callable[[int], object] = lambda _: None
    ) -> WarmResult:
        """Link all jobs in parallel, each digest once; kernels that the destination already holds are not linked again.

        Raises:
            JitltoError: If the pack cannot be written.
        """
        claimed: dict[str, int] = {}  # digest → position of the job that links it
        plans: dict[int, Plan] = {}
        kernels: dict[str, bytes] = {}

        def work(item: tuple[int, WarmJob]) -> WarmOutcome | None:
            position, job = item
            plan = plans[position] = job.plan()
            if claimed.setdefault(plan.digest, position) != position:  # setdefault is atomic
                return None
            key, database, shared = plan.link_key, plan.database, self._cache.shared
            kernel = self._cache.get_or_link(key, partial(plan.link, use_cache=False), database.location)
            kernels[key.digest] = key.encode(kernel)
            if shared is not None and kernel.layer not in ("link", "store"):
                shared.put(key.digest, kernels[key.digest])
            plan.services.kernel_cache.warn(plan.chosen, kernel)
            outcome = WarmOutcome(job, plan.target.sm, key, database.path, kernel.layer)
            kept = self._output or kernel.layer == "pack" or self._cache.find(key.digest, database.location)
            return outcome if kept else replace(outcome, layer="", error=self._not_kept())

        ordered: dict[int, WarmOutcome] = {}
        for position, (_, job), outcome in run_parallel(work, list(enumerate(jobs)), workers):
            on_job(position)
            if isinstance(outcome, JitltoError):
                ordered[position] = WarmOutcome(job, job.arch and job.arch.sm, error=outcome)
            elif outcome is not None:
                ordered[position] = outcome
        packed = len(kernels) if self._output else 0
        if self._output and kernels:
            self._write(self._output, [(jobs[position], plans[position]) for position in sorted(plans)], kernels)
        return WarmResult([ordered[position] for position in sorted(ordered)], packed, *self._flushed())

    def _flushed(self) -> tuple[int, int]:
        """Wait until all is written to shared stores; return how many kernels were, and how many could not be."""
        shared, before = self._cache.shared, self._before
        if shared is None or before is None:
            return 0, 0
        flushed, now = shared.stores.flush(_FLUSH, _STALL), shared.stores.statistics
        return now.writes - before.writes, now.dropped - before.dropped + (not flushed)

    def _not_kept(self) -> JitltoError:
        """Return the error for a kernel that was linked, but that the cache does not hold."""
        place = user_caches()[0]
        refused = self._cache.store.write_error if self._cache.store else None
        reason = f"{place.directory}: {refused}" if refused else f"its size limit of {place.bound} bytes is too low"
        remedy = (
            "free disk space, set JITLTO_CACHE_DIR to a different directory" if refused else "raise JITLTO_CACHE_SIZE"
        )
        hint = f"{remedy}, or write a pack: -o PACK"
        return JitltoError(f"linked, but not cached: {reason}", code="jitlto-cache-full", hint=hint)

    @staticmethod
    def _write(output: Path, planned: Sequence[tuple[WarmJob, Plan]], kernels: Mapping[str, bytes]) -> None:
        answers: dict[str, bytes] = {}
        contents: dict[str, bytes] = {}
        for job, plan in planned:
            if plan.digest in kernels and isinstance(job.family, KernelFamily):
                answers |= find_answers(job.family, job.request, plan)
                contents[job.family.contents.key] = job.family.contents.encode()
        try:
            packs.write(output, {KERNELS: kernels, REQUESTS: answers, CONTENTS: contents})
        except OSError as error:
            raise _failed(output, error) from None


def find_answers(family: KernelFamily, request: Request, plan: Plan) -> dict[str, bytes]:
    """Return the requests that a packed kernel answers without planning, by key: its own, and some with fewer words.

    A request that names all parameters stands for those that leave one out which the others decide, or all such.
    """
    capability = divmod(plan.target.number, 10)
    linker = str(plan.link_target.nvjitlink)
    if request.pinned or request.supplied or not plan.answers(linker, capability):
        return {}
    entry = family.entrypoints[0] if len(family.entrypoints) == 1 else request.entry

    def leads_to_it(configuration: Mapping[str, str]) -> bool:
        other = Request(request.family, request.entry, configuration, (), (), request.link_mode, request.link_options)
        try:
            return family.plan_request(other, plan.target).digest == plan.digest
        except JitltoError:
            return False

    named = [request.configuration]
    if request.configuration == plan.configuration:
        few = dict(plan.configuration)
        for name in sorted(plan.configuration):
            one_less = {other: value for other, value in plan.configuration.items() if other != name}
            if leads_to_it(one_less):
                named.append(one_less)
                fewer = {other: value for other, value in few.items() if other != name}
                few = fewer if leads_to_it(fewer) else few
        named.append(few)
    how = request.link_mode, dict(request.link_options)
    asked = [
        requests.KernelRequest(family.contents.digest, family.name, entry, *how, each, capability, linker)
        for each in named
    ]
    return {each.key: plan.chosen.encode() for each in asked if each.key}


def _failed(output: Path, error: OSError) -> JitltoError:
    return _unwritable(output, error.strerror or str(error), files.write_hint(error, "change its permissions"))


def _unwritable(output: Path, reason: str, remedy: str) -> JitltoError:
    hint = f"{remedy}, or name a different file: -o PACK"
    return JitltoError(f"cannot be written: {reason}", code="jitlto-unwritable-file", where=str(output), hint=hint)


def _writable_cache() -> CacheDir:
    place = user_caches()[0]
    if place.setting != "on":
        raise JitltoError(
            f"JITLTO_CACHE={place.setting} keeps kernels from being cached",
            code="jitlto-unusable-cache",
            where=str(place.directory),
            hint="unset JITLTO_CACHE, or write a pack: -o PACK",
        )
    return place.open()


def _check_pack(output: Path) -> None:
    """Check, before any work, that a file can be written, and holds nothing but a pack.

    Raises:
        JitltoError: If not.
    """
    try:
        files.check_replaceable(output)
        if output.exists():
            Pack(output).close()
    except OSError as error:
        raise _failed(output, error) from None
    except ValueError as error:
        raise _unwritable(output, f"not a pack that can be replaced: {error}", "remove it") from error
