"""Linking ahead of time: recorded kernels, or all of a family, into the user's cache and shared stores, or a pack."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache as cached
from pathlib import Path

from msgspec import structs

from jitlto.base import config, files
from jitlto.base.cache_dir import CacheDir
from jitlto.base.config import Config
from jitlto.base.errors import JitltoError
from jitlto.base.user_caches import user_caches
from jitlto.base.versions import Architecture
from jitlto.cuda import nvjitlink
from jitlto.link import packs, requests
from jitlto.link.kernel_cache import KernelCache, find_kernel
from jitlto.link.packs import Pack
from jitlto.link.parallel import run_parallel
from jitlto.link.sources import CONTENTS, KERNELS, REQUESTS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.configuration import allowed_values
from jitlto.plan.plan import Plan, Request
from jitlto.runtime import recording, session
from jitlto.runtime.family import KernelFamily

_ELSEWHERE = "give a different name: -o PACK"
_FLUSH, _STALL = 60.0, 5.0  # seconds to wait for what is written to the shared store, in all and for one kernel


@dataclass(frozen=True, slots=True)
class WarmJob:
    """A kernel to link, and what came of it: the layer that it is from, ``link`` if it was linked now, or an error.

    One that another job links has neither.
    """

    request: Request
    target: Architecture | None  # None for that of the current device
    find: Callable[[str], KernelFamily]  # finds its family by name
    plan: Plan | None = None
    layer: str = ""
    error: JitltoError | None = None

    @property
    def arch(self) -> str | None:
        """The architecture; None for that of a device that was not found."""
        arch = self.plan.target if self.plan else self.target
        return arch and arch.sm


@dataclass(frozen=True, slots=True)
class WarmJobs:
    """Plans to link, and the number of plans left out, with the reason."""

    jobs: list[WarmJob]
    left_out: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WarmResult:
    """What was linked: of each digest one job."""

    outcomes: list[WarmJob]
    packed: int = 0  # kernels in the written pack
    shared: int = 0  # kernels that were written to the shared store, which had lacked them
    unshared: int = 0  # kernels that could not be written to it

    @property
    def failures(self) -> list[WarmJob]:
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
        find: Finds a family by name; an error that it raises becomes the outcome of the family's jobs.
        targets: Target architectures for all plans; by default each plan's own.
        database: If given, plans of families that this database does not hold are left out.

    Raises:
        JitltoError: If the file holds no plan, or no plan of the database's families.
    """
    used = recording.read(path)
    held = session.default.registry.file(database).contents.families if database else None
    own = [plan for plan in used if held is None or plan.request.family in held]
    if not own:
        names = ", ".join(sorted({plan.request.family for plan in used}))
        raise JitltoError(
            f"the file holds no plan{f' of the families of {database}, but of {names}' if used else ''}",
            code="jitlto-nothing-recorded",
            where=str(path),
            hint=f"record one: JITLTO_RECORD={path} PROGRAM",
        )
    find = cached(find)
    jobs = [WarmJob(each.request, to, find) for each in own for to in targets or [each.arch]]
    return WarmJobs(jobs, len(used) - len(own), f"of families that {database} does not hold")


def family_jobs(
    family: KernelFamily, settings: Iterable[tuple[str, str]], targets: Sequence[Architecture | None]
) -> WarmJobs:
    """Return jobs for the kernels of a family that need no caller's code.

    Args:
        settings: Parameters and their allowed values, separated by commas; values of a repeated name add up. The name
            ``entry`` stands for entrypoints.
        targets: Target architectures; None stands for the current device.

    Raises:
        JitltoError: If no kernel has these values.
    """
    known = {**family.parameters, "entry": family.entrypoints}
    allowed = allowed_values(settings, known, family.name)
    jobs: list[WarmJob] = []
    waiting = 0
    for kernel in family.kernels():
        # A parameter on which a kernel does not depend agrees with every value.
        group = kernel.resolution.entry.key.group
        own = {"entry": group, **kernel.configuration}
        if any(own.get(name) not in (None, *values) for name, values in allowed.items()):
            continue
        waiting += bool(kernel.user_symbols)
        request = Request(family.name, group, kernel.configuration)
        jobs += [WarmJob(request, target, lambda _: family) for target in targets if not kernel.user_symbols]
    if not jobs and not waiting:
        what, hint = "no kernel has this combination of values", "list the fragments: jitlto ls -l DB"
        raise JitltoError(what, code="jitlto-no-such-kernel", where=family.name, hint=hint)
    return WarmJobs(jobs, waiting, "that need callers' code; record a program that uses them")


