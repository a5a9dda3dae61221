"""A family at run time: from a configuration to a plan or a launcher."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from jitlto import config
from jitlto.cuda import device
from jitlto.errors import DatabaseError, LinkError
from jitlto.model.types import cpp_name
from jitlto.runtime.discovery import lookup_cache, registry
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.linking import kernel_cache
from jitlto.storage.files import digest_of

if TYPE_CHECKING:  # what finding a linked kernel does not need
    from jitlto.model.family_record import FamilyRecord
    from jitlto.model.resolve import Index
    from jitlto.model.versions import Architecture
    from jitlto.runtime.discovery.lookup_cache import Chosen
    from jitlto.runtime.dispatcher import Dispatcher
    from jitlto.runtime.launch.launcher import Launcher
    from jitlto.runtime.linking.kernel_cache import LinkedKernel
    from jitlto.runtime.linking.single_flight import OnceMap
    from jitlto.runtime.planning.plan import Plan
    from jitlto.runtime.planning.planner import Planner
    from jitlto.storage.database import FragmentDatabase


def load(family: str, database: str | os.PathLike[str] | FragmentDatabase | None = None) -> KernelFamily:
    """Load a family from a fragment database.

    Parameters
    ----------
    family : str
        Its name.
    database : path or FragmentDatabase, optional
        Where it is; by default it is looked for as by :func:`family`.

    Raises
    ------
    RegistryError
        If no database holds the family, or several hold different ones.
    DatabaseError
        If a database cannot be read.
    """
    _require_name(family)
    if database is None:
        return KernelFamily(family, registry.default().find(family))
    if isinstance(database, str | os.PathLike):
        return KernelFamily(family, registry.default().file(database))
    from jitlto.storage.database import FragmentDatabase

    if not isinstance(database, FragmentDatabase):
        raise TypeError(f"a database is given by its path or as a FragmentDatabase, not as a {type(database).__name__}")
    return KernelFamily(family, database)


def family(name: str, *, distribution: str | None = None) -> KernelFamily:
    """A family by its name: from the databases on ``JITLTO_DATABASE_PATH``, or else from an installed package.

    No package is imported for it. A process gets the same object for the same name as long as the database is the same.

    Parameters
    ----------
    name : str
        The family's name.
    distribution : str, optional
        The installed package that is meant, where several bring a family of that name.

    Raises
    ------
    RegistryError
        If nothing holds the family, or several hold different ones.
    DatabaseError
        If its database cannot be read; of a package that is installed editable, if it cannot be built.
    """
    _require_name(name)
    known = registry.default()
    found = known.loaded.get((name, distribution))
    if found is not None and found.in_place:
        return found
    made = KernelFamily(name, known.find(name, distribution))
    if found is None:
        return known.loaded.setdefault((name, distribution), made)  # the first thread's
    known.loaded[name, distribution] = made
    return made


class KernelFamily:
    """A family of kernels in a fragment database. Safe to use from several threads.

    Parameters
    ----------
    name : str
        The family's name.
    database : FragmentDatabase or DatabaseFile
        Where it is.

    Raises
    ------
    RegistryError
        If the database does not hold the family.
    DatabaseError
        If it is a part of a build.
    """

    def __init__(self, name: str, database: FragmentDatabase | DatabaseFile) -> None:
        file = database if isinstance(database, DatabaseFile) else DatabaseFile.of(database)
        contents = file.contents.families.get(name)
        if file.contents.part is not None:
            from jitlto.storage.database import MERGE_HINT

            raise DatabaseError(
                f"is {file.contents.part} of a build: its kernels lack fragments",
                where=str(file.path),
                hint=MERGE_HINT,
            )
        if contents is None:
            from jitlto.runtime.discovery import errors

            raise errors.not_held(name, file)
        self.name = name
        self._file = file
        #: The parameters, and the values that occur.
        self.parameters: Mapping[str, tuple[str, ...]] = contents.parameters
        #: The groups of entrypoints.
        self.entrypoints: tuple[str, ...] = contents.entrypoints
        self._requests: dict[object, Launcher] = {}
        self._launchers: dict[str, Launcher] = {}  # by digest
        self._record: FamilyRecord | None = None
        self._index: Index | None = None
        self._loading = threading.RLock()  # of what is found; subscribers to events may ask for more meanwhile
        self._dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<KernelFamily {self.name} ({', '.join(self.parameters)}) of {self._file.path}>"

    @property
    def database(self) -> FragmentDatabase:
        """Where it is, opened now if nothing has needed it yet.

        Raises
        ------
        DatabaseError
            If it cannot be read any more, or another one has taken its place.
        """
        return self._file.database

    @property
    def in_place(self) -> bool:
        """Whether the file that it was loaded from still holds the same database."""
        return digest_of(self._file.location) == self._file.contents.digest

    # Not cached_property, whose lock (until Python 3.12) a fork could leave locked.
    @property
    def record(self) -> FamilyRecord:
        """What the database says of the family as a whole."""
        if self._record is None:
            self._record = self.database.families[self.name]
        return self._record

    @property
    def index(self) -> Index:
        """The family's fragments, as resolving needs them."""
        if self._index is None:
            from jitlto.model.resolve import Index

            self._index = Index(self.database.fragments(self.name))
        return self._index

    def configurations(self) -> Iterator[dict[str, str]]:
        """All configurations of the family, lazily: each plans to exactly one kernel, and each kernel occurs once.

        Each can be given to :meth:`plan` as it is; it holds ``entry`` too where the family has several entrypoint
        groups. Kernels to which callers supply code are among them.
        """
        from jitlto.model import enumeration

        several = len(self.entrypoints) > 1
        left = enumeration.left_to_callers(self.record, self.index)
        for found in enumeration.kernels(self.index, left):
            if isinstance(found, enumeration.Kernel):
                group = {"entry": found.resolution.entry.key.group} if several else {}
                yield group | dict(found.configuration)

    def planner(self, entry: str | None = None, **configuration: object) -> Planner:
        """A planner, to which fragments and a user's own device code can be added.

        Parameters
        ----------
        entry : str, optional
            The entrypoint's group, where the family has several.
        **configuration
            Parameter values as text, numbers, booleans or dtypes.
        """
        from jitlto.runtime.planning.planner import Planner

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

    def launcher(
        self,
        *,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Launcher:
        """The launcher of a configuration on the current device: linked at the first call, found at the next.

        What an earlier process of this user was given for the same request is found without planning
        (``jitlto.runtime.discovery.lookup_cache``); :attr:`Launcher.plan` then plans when it is asked for.

        Raises
        ------
        PlanError, LinkError, NoDeviceError
            If it cannot be planned, linked or loaded. A failed link is remembered and not tried again.
        DatabaseError
            If the database has to be opened, and cannot be read any more.
        """
        if link_options and not isinstance(link_options, Mapping):
            raise TypeError(f"link options are given as a dict, not as a {type(link_options).__name__}")
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
        known = lookup_cache.in_use()
        asked = self._asked(entry, link_mode, link_options, configuration, capability) if known else None
        chosen = known.chosen(asked) if known and asked else None
        launcher = None
        if chosen is not None:
            again = partial(_plan, self.name, self._file, entry, link_mode, link_options, configuration)
            launcher = self._found(chosen, again)
        if launcher is None:
            from jitlto.runtime.planning.planner import Planner

            planned = Planner(self, entry, configuration).plan(link_mode=link_mode, link_options=link_options)
            launcher = self.load(planned)
            # Where PTX stands in for LTO-IR or for a cubin, each process is to say so.
            as_asked = planned.link_mode == link_mode and planned.jit_base is None
            if known and asked and as_asked and planned.target.number == _number(capability):
                known.keep_chosen(asked, planned.chosen)
        self._requests[request] = launcher
        return launcher

    def _asked(
        self,
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object],
        configuration: Mapping[str, object],
        capability: tuple[int, int],
    ) -> str | None:
        """What is asked, for shortcuts; None if that cannot be said."""
        try:
            values = {name: cpp_name(value) for name, value in configuration.items()}
        except TypeError:
            return None
        return lookup_cache.question(
            self._file.contents.digest, self.name, entry, link_mode, link_options, values, capability
        )

    def dispatcher(
        self,
        *names: str,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **fixed: object,
    ) -> Dispatcher:
        """A dispatcher, for callers who choose a variant on every call.

        Parameters
        ----------
        *names : str
            The parameters whose values come with each call, in their order.
        entry, link_mode, link_options
            As for :meth:`launcher`.
        **fixed
            Values of other parameters.

        Raises
        ------
        UnknownParameterError, UnknownValueError
            If the family does not have such a parameter or value.
        """
        from jitlto.runtime.dispatcher import Dispatcher

        made = Dispatcher(self, names, fixed, entry, link_mode, link_options)
        self._dispatchers.add(made)
        return made

    def load(self, plan: Plan) -> Launcher:
        """Link and load a plan, or find what was loaded for an equal one."""
        device.current()  # whose absence is to be the error, before that of a link
        return self._linking.get(plan.digest, lambda: self._loaded(plan.chosen, plan.link(), lambda: plan))

    @property
    def _linking(self) -> OnceMap[str, Launcher]:
        from jitlto.runtime.linking.single_flight import OnceMap  # of which finding kernels has no need

        # A link that fails will fail again; what is missing, or cannot be loaded, may be there next time.
        made: OnceMap[str, Launcher] = OnceMap(LinkError, self._launchers)
        return self.__dict__.setdefault("_linking_once", made)  # type: ignore[no-any-return]  # the first thread's

    def _found(self, chosen: Chosen, plan: Callable[[Architecture], Plan]) -> Launcher | None:
        """The launcher of a kernel that was linked before; None if it is not there any more."""
        with self._loading:
            loaded = self._launchers.get(chosen.digest)
            if loaded is not None:
                return loaded
            linked = kernel_cache.default().take(chosen.digest, chosen.kernel, self._file.location)
            if linked is None:
                return None
            made = self._loaded(chosen, linked, lambda: plan(linked.architecture))
            return self._launchers.setdefault(chosen.digest, made)

    def _loaded(self, chosen: Chosen, linked: LinkedKernel, plan: Callable[[], Plan]) -> Launcher:
        from jitlto.runtime.launch.launcher import Launcher

        launcher = Launcher(chosen, linked, plan)
        limit = config.current().max_loaded
        if limit is not None:
            from jitlto.runtime.launch import residency as loaded

            loaded.of_process(limit).add(self, chosen.digest)
        return launcher

    def forget(self, digest: str) -> None:
        """Drop the launcher of a plan; its code is unloaded when nobody holds it any more."""
        launcher = self._linking.discard(digest)
        tables = [self._requests, *(table for each in self._dispatchers for table in each.tables.values())]
        for table in tables:
            for request in [key for key, value in list(table.items()) if value is launcher]:
                table.pop(request, None)


def _require_name(family: str) -> None:
    if not isinstance(family, str):
        raise TypeError(f"a family is given by its name, not as a {type(family).__name__}")


def _plan(
    name: str,
    file: DatabaseFile,
    entry: str | None,
    link_mode: str,
    link_options: Mapping[str, object],
    configuration: Mapping[str, object],
    arch: Architecture,
) -> Plan:
    """Plan with a family of its own: a launcher that held its family would be held by what it holds."""
    from jitlto.runtime.planning.planner import Planner

    planner = Planner(KernelFamily(name, file), entry, configuration)
    return planner.plan(arch=arch, link_mode=link_mode, link_options=link_options)


def _number(capability: tuple[int, int]) -> int:
    return 10 * capability[0] + capability[1]
