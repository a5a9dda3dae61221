"""A family at run time: from a configuration to a plan or a launcher.

One module, longer than most: each further one would be entered on the way to a linked kernel, which takes 2 ms. For the
same reason everything that finding one does not need is imported where it is used.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from jitlto.cuda import device
from jitlto.errors import DatabaseError, LinkError
from jitlto.model.types import cpp_name
from jitlto.runtime import session as sessions
from jitlto.runtime.discovery.lookup_cache import request_key
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.events import Kind
from jitlto.runtime.linking.kernel_cache import EVENT_OF_LAYER
from jitlto.runtime.linking.single_flight import raise_copy
from jitlto.runtime.session import Session
from jitlto.storage.files import digest_of

if TYPE_CHECKING:  # what finding a linked kernel does not need
    from jitlto.model.family_record import FamilyRecord
    from jitlto.model.resolve import Index
    from jitlto.model.versions import Architecture
    from jitlto.runtime.discovery.lookup_cache import Chosen
    from jitlto.runtime.dispatcher import Dispatcher
    from jitlto.runtime.launch.launcher import Launcher
    from jitlto.runtime.linking.cache_entry import LinkedKernel
    from jitlto.runtime.planning.plan import Plan, Request
    from jitlto.runtime.planning.planner import Planner
    from jitlto.storage.database import FragmentDatabase


def load(
    family: str,
    database: str | os.PathLike[str] | FragmentDatabase | None = None,
    *,
    session: Session = sessions.default,
) -> KernelFamily:
    """Load a family from a fragment database.

    Args:
        family: Its name.
        database: Where it is; by default it is looked for as by :func:`family`.
        session: By default the process's.

    Raises:
        RegistryError: If no database holds the family, or several hold different ones.
        DatabaseError: If a database cannot be read.
    """
    _require_name(family)
    if database is None:
        return KernelFamily(family, session.registry.find(family), session)
    if isinstance(database, str | os.PathLike):
        return KernelFamily(family, session.registry.file(database), session)
    from jitlto.storage.database import FragmentDatabase  # and so SQLite, which known databases do not need

    if not isinstance(database, FragmentDatabase):
        raise TypeError(f"database must be a path or a FragmentDatabase, not {type(database).__name__}")
    return KernelFamily(family, database, session)


def family(name: str, *, distribution: str | None = None, session: Session = sessions.default) -> KernelFamily:
    """A family by its name: from the databases on ``JITLTO_DATABASE_PATH``, or else from an installed package.

    No package is imported for it. A process gets the same object for the same name as long as the database is the same.

    Args:
        name: The family's name.
        distribution: The installed package that is meant, where several bring a family of that name.
        session: By default the process's.

    Raises:
        RegistryError: If nothing holds the family, or several hold different ones.
        DatabaseError: If its database cannot be read; of a package that is installed editable, if it cannot be built.
    """
    _require_name(name)
    loaded: KernelFamily | None = session.families.get((name, distribution))
    if loaded is not None and loaded.in_place:
        return loaded
    made = KernelFamily(name, session.registry.find(name, distribution), session)
    if loaded is None:
        return session.families.setdefault((name, distribution), made)  # type: ignore[no-any-return]  # the first thread's
    session.families[name, distribution] = made
    return made


class KernelFamily:
    """A family of kernels in a fragment database. Safe to use from several threads.

    Args:
        name: The family's name.
        database: Where it is.
        session: By default the process's.

    Raises:
        RegistryError: If the database does not hold the family.
        DatabaseError: If it is a part of a build.
    """

    def __init__(
        self, name: str, database: FragmentDatabase | DatabaseFile, session: Session = sessions.default
    ) -> None:
        file = database if isinstance(database, DatabaseFile) else DatabaseFile.from_database(database)
        contents = file.contents.families.get(name)
        if file.contents.part is not None:
            from jitlto.storage.database import MERGE_HINT

            raise DatabaseError(
                f"database is {file.contents.part} of a build: its kernels lack fragments",
                code="database-part",
                where=str(file.path),
                hint=MERGE_HINT,
            )
        if contents is None:
            from jitlto.runtime.discovery import errors

            raise errors.not_held(name, file.contents.families, file.path)
        self.name = name
        self._file = file
        self.session = session
        #: The parameters, and the values that occur.
        self.parameters: Mapping[str, tuple[str, ...]] = contents.parameters
        #: The groups of entrypoints.
        self.entrypoints: tuple[str, ...] = contents.entrypoints
        self._requests: dict[object, Launcher] = {}
        self._launchers: dict[str, Launcher] = {}  # by digest
        self._failures: dict[str, LinkError] = {}  # by digest: a link that fails would fail again
        self._opened: tuple[FragmentDatabase, FamilyRecord, Index] | None = None
        self._dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<KernelFamily {self.name} ({', '.join(self.parameters)}) of {self._file.path}>"

    @property
    def database(self) -> FragmentDatabase:
        """The database, opened now if nothing has needed it yet.

        Raises:
            DatabaseError: If it cannot be read any more, or another one has taken its place.
        """
        return self._file.database

    @property
    def in_place(self) -> bool:
        """True if the file that it was loaded from still holds the same database."""
        return digest_of(self._file.location) == self._file.contents.digest

    def open(self) -> tuple[FragmentDatabase, FamilyRecord, Index]:
        """Open the database and read the family from it.

        Returns:
            database (FragmentDatabase)
            record (FamilyRecord)
            index (Index): Its fragments, as resolving needs them.

        Raises:
            DatabaseError: As :attr:`database`.
        """
        # Not cached_property, whose lock (until Python 3.12) a fork could leave locked.
        if self._opened is None:
            from jitlto.model.resolve import Index  # which finding a linked kernel does not need

            database = self._file.database
            self._opened = (database, database.families[self.name], Index(database.fragments(self.name)))
        return self._opened

    @property
    def record(self) -> FamilyRecord:
        """The family's record in the database."""
        return self.open()[1]

    @property
    def index(self) -> Index:
        """The family's fragments, as resolving needs them."""
        return self.open()[2]

    def configurations(self) -> Iterator[dict[str, str]]:
        """All configurations of the family, lazily: each plans to exactly one kernel, and each kernel occurs once.

        Each can be given to :meth:`plan` as it is; it holds ``entry`` too where the family has several entrypoint
        groups. Kernels to which callers supply code are among them.
        """
        from jitlto.model import enumeration

        several = len(self.entrypoints) > 1
        user_symbols = enumeration.find_user_symbols(self.record, self.index)
        for kernel in enumeration.enumerate_kernels(self.index, user_symbols):
            if isinstance(kernel, enumeration.Kernel):
                group = {"entry": kernel.resolution.entry.key.group} if several else {}
                yield group | dict(kernel.configuration)

    def planner(self, entry: str | None = None, **configuration: object) -> Planner[Launcher]:
        """A planner, to which fragments and a user's own device code can be added.

        Args:
            entry: The entrypoint's group, where the family has several.
            **configuration: Parameter values as text, numbers, booleans or dtypes.
        """
        from jitlto.runtime.planning.planner import Planner

        return Planner(self, self.session, entry, configuration, self.load)

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

    def plan_request(self, request: Request, arch: str | Architecture | None = None) -> Plan:
        """Plan a request that was recorded, maybe on another machine.

        Args:
            request: One to this family.
            arch: The target; by default the current device's.

        Raises:
            PlanError, CompileError: If it does not plan: the family has changed, or an input does not compile here.
        """
        planner = self.planner(request.entry, **request.configuration).add_request(request)
        return planner.plan(arch=arch, link_mode=request.link_mode, link_options=request.link_options)

    def launcher(
        self,
        *,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Launcher:
        """The launcher of a configuration on the current device: linked at the first call, found at the next.

        The kernel that answered the same request in an earlier process of this user is found without planning
        (``jitlto.runtime.discovery.lookup_cache``); :attr:`Launcher.plan` then plans when it is needed.

        Raises:
            PlanError, LinkError, NoDeviceError: If it cannot be planned, linked or loaded. A failed link is remembered
                and not tried again.
            DatabaseError: If the database has to be opened, and cannot be read any more.
        """
        if link_options and not isinstance(link_options, Mapping):
            raise TypeError(f"link options must be a dict, not {type(link_options).__name__}")
        options = tuple(sorted((name, type(o), o) for name, o in link_options.items())) if link_options else ()
        # The types too: to Python 1, 1.0 and True are equal, to a family "1", "1.0" and "true" are not.
        types = tuple(map(type, configuration.values()))
        request = (device.kind(), entry, link_mode, options, tuple(configuration.items()), types)
        try:
            return self._requests[request]
        except (KeyError, TypeError):
            pass  # TypeError: a value that cannot be hashed, which planning will name
        link_options = dict(link_options or {})  # whoever changes theirs afterwards changes nothing here
        capability = device.current().compute_capability
        cache, key, launcher = self.session.lookup_cache, None, None
        if cache is not None:
            key = self._request_key(entry, link_mode, link_options, configuration, capability)
            chosen = cache.find_chosen(key) if key else None
            if chosen is not None:
                launcher = self._find(chosen, entry, link_mode, link_options, configuration)
        if launcher is None:
            plan = self.planner(entry, **configuration).plan(link_mode=link_mode, link_options=link_options)
            launcher = self._load_plan(plan)
            # Where PTX stands in for LTO-IR or for a cubin, each process is to say so.
            target, (major, minor) = plan.link_target, capability
            as_requested = target.link_mode == link_mode and target.jit_base is None
            if cache and key and as_requested and target.architecture.number == 10 * major + minor:
                cache.store_chosen(key, plan.chosen)
        self._requests[request] = launcher
        return launcher

    def _request_key(
        self,
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object],
        configuration: Mapping[str, object],
        capability: tuple[int, int],
    ) -> str | None:
        """The key of a request in the lookup cache; None if it has none."""
        try:
            values = {name: cpp_name(value) for name, value in configuration.items()}
        except TypeError:
            return None
        return request_key(self._file.contents.digest, self.name, entry, link_mode, link_options, values, capability)

    def dispatcher(
        self,
        *names: str,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **fixed: object,
    ) -> Dispatcher:
        """A dispatcher, for callers who choose a variant on every call.

        Args:
            *names: The parameters whose values come with each call, in their order.
            entry, link_mode, link_options: As for :meth:`launcher`.
            **fixed: Values of other parameters.

        Raises:
            UnknownParameterError, UnknownValueError: If the family does not have such a parameter or value.
        """
        from jitlto.runtime.dispatcher import Dispatcher

        made = Dispatcher(self, names, fixed, entry, link_mode, link_options)
        self._dispatchers.add(made)
        return made

    def load(self, plan: Plan) -> Launcher:
        """Link and load a plan, or find what was loaded for an equal one."""
        device.current()  # whose absence is to be the error, before that of a link
        return self._load_plan(plan)

    def _load_plan(self, plan: Plan) -> Launcher:
        launcher = None
        while launcher is None:  # None: another thread looked for it in the caches alone
            launcher = self._load_once(plan.chosen, plan.link, lambda _: plan)
        return launcher

    def _find(
        self,
        chosen: Chosen,
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object],
        configuration: Mapping[str, object],
    ) -> Launcher | None:
        """The launcher of a kernel that was linked before; None if it is not there any more."""
        name, file, session = self.name, self._file, self.session

        def find() -> LinkedKernel | None:
            linked = session.kernel_cache.find(chosen.digest, file.location)
            if linked is not None:
                session.events.emit(EVENT_OF_LAYER[linked.layer], chosen.kernel, chosen.digest, linked.seconds)
            return linked

        def plan(linked: LinkedKernel) -> Plan:
            # With a family of its own: a launcher that held its family would be held by what it holds.
            planner = KernelFamily(name, file, session).planner(entry, **configuration)
            return planner.plan(arch=linked.architecture, link_mode=link_mode, link_options=link_options)

        return self._load_once(chosen, find, plan)

    def _load_once(
        self, chosen: Chosen, get: Callable[[], LinkedKernel | None], plan: Callable[[LinkedKernel], Plan]
    ) -> Launcher | None:
        """The launcher of a kernel, loaded by one thread, for which the others wait; None if ``get`` gives none."""
        digest = chosen.digest
        launcher = self._launchers.get(digest)
        if launcher is not None:
            return launcher
        made = False

        def make() -> Launcher | None:
            nonlocal made
            launcher = self._launchers.get(digest)
            if launcher is not None:
                return launcher  # loaded between our look and our turn
            if digest in self._failures:
                raise_copy(self._failures[digest])
            try:
                linked = get()
            except LinkError as error:  # what is missing, or cannot be loaded, may be there next time
                self._failures[digest] = error
                raise
            if linked is None:
                return None
            made = True
            return self._launchers.setdefault(digest, self._launcher(chosen, linked, lambda: plan(linked)))

        launcher, _ = self.session.flights.run((id(self), digest), make)
        if launcher is not None and made:
            # Nobody waits for this thread any more, so that a subscriber may take its time.
            self.session.events.emit(Kind.LOADED, chosen.kernel, digest, launcher.load_seconds)
            residency = self.session.residency
            if residency is not None:
                residency.add(self, digest)
        return launcher

    def _launcher(self, chosen: Chosen, linked: LinkedKernel, plan: Callable[[], Plan]) -> Launcher:
        from jitlto.runtime.launch.launcher import Launcher

        return Launcher(chosen, linked, plan)

    def forget(self, digest: str) -> None:
        """Drop the launcher of a plan; its code is unloaded when nobody holds it any more."""
        self._failures.pop(digest, None)
        launcher = self._launchers.pop(digest, None)
        tables = [self._requests, *(table for each in self._dispatchers for table in each.tables.values())]
        for table in tables:
            for request in [key for key, value in list(table.items()) if value is launcher]:
                table.pop(request, None)


def _require_name(family: str) -> None:
    if not isinstance(family, str):
        raise TypeError(f"family must be a name, not {type(family).__name__}")