def link_jobs(
    jobs: Sequence[WarmJob],
    output: Path | None = None,
    workers: int | None = None,
    on_job: Callable[[int], object] = lambda _: None,
) -> WarmResult:
    """Link all jobs in parallel, each digest once, into the user's cache and the shared store, or into a pack.

    Kernels that are already there are not linked again. A pack then holds exactly these kernels; with one, caches are
    only read. ``on_job`` is called with the position of each job that is done.

    Raises:
        JitltoError: If the cache is off or cannot be used and there is no pack, or the pack cannot be written.
    """
    sources, settings = list[Pack | CacheDir](), config.current()
    if output is None:
        store: CacheDir | None = _writable_cache()
    else:
        own = session.default.kernel_cache.store
        store, sources = None, [*_replaced_pack(output), *filter(None, [own])]
        if settings.store:
            settings = Config(**settings.as_dict() | {"store": f"{settings.store.partition('#')[0]}#read"})
    # Linking is allowed even with JITLTO_MODE=cached, because that is this command's purpose.
    cache = KernelCache(store, settings=settings if settings.cache == "on" else None)
    shared = cache.shared
    before = shared.counts.copy() if shared else {}
    claimed: dict[str, object] = {}  # by digest
    kernels: dict[str, bytes] = {}

    def work(job: WarmJob) -> WarmJob:
        plan, mine = job.find(job.request.family).plan_request(job.request, job.target), object()
        if claimed.setdefault(plan.digest, mine) is not mine:  # setdefault is atomic
            return replace(job, plan=plan)
        key = plan.link_key

        def link() -> LinkedKernel:
            return find_kernel(key.digest, sources) or plan.link(use_cache=False)

        kernel = cache.get_or_link(key, link, plan.database.location)
        kernels[key.digest] = payload = key.encode(kernel)
        if shared is not None and kernel.layer not in ("link", "store"):
            shared.put(KERNELS, key.digest, payload)
        plan.services.kernel_cache.warn(plan.chosen, kernel)
        return replace(job, plan=plan, layer=kernel.layer)

    done: dict[int, WarmJob] = {}
    for position, job, outcome in run_parallel(work, jobs, workers):
        on_job(position)
        done[position] = replace(job, error=outcome) if isinstance(outcome, JitltoError) else outcome
    outcomes = [done[position] for position in sorted(done)]
    if output is not None and kernels:
        _write(output, outcomes, kernels)
    once = [outcome for outcome in outcomes if outcome.layer or outcome.error]
    if output is not None:
        return WarmResult(once, len(kernels))
    written = unshared = 0
    if shared is not None:
        is_done, now = shared.flush(_FLUSH, _STALL), shared.counts
        written, unshared = now["writes"] - before["writes"], now["dropped"] - before["dropped"] + (not is_done)
    return WarmResult([_verified(each, cache) for each in once], 0, written, unshared)


def _verified(outcome: WarmJob, cache: KernelCache) -> WarmJob:
    """Return a job that is done, or a failure if the kernel was linked but the cache does not hold it."""
    if outcome.plan is None or cache.find(outcome.plan.digest, outcome.plan.database.path):
        return outcome
    place = user_caches()[0]
    reason = (cache.store and cache.store.write_error) or f"its size limit is {place.bound} bytes"
    error = JitltoError(
        f"linked, but not kept in {place.directory}: {reason}",
        code="jitlto-cache-full",
        hint="raise JITLTO_CACHE_SIZE, free disk space or set JITLTO_CACHE_DIR, or write a pack: -o PACK",
    )
    return replace(outcome, layer="", error=error)


def _write(output: Path, outcomes: Sequence[WarmJob], kernels: Mapping[str, bytes]) -> None:
    """Write a pack of kernels, of the requests that lead to them, and of what their databases hold."""
    answers: dict[str, bytes] = {}
    contents: dict[str, bytes] = {}
    for each in outcomes:
        if each.plan and each.plan.digest in kernels:
            family = each.find(each.request.family)
            answers |= find_answers(family, each.request, each.plan)
            contents[family.contents.key] = family.contents.encode()
    try:
        packs.write(output, {KERNELS: kernels, REQUESTS: answers, CONTENTS: contents})
    except OSError as error:
        raise files.unwritable(error, output, _ELSEWHERE) from None


def find_answers(family: KernelFamily, request: Request, plan: Plan) -> dict[str, bytes]:
    """Return the requests that a packed kernel answers without planning, by key: its own, and some with fewer words.

    A request that names all parameters stands for those that leave one out which the others decide, or all such.
    """
    capability, linker = divmod(plan.target.number, 10), str(nvjitlink.version())
    if request.pinned or request.supplied or not plan.answers(linker, capability):
        return {}
    entry = family.entrypoints[0] if len(family.entrypoints) == 1 else request.entry

    def leads_to_it(configuration: Mapping[str, str]) -> bool:
        shorter = structs.replace(request, configuration=configuration)
        with contextlib.suppress(JitltoError):
            return family.plan_request(shorter, plan.target).digest == plan.digest
        return False

    named, few = [request.configuration], request.configuration
    for name in sorted(plan.configuration if request.configuration == plan.configuration else ()):
        one_less, fewer = ({n: v for n, v in each.items() if n != name} for each in (plan.configuration, few))
        if leads_to_it(one_less):
            named.append(one_less)
            few = fewer if leads_to_it(fewer) else few
    how = request.link_mode, dict(request.link_options)
    asked = [
        requests.request_key(family.contents.digest, family.name, entry, *how, each, capability, linker)
        for each in [*named, few]
    ]
    return {key: plan.chosen.encode() for key in asked if key}


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


def _replaced_pack(output: Path) -> list[Pack]:
    """Return the pack that is replaced, if there is one.

    Raises:
        JitltoError: If the file cannot be written, or is something else.
    """
    try:
        files.check_replaceable(output)
        return [Pack(output.absolute())] if output.exists() else []
    except (OSError, ValueError) as error:
        raise files.unwritable(error, output, _ELSEWHERE) from error
