"""A family at run time: from a configuration to a plan or a launcher.

Everything that a kernel found in the cache does not need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jitlto.base.cached import cached_property, raise_copy
from jitlto.base.errors import JitltoError, LinkError
from jitlto.base.events import Kind
from jitlto.base.files import digest_of
from jitlto.base.frozen import Shared
from jitlto.base.log import log
from jitlto.base.text import check_type
from jitlto.cuda import device
from jitlto.launch.core import Answers, looked_up, remembered
from jitlto.link.kernel_cache import LAYERS
from jitlto.link.requests import find_chosen, request_key
from jitlto.link.sources import REQUESTS, put_all
from jitlto.runtime import session as sessions
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.session import Session

if TYPE_CHECKING:  # not imported at run time: a cache hit needs none of them
    from jitlto.base.versions import Architecture
    from jitlto.database import FragmentDatabase
    from jitlto.database.index import Index
    from jitlto.launch.dispatcher import Dispatcher
    from jitlto.launch.launcher import Launcher
    from jitlto.link.requests import Contents
    from jitlto.plan.cache_entry import Chosen, LinkedKernel
    from jitlto.plan.enumeration import Kernel
    from jitlto.plan.plan import Plan, Request
    from jitlto.plan.planner import Planner
    from jitlto.record.family_record import FamilyRecord
    from jitlto.tuning.best import Best, Chooser
    from jitlto.tuning.tune import TuneReport


def find_again(name: str, digest: str, location: str, session: Session) -> KernelFamily:
    """Find a family that another process has sent, or the one of this process that it is a copy of.

    Raises:
        RegistryError: If this process finds no database with this digest.
        DatabaseError: If that cannot be read.
    """
    known: KernelFamily | None = session.loaded.get((name, digest))
    if known is None or not known.in_place:
        known = KernelFamily(name, session.registry.find_again(name, digest, Path(location)), session)
    session.loaded[name, digest] = session.families[name, digest] = known  # kept for what is sent next
    return known


@looked_up
class KernelFamily(Shared):
    """A family of kernels in a fragment database. Thread-safe.

    Args:
        name: The family's name.
        database: The database that holds it.
        session: The session to use; by default that of the process.

    Raises:
        RegistryError: If the database does not hold the family.
        DatabaseError: If the database is only a part of a sharded build.
    """

    __slots__ = ("__dict__", "__weakref__", "_quick")  # the core reads the last

    def __init__(
        self, name: str, database: FragmentDatabase | DatabaseFile, session: Session = sessions.default
    ) -> None:
        file = database if isinstance(database, DatabaseFile) else DatabaseFile.from_database(database)
        self.name, self._held, self._file = name, file.require(name), file
        #: The database, or the ``family.toml``, as the caller named it.
        self.path: Path = file.path
        self._begin(session)
        session.loaded.setdefault((name, file.contents.digest), self)

    def _begin(self, session: Session) -> None:
        self.session = session
        self._quick = Answers()  # request → launcher
        self._launchers: dict[str, Launcher] = {}  # by digest
        # By digest, and whether it might have been linked fast: a link that fails would fail again.
        self._failures: dict[tuple[str, bool], LinkError] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Be found again, in another process, by name and by the digest of the database."""
        return find_again, (self.name, self.contents.digest, str(self.location), self.session)

    def again(self) -> Callable[[], KernelFamily]:
        """Return a function that makes this family anew, for what may not keep it alive."""
        return partial(KernelFamily, self.name, self._file, self.session)

    def __repr__(self) -> str:
        return f"<KernelFamily {self.name} ({', '.join(self.parameters)}) of {self.path}>"

    @property
    def parameters(self) -> Mapping[str, tuple[str, ...]]:
        """The parameters, each with the values that its fragments have."""
        return self._held.parameters

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The groups of entrypoints."""
        return self._held.entrypoints

    @property
    def version(self) -> str:
        """The version that its author declares; empty if there is none."""
        return self._held.version

    @cached_property
    def database(self) -> FragmentDatabase:
        """The database, opened on first use.

        Raises:
            DatabaseError: If it can no longer be read, or was replaced by a different database.
        """
        return self._file.open()

    @property
    def location(self) -> Path:
        """The path of the database."""
        return self._file.location

    @property
    def contents(self) -> Contents:
        """The summary of the database."""
        return self._file.contents

    @property
    def in_place(self) -> bool:
        """True if the file that it was loaded from still holds the same database."""
        return digest_of(self.location) == self.contents.digest

    @property
    def record(self) -> FamilyRecord:
        """The family's record in the database, with the groups of the families that it uses."""
        return self.index.record

    @cached_property
    def index(self) -> Index:
        """The fragments of the family and of those that it uses, indexed for resolving, and read when looked up."""
        return self.database.index(self.name)

    def configurations(self) -> Iterator[dict[str, str]]:
        """Yield all configurations of the family: each plans to exactly one kernel, and each kernel occurs once.

        Each can be passed to :meth:`plan` unchanged; it includes ``entry`` if the family has several entrypoint groups.
        Kernels that need a caller's own code are included.
        """
        several = len(self.entrypoints) > 1
        for kernel in self.kernels():
            group = {"entry": kernel.resolution.entry.key.group} if several else {}
            yield group | dict(kernel.configuration)

    def kernels(self) -> Iterator[Kernel]:
        """Yield all kernels of the family that can be planned, also those that need a caller's own code."""
        from jitlto.plan.enumeration import Kernel, enumerate_kernels

        return (kernel for kernel in enumerate_kernels(self.index) if isinstance(kernel, Kernel))

    def planner(self, /, entry: str | None = None, **configuration: object) -> Planner[Launcher]:
        """Return a planner, to which fragments and the caller's own device code can be added.

        Args:
            entry: The entrypoint's group, if the family has several.
            **configuration: Parameter values as text, numbers, booleans or dtypes.
        """
        from jitlto.plan.planner import Planner

        return Planner(self, entry, configuration)

    def plan(
        self,
        *,
        entry: str | None = None,
        arch: str | Architecture | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Plan:
        """Resolve a configuration; see :meth:`Planner.plan`."""
        planner = self.planner(entry, **configuration)
        return planner.plan(arch=arch, link_mode=link_mode, link_options=link_options)

    def callback(
        self, group: str, /, *, arch: str | Architecture | None = None, **configuration: object
    ) -> tuple[str, bytes]:
        """Return a device function for a library that links it itself, such as cuFFT with its LTO callbacks.

        Args:
            group: The group of its fragment, which requires nothing of others.
            arch: The target; by default that of the current device.
            **configuration: The values of its key.

        Returns:
            The function's name in C++, and LTO-IR in a fatbin, as ``cufftXtSetJITCallback`` takes them.

        Raises:
            PlanError: If no fragment has these values, or it defines more than one C++ function or requires another.
            VersionError, ArchitectureError: If the installed nvJitLink cannot link it for the target.
        """
        return self.planner(None, **configuration).callback(group, arch)

    def plan_request(self, request: Request, arch: str | Architecture | None = None) -> Plan:
        """Plan a recorded request, possibly from a different machine.

        Args:
            request: A request for a kernel of this family.
            arch: The target; by default that of the current device.

        Raises:
            PlanError, CompileError: If it does not plan: the family has changed, or an input does not compile here.
        """
        from jitlto.plan import plan, planner

        check_type(request, plan.Request, "request must be a Request")
        asked = planner.Planner[Any](self, request.entry, request.configuration).add_inputs(request.supplied)
        for key in request.pinned:
            asked.add(key)
        return asked.plan(arch=arch, link_mode=request.link_mode, link_options=request.link_options)

    @remembered
    def launcher(
        self,
        *,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Launcher:
        """Return the launcher of a configuration on the current device: linked at the first call, then looked up.

        If a pack answers the request, or an earlier process of this user made it, its kernel is found without planning
        (``jitlto.link.requests``), and :attr:`Launcher.plan` is planned on first use.

        Raises:
            PlanError, LinkError, NoDeviceError: If it cannot be planned, linked or loaded. A failed link is remembered
                and not tried again.
            DatabaseError: If the database has to be opened and can no longer be read.
        """
        if link_options:
            check_type(link_options, Mapping, "link options must be a dict")
        how: dict[str, Any] = {"link_mode": link_mode, "link_options": dict(link_options or {})}  # a copy
        session = self.session
        capability = device.current().compute_capability
        asked = None if session.is_recording else self._request_key(entry, how, configuration, capability)
        cache = session.kernel_cache
        chosen = find_chosen(cache.sources(self.location), asked) if asked else None
        launcher = self._launchers.get(chosen.digest) if chosen else None
        linked = cache.find(chosen.digest, self.location) if chosen and not launcher else None
        if chosen and linked:
            session.events.emit(LAYERS[linked.layer][0], chosen.kernel, chosen.digest, linked.seconds)
            again = self.again()  # because a launcher that refers to its own family would be a reference cycle

            def plan_again() -> Plan:
                return again().planner(entry, **configuration).plan(arch=linked.architecture, **how)

            launcher = self._load(chosen, linked, plan_again)
        if launcher is None:
            cache.open_store_soon()
            plan = self.planner(entry, **configuration).plan(**how)
            launcher = self.load(plan)
            if asked and cache.store and plan.answers(session.linker, capability):
                launcher.later(partial(self._keep, asked, plan, apart=launcher.tier == "fast"))
        return launcher.insist() if how["link_options"].get("tiered") is False else launcher

    def _keep(self, asked: str, plan: Plan, *, apart: bool) -> None:
        """Keep which kernel answers a request, for later processes."""
        if (self._apart if apart else plan.database).is_as_digested:
            put_all(self.session.kernel_cache.sources(self.location), REQUESTS, asked, plan.chosen.encode())

    @cached_property
    def _apart(self) -> FragmentDatabase:
        """The database by a connection of its own: plans would wait for one by which all rows are read."""
        return self._file.open()

    def _request_key(
        self, entry: str | None, how: dict[str, Any], configuration: dict[str, object], capability: tuple[int, int]
    ) -> str | None:
        """Return a request as look-ups know it; None if planning has to say what it means."""
        linker, known = self.session.linker, self.parameters
        if linker is None:
            return None
        values = {n: value for n, value in configuration.items() if type(value) is str and value in known.get(n, ())}
        if len(values) < len(configuration):  # some have other spellings, or are wrong
            from jitlto.plan.configuration import normalize_configuration  # imported lazily: most are spelled so

            try:
                values = normalize_configuration(configuration, known, self.name)
            except JitltoError:
                return None
        group = self.entrypoints[0] if entry is None and len(self.entrypoints) == 1 else entry
        options = how["link_mode"], how["link_options"]
        return request_key(self.contents.digest, self.name, group, *options, values, capability, linker)

    def dispatcher(
        self,
        *names: str,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **fixed: object,
    ) -> Dispatcher:
        """Return a dispatcher, for callers who choose a variant on every call.

        Args:
            *names: The parameters whose values are passed with each call, in this order.
            entry, link_mode, link_options: As for :meth:`launcher`.
            **fixed: Values of other parameters, the same for all calls.

        Raises:
            UnknownParameterError, UnknownValueError: If the family lacks such a parameter or value.
        """
        from jitlto.launch.dispatcher import Dispatcher

        return Dispatcher(self, names, fixed, entry, link_mode, link_options)

    @cached_property
    def best(self) -> Chooser:
        """Chooser of the best variant for a problem, as in ``family.best(rows=1000, data_type="float")``.

        See :class:`jitlto.tuning.best.Chooser`.
        """
        from jitlto.tuning.best import Chooser  # imported lazily: loads msgspec, and few families are tuned

        return Chooser(self)

    def tune(
        self,
        problem: Mapping[str, object],
        launch: Callable[[Best, Any], object],
        results: Sequence[object] = (),
        *,
        budget: float = 60.0,
        save: bool = True,
    ) -> TuneReport:
        """Measure which variant is the fastest for a problem on the current device.

        All variants are linked first, in parallel. Each has to give the results of the default, to the tolerance that
        the family declares, before it is timed; one that does not link or launch is left out, and the report says why.

        Args:
            problem: Sizes and parameters, as for :attr:`best`.
            launch: Launches a variant in a stream: ``best.launcher(stream, grid, best.block, ...)``. A
                :class:`~jitlto.base.errors.JitltoError` that it raises says that this one cannot be used.
            results: The arrays whose contents the variants must agree on, contiguous in device memory.
            budget: Seconds after which no further variant is linked or timed.
            save: Add what is found to the user's wisdom, so that :attr:`best` uses it.

        Raises:
            PlanError: If it is no problem of the family.
            TuningError: If there are too many variants.
            WisdomError: If the user's wisdom cannot be read or written.
            JitltoError: If the default cannot be linked or launched.
        """
        from jitlto.tuning.tune import tune

        report = tune(self, problem, launch, results, budget=budget, save=save)
        self.best.forget()
        return report

    def load(self, plan: Plan) -> Launcher:
        """Link and load a plan, or return the launcher that was loaded for an equal plan."""
        device.current()  # raises if there is no device, before a link could fail
        session, key = self.session, plan.link_key
        launcher = self._launchers.get(key.digest)
        if launcher is None:
            asked = key.digest, plan.options.tiered
            if asked in self._failures:
                raise_copy(self._failures[asked])
            session.events.emit(Kind.REQUESTED, key.kernel, key.digest, plan=plan)
            cache = session.kernel_cache
            link = partial(cache.get_or_link, key, partial(cache.linker, plan), self.location)
            try:
                linked = self._link_fast(plan) or link()
            except LinkError as error:  # remembered; other errors, such as a missing file, may not recur
                self._failures[asked] = error
                raise
            launcher = self._load(plan.chosen, linked, lambda: plan, partial(link, is_behind=True))
        # Another thread may have been first, to whom the fast tier is allowed.
        return launcher.insist() if launcher.tier == "fast" and not plan.options.tiered else launcher

    def _link_fast(self, plan: Plan) -> LinkedKernel | None:
        """Link the kernel of a plan of cubins; None if it is not to be, or is on this machine already."""
        fast, cache = plan.fast, self.session.kernel_cache
        if fast is None or not cache.may_link or cache.find(plan.digest, self.location):
            return None
        try:
            linked: LinkedKernel = cache.linker(fast, is_first=True)
        except LinkError as error:  # `jitlto check` has told it to the author
            log(__name__, "info", "begins with LTO: %s", error)
            return None
        self.session.events.emit(Kind.LINKED_FAST, plan.entry.key.text, plan.digest, linked.seconds)
        return linked

    def _load(
        self,
        chosen: Chosen,
        linked: LinkedKernel,
        make_plan: Callable[[], Plan],
        link: Callable[[], LinkedKernel] | None = None,
    ) -> Launcher:
        """Return the launcher of a linked kernel, loaded by one thread while others wait.

        If it was linked fast, ``link`` gives the one with LTO.
        """
        session = self.session
        with session.loading:
            launcher = self._launchers.get(chosen.digest)
            if launcher is not None:
                return launcher
            launcher = self._launcher(chosen, linked, make_plan)
            if link and linked.layer == "fast":  # first: who found it before would take it for the one that stays
                launcher.improve(link, partial(session.kernel_cache.warn, chosen), session.events)
            self._launchers[chosen.digest] = launcher
            if linked.layer != "fast":
                session.kernel_cache.warn(chosen, linked)
        # Emitted after the waiting threads were released, so that a slow subscriber does not delay them.
        session.events.emit(Kind.LOADED, chosen.kernel, chosen.digest, launcher.load_seconds)
        return launcher

    def _launcher(self, chosen: Chosen, linked: LinkedKernel, plan: Callable[[], Plan]) -> Launcher:
        from jitlto.launch.launcher import Launcher

        with self.session.events.step("load", chosen.kernel):
            return Launcher(chosen, linked, plan)
