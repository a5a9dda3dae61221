"""Linking ahead of time: recorded kernels, or all of a family, into the user's cache and shared stores, or a pack.

This module is longer than most: what is to be linked and where it goes are read together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from jitlto.base import config, files
from jitlto.base.errors import JitltoError
from jitlto.base.user_caches import user_caches
from jitlto.base.versions import Architecture
from jitlto.link import packs, requests
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.packs import Pack
from jitlto.link.parallel import run_parallel
from jitlto.link.sources import CONTENTS, KERNELS, REQUESTS, SharedKernels
from jitlto.plan import enumeration
from jitlto.plan.cache_entry import LinkedKernel, LinkKey
from jitlto.plan.configuration import normalize_configuration
from jitlto.plan.plan import Plan, Request
from jitlto.runtime import knapsack, recording, session
from jitlto.runtime.family import KernelFamily

_FLUSH, _STALL = 60.0, 5.0  # seconds to wait for what is written to shared stores, in all and for one of them


@dataclass(frozen=True, slots=True)
class WarmJob:
    """One plan to link, for the current device if ``arch`` is None; ``family`` is an error if it was not found.

    ``uses`` says how many recorded processes used it.
    """

    request: Request
    arch: Architecture | None
    family: KernelFamily | JitltoError
    uses: int = 1

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
class Saving:
    """What a pack of a bounded size saves of the link seconds of the recorded uses, and of the bytes of all kernels.

    Args:
        seconds, all_seconds: Link seconds of its kernels, and of all, each as often as it was used.
        bytes, all_bytes: Of the kernels in it, and of all.
        kernels, all_kernels: How many.
    """

    seconds: float
    all_seconds: float
    bytes: int
    all_bytes: int
    kernels: int
    all_kernels: int


@dataclass(frozen=True, slots=True)
class WarmResult:
    """All outcomes, each digest once.

    Args:
        outcomes: Of each digest one.
        packed: Kernels in the written pack.
        shared: Kernels that were written to shared stores, which had lacked them.
        unshared: Kernels that could not be written to one, at least.
        saving: What a pack of a bounded size saves; None for any other.
    """

    outcomes: list[WarmOutcome] = field(default_factory=list)
    packed: int = 0
    shared: int = 0
    unshared: int = 0
    saving: Saving | None = None

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
    used = recording.count_uses(path)
    if not used:
        raise JitltoError(
            "the file holds no plan",
            code="jitlto-nothing-recorded",
            where=str(path),
            hint=f"record one: JITLTO_RECORD={path} PROGRAM",
        )
    held = session.default.registry.open(database).families if database else None
    own = [(plan, uses) for plan, uses in used if held is None or plan.request.family in held]
    if not own:
        names = ", ".join(sorted({plan.request.family for plan, _ in used}))
        raise JitltoError(
            f"holds none of the families in {path}: {names}",
            code="jitlto-nothing-recorded",
            where=str(database),
            hint=f"they were recorded from {', '.join(sorted({plan.database for plan, _ in used}))}",
        )
    families: dict[str, KernelFamily | JitltoError] = {}
    jobs = []
    for plan, uses in own:
        name = plan.request.family
        if name not in families:
            try:
                families[name] = find(name)
            except JitltoError as error:
                families[name] = error
        jobs += [WarmJob(plan.request, target, families[name], uses) for target in targets or [plan.arch]]
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
    """The destination of kernels: the user's cache and the shared stores, or the pack at ``output``.

    The pack then holds exactly these kernels, and shared stores are only read.

    Create it before loading a family: it raises an error for an unusable cache, but loading only warns.

    Args:
        output: The pack; None for the caches.
        budget: The largest size of the pack in bytes: of all kernels those that save the most link seconds are put into
            it. To know how long that takes, all are linked anew.

    Raises:
        JitltoError: If the cache is off or cannot be used, or the pack cannot be written.
    """

    def __init__(self, output: Path | None = None, budget: int | None = None) -> None:
        self._output = output
        self._budget = budget
        self._seconds: dict[str, float] = {}  # of links, by digest
        self._entries: dict[str, bytes] = {}
        self._plans: dict[int, Plan] = {}  # by position of the job
        self._replaced: Pack | None = None
        if output is None:
            self._cache = _writable_cache()
        else:
            _require_writable(output)
            self._cache = KernelCache(session.default.kernel_cache.store, shared=session.default.kernel_cache.shared)
            self._replaced = _existing_pack(output)
        shared = self._cache.shared
        self._before = shared.stores.statistics if shared is not None else None

    def link(
        self, jobs: Sequence[WarmJob], workers: int | None = None, on_job: Callable[[int], object] = lambda _: None
    ) -> WarmResult:
        """Link all jobs in parallel, each digest once; kernels that the destination already holds are not linked again.

        Raises:
            JitltoError: If the pack cannot be written.
        """
        claimed: dict[str, object] = {}

        def work(item: tuple[int, WarmJob]) -> WarmOutcome | None:
            position, job = item
            plan = job.plan()
            self._plans[position] = plan
            claim = object()
            if claimed.setdefault(plan.digest, claim) is not claim:  # setdefault is atomic
                return None
            kernel = self._to_cache(plan) if self._output is None else self._to_pack(plan)
            plan.services.kernel_cache.warn(plan.chosen, kernel)
            return WarmOutcome(job, plan.target.sm, plan.link_key, plan.database.path, kernel.layer)

        ordered: dict[int, WarmOutcome] = {}
        for position, (_, job), outcome in run_parallel(work, list(enumerate(jobs)), workers):
            on_job(position)
            if isinstance(outcome, JitltoError):
                ordered[position] = WarmOutcome(job, job.arch and job.arch.sm, error=outcome)
            elif outcome is not None:
                ordered[position] = outcome
        outcomes = [ordered[position] for position in sorted(ordered)]
        if self._output is None:
            return WarmResult([self._verified(outcome) for outcome in outcomes], 0, *self._flushed())
        saving = self._fit(jobs) if self._entries and self._budget is not None else None
        if self._entries and saving is None:
            self._write(jobs)
        return WarmResult(outcomes, len(self._entries), saving=saving)

    def _to_cache(self, plan: Plan) -> LinkedKernel:
        kernel = self._cache.get_or_link(plan.link_key, partial(plan.link, use_cache=False), plan.database.location)
        if self._cache.shared is not None and kernel.layer not in ("link", "store"):
            self._cache.shared.put(plan.digest, plan.link_key.encode(kernel))
        return kernel

    def _flushed(self) -> tuple[int, int]:
        """Wait until all is written to shared stores; return how many kernels were, and how many could not be."""
        shared, before = self._cache.shared, self._before
        if shared is None or before is None:
            return 0, 0
        shared.stores.finish(_FLUSH, _STALL)
        flushed, now = shared.stores.flush(0), shared.stores.statistics
        return now.writes - before.writes, now.dropped - before.dropped + (not flushed)

    def _to_pack(self, plan: Plan) -> LinkedKernel:
        """Take a kernel from the replaced pack or a cache, or link it; add it to the new pack."""
        digest = plan.digest
        if self._budget is not None:
            kernel = plan.link(use_cache=False)
            self._seconds[digest] = kernel.seconds
            self._entries[digest] = plan.link_key.encode(kernel)
            return kernel
        payload = self._replaced.find(digest) if self._replaced else None
        found = LinkedKernel.decode(digest, payload, 0.0, "pack") if payload else None
        found = found or self._cache.find(digest, plan.database.location)
        if found is None and self._cache.shared is not None:
            payload = self._cache.shared.find(digest)
            found = LinkedKernel.decode(digest, payload, 0.0, "store") if payload else None
        kernel = found or plan.link(use_cache=False)
        self._entries[digest] = plan.link_key.encode(kernel)
        return kernel

    def _fit(self, jobs: Sequence[WarmJob]) -> Saving:
        """Write the pack with the kernels that save the most, as many as fit."""
        assert self._output is not None  # noqa: S101 - a budget is a pack's
        assert self._budget is not None  # noqa: S101 - checked by the caller
        every, uses = self._entries, Counter[str]()
        for position, plan in self._plans.items():
            uses[plan.digest] += jobs[position].uses
        digests = sorted(every)
        worths = [uses[digest] * self._seconds[digest] for digest in digests]
        sizes = [len(every[digest]) for digest in digests]
        room = self._budget
        while room > 0:
            chosen = sorted(knapsack.choose(worths, sizes, room))
            if not chosen:
                break
            self._entries = {digests[n]: every[digests[n]] for n in chosen}
            size = self._write(jobs, self._budget)
            if size <= self._budget:
                totals = (sum(worths[n] for n in chosen), sum(worths), sum(sizes[n] for n in chosen), sum(sizes))
                return Saving(*totals, len(chosen), len(digests))
            room = min(room, sum(sizes[n] for n in chosen)) - (size - self._budget)  # look-ups and index take room too
        hint = f"raise --budget: the smallest kernel has {min(sizes)} bytes, and a pack an index"
        raise JitltoError("no kernel fits", code="jitlto-budget", where=str(self._output), hint=hint)

    def _verified(self, outcome: WarmOutcome) -> WarmOutcome:
        """Return the outcome, or a failure if the kernel was linked but the cache does not hold it."""
        if outcome.key is None or outcome.database is None or outcome.layer == "pack":
            return outcome
        if self._cache.find(outcome.key.digest, outcome.database) is not None:
            return outcome
        place = user_caches()[0]
        refused = self._cache.store.write_error if self._cache.store else None
        if refused:
            reason = f"{place.directory}: {refused}"
            hint = "free disk space, set JITLTO_CACHE_DIR to a different directory, or write a pack: -o PACK"
        else:
            reason = f"its size limit of {place.bound} bytes is too low"
            hint = "raise JITLTO_CACHE_SIZE, or write a pack: -o PACK"
        error = JitltoError(f"linked, but not cached: {reason}", code="jitlto-cache-full", hint=hint)
        return replace(outcome, layer="", error=error)

    def _write(self, jobs: Sequence[WarmJob], most: int | None = None) -> int:
        """Write the pack, unless it would be larger than ``most`` bytes; return its size."""
        assert self._output is not None  # noqa: S101 - entries are those of a pack
        packed = [
            (job.family, job.request, self._plans[position])
            for position, job in enumerate(jobs)
            if position in self._plans
            and self._plans[position].digest in self._entries
            and isinstance(job.family, KernelFamily)
        ]
        contents = dict(requests.contents_entry(family.contents) for family, _, _ in packed)
        answers = {key: answer for each in packed for key, answer in find_answers(*each).items()}
        entries = {KERNELS: self._entries, REQUESTS: answers, CONTENTS: contents}
        size = packs.size_of(entries)
        if most is not None and size > most:
            return size
        try:
            packs.write(self._output, entries)
            return size
        except OSError as error:
            raise _failed(self._output, error) from None


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


def _writable_cache() -> KernelCache:
    place = user_caches()[0]
    if place.setting != "on":
        raise JitltoError(
            f"JITLTO_CACHE={place.setting} keeps kernels from being cached",
            code="jitlto-unusable-cache",
            where=str(place.directory),
            hint="unset JITLTO_CACHE, or write a pack: -o PACK",
        )
    # Linking is allowed even with JITLTO_MODE=cached, because that is this command's purpose.
    settings = config.current()
    return KernelCache(place.open(), shared=SharedKernels(settings) if settings.store else None)


def _require_writable(output: Path) -> None:
    try:
        files.check_replaceable(output)
    except OSError as error:
        raise _failed(output, error) from None


def _existing_pack(output: Path) -> Pack | None:
    if not output.exists():
        return None
    try:
        if not output.is_file():
            raise ValueError("not a file")
        return Pack(output.absolute())  # like packs beside a database, because warnings are given once per path
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise _unwritable(output, f"not a pack that can be replaced: {error}", "remove it") from error
