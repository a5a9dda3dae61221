"""A family at run time: from a configuration to a plan or a launcher."""

from __future__ import annotations

import difflib
import os
import re
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jitlto.database import FragmentDatabase
from jitlto.errors import DatabaseError, JitltoError, LinkError, PlanError, RegistryError
from jitlto.fragment import Fragment, FragmentKey, Symbol
from jitlto.runtime import device, events
from jitlto.runtime.configuration import normalise, parameter_values
from jitlto.runtime.device import kind
from jitlto.runtime.events import Kind
from jitlto.runtime.once import OnceMap
from jitlto.runtime.plan import Plan
from jitlto.runtime.resolve import Index, resolve
from jitlto.runtime.wisdom import Request
from jitlto.versions import Architecture

if TYPE_CHECKING:  # what finding a linked kernel does not need
    from jitlto.runtime import supply
    from jitlto.runtime.launcher import Launcher
    from jitlto.runtime.linker import InputKind
    from jitlto.runtime.numba_code import PythonFunction


def load(family: str, database: str | os.PathLike[str] | FragmentDatabase | None = None) -> KernelFamily:
    """Load a family from a fragment database.

    Parameters
    ----------
    family : str
        Its name.
    database : path or FragmentDatabase, optional
        Where it is; by default one of the databases on ``JITLTO_DATABASE_PATH``.

    Raises
    ------
    RegistryError
        If no database holds the family, or several hold different ones.
    DatabaseError
        If a database cannot be read.
    """
    from jitlto.runtime import registry

    if database is None:
        found = registry.default().find(family)
    elif isinstance(database, FragmentDatabase):
        found = database
    else:
        found = registry.default().open(database)
    return KernelFamily(family, found)


class KernelFamily:
    """A family of kernels in a fragment database. Safe to use from several threads.

    Parameters
    ----------
    name : str
        The family's name.
    database : FragmentDatabase
        Where it is.

    Raises
    ------
    RegistryError
        If the database does not hold the family.
    """

    def __init__(self, name: str, database: FragmentDatabase) -> None:
        if database.part is not None:
            raise DatabaseError(
                f"is {database.part} of a build: its kernels lack fragments",
                where=str(database.path),
                hint="merge all parts first: jitlto merge -o DB PART...",
            )
        if name not in database.families:
            near = difflib.get_close_matches(name, list(database.families), 1)
            held = f"it holds {', '.join(database.families) or 'none'}"
            raise RegistryError(
                f"holds no family {name!r}",
                where=str(database.path),
                hint=f"did you mean {near[0]}? {held}" if near else held,
            )
        self.name = name
        self.database = database
        self.record = database.families[name]
        fragments = database.fragments(name)
        self.index = Index(fragments)
        #: The parameters, and the values that occur.
        self.parameters: Mapping[str, tuple[str, ...]] = parameter_values(fragments)
        self._requests: dict[object, Launcher] = {}
        # A link that fails will fail again; what is missing, or cannot be loaded, may be there next time.
        self._launchers: OnceMap[str, Launcher] = OnceMap(LinkError)
        self._dispatchers: weakref.WeakSet[Dispatcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<KernelFamily {self.name} ({', '.join(self.parameters)}) of {self.database.path}>"

    def configurations(self) -> Iterator[dict[str, str]]:
        """All configurations of the family, lazily: each plans to exactly one kernel, and each kernel occurs once.

        Each can be given to :meth:`plan` as it is; it holds ``entry`` too where the family has several entrypoint
        groups. Kernels to which callers supply code are among them.
        """
        from jitlto.runtime import enumeration

        several = len({fragment.key.group for fragment in self.index.entrypoints}) > 1
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
        return Planner(self, entry, configuration).plan(arch=arch, link_mode=link_mode, link_options=link_options)

    def launcher(
        self,
        *,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Launcher:
        """The launcher of a configuration on the current device: linked at the first call, found at the next.

        Raises
        ------
        PlanError, LinkError, NoDeviceError
            If it cannot be planned, linked or loaded. A failed link is remembered and not tried again.
        """
        options = tuple(sorted((name, type(o), o) for name, o in link_options.items())) if link_options else ()
        # The types too: to Python 1, 1.0 and True are equal, to a family "1", "1.0" and "true" are not.
        types = tuple(map(type, configuration.values()))
        request = (device.kind(), entry, link_mode, options, tuple(configuration.items()), types)
        try:
            return self._requests[request]
        except (KeyError, TypeError):
            pass  # TypeError: a value that cannot be hashed, which planning will name
        launcher = Planner(self, entry, configuration).launcher(link_mode=link_mode, link_options=link_options)
        self._requests[request] = launcher
        return launcher

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
        made = Dispatcher(self, names, fixed, entry, link_mode, link_options)
        self._dispatchers.add(made)
        return made

    def load(self, plan: Plan) -> Launcher:
        """Link and load a plan, or find what was loaded for an equal one."""

        def make() -> Launcher:
            from jitlto.runtime import loaded
            from jitlto.runtime.launcher import Launcher

            launcher = Launcher(plan, plan.link())
            loaded.default().add(self, plan.digest)
            return launcher

        device.current()  # whose absence is to be the error, before that of a link
        return self._launchers.get(plan.digest, make)

    def forget(self, digest: str) -> None:
        """Drop the launcher of a plan; its code is unloaded when nobody holds it any more."""
        launcher = self._launchers.discard(digest)
        tables = [self._requests, *(table for each in self._dispatchers for table in each.tables.values())]
        for table in tables:
            for request in [key for key, value in list(table.items()) if value is launcher]:
                table.pop(request, None)


class Dispatcher:
    """Chooses a launcher by values that come with each call: one look-up, once it has been linked.

    Made by :meth:`KernelFamily.dispatcher`. Safe to use from several threads.
    """

    def __init__(
        self,
        family: KernelFamily,
        names: Sequence[str],
        fixed: Mapping[str, object],
        entry: str | None,
        link_mode: str,
        link_options: Mapping[str, object] | None,
    ) -> None:
        twice = [name for name in names if name in fixed or list(names).count(name) > 1]
        if twice:
            raise PlanError(f"parameter {twice[0]!r} is given twice", where=family.name)
        _refuse_unknown_mode(link_mode)
        groups = sorted({fragment.key.group for fragment in family.index.entrypoints})
        if entry is not None and entry not in groups:
            raise PlanError(f"there is no entrypoint {entry!r}", hint=f"the entrypoints are {', '.join(groups)}")
        for name in names:
            normalise({name: family.parameters.get(name, ("",))[0]}, family.parameters, family.name)
        normalise(fixed, family.parameters, family.name)
        self.names = tuple(names)
        #: Kind of device → values → launcher.
        self.tables: defaultdict[int, dict[object, Launcher]] = defaultdict(dict)
        self._typed = any(_alike(family.parameters[name]) for name in names)
        self._family = family
        self._fixed = dict(fixed)
        self._how = {"entry": entry, "link_mode": link_mode, "link_options": link_options}

    def __call__(self, *values: object) -> Launcher:
        """The launcher for these values, one for each of the names.

        Raises
        ------
        PlanError, LinkError, NoDeviceError
            As :meth:`KernelFamily.launcher`.
        """
        request = (*values, *map(type, values)) if self._typed else values
        try:
            return self.tables[kind()][request]
        except (KeyError, TypeError):  # TypeError: a value that cannot be hashed, which planning will name
            launcher = self._find(values)
        self.tables[kind()][request] = launcher
        return launcher

    def _find(self, values: tuple[object, ...]) -> Launcher:
        if len(values) != len(self.names):
            raise PlanError(
                f"{len(values)} values given for {len(self.names)} parameters",
                where=self._family.name,
                hint=f"one each for {', '.join(self.names)}",
            )
        chosen = dict(zip(self.names, values, strict=True))
        return self._family.launcher(**self._how, **self._fixed, **chosen)  # type: ignore[arg-type]


def _refuse_unknown_mode(link_mode: str) -> None:
    if link_mode not in ("lto", "ptx"):
        raise PlanError(f"unknown link mode {link_mode!r}", hint="lto or ptx")


def _alike(values: Sequence[str]) -> bool:
    """Whether a parameter has values that Python holds for equal, such as ``1`` and ``true``."""
    numbers = [{"true": "1", "false": "0"}.get(value, value) for value in values]
    return len({float(n) if re.fullmatch(r"-?[0-9]+(\.[0-9]*)?", n) else n for n in numbers}) < len(values)


class Planner:
    """Resolves one configuration of a family, with what the caller adds to it.

    Made by :meth:`KernelFamily.planner`. The ``add`` methods return the planner, so that calls can be chained.
    """

    def __init__(self, family: KernelFamily, entry: str | None, configuration: Mapping[str, object]) -> None:
        self._family = family
        self._entry = entry
        self._configuration = normalise(configuration, family.parameters, family.name)
        self._pinned: list[Fragment] = []
        self._functions: list[PythonFunction] = []
        self._supplied: list[tuple[str, bytes | str, InputKind | None]] = []

    def add(self, key: str | FragmentKey) -> Planner:
        """Take the fragment of that key, whatever the configuration would choose.

        Raises
        ------
        PlanError
            If the database has no such fragment.
        """
        try:
            parsed = key if isinstance(key, FragmentKey) else FragmentKey.parse(str(key))
        except JitltoError as error:
            raise PlanError(error.what, hint=error.hint) from None
        fragment = self._family.database.get(parsed)
        if fragment is None or parsed.family != self._family.name:
            raise PlanError(
                f"no fragment {parsed} in family {self._family.name}",
                where=str(self._family.database.path),
                hint="`jitlto ls DB` lists them",
            )
        self._pinned.append(fragment)
        return self

    def add_source(self, text: str, name: str = "user.cu") -> Planner:
        """Add a device function as CUDA C++; it takes the place of the group that defines the same symbol.

        The family's interface headers are included before it; toolkit headers can be included.

        Parameters
        ----------
        text : str
            The source.
        name : str
            What error messages call it.
        """
        for what, given in (("source", text), ("source's name", name)):
            if not isinstance(given, str):
                raise PlanError(f"the {what} is not text", where=str(name), hint="give CUDA C++ and its name as str")
        self._supplied.append((name, text, None))
        return self

    def add_function(self, function: object, group: str | None = None) -> Planner:
        """Add a device function in Python, which numba-cuda compiles; it takes the place of a group.

        Its types are those that the group's interface declares; the result is converted to the declared one.

        Parameters
        ----------
        function : function
            A Python function, or one that ``numba.cuda.jit`` has decorated.
        group : str, optional
            The group whose place it takes; by default the one called like the function.

        Raises
        ------
        PlanError
            If it is no Python function.
        """
        from jitlto.runtime import numba_code

        self._functions.append(numba_code.python_function(function, group))
        return self

    def add_ltoir(self, data: bytes, name: str = "user.ltoir") -> Planner:
        """Add LTO-IR, bare or in a fatbin."""
        from jitlto.runtime.linker import InputKind

        data = _bytes(data, name)
        kind = InputKind.FATBIN if data[:4] == b"\x50\xed\x55\xba" else InputKind.LTOIR
        self._supplied.append((name, data, kind))
        return self

    def add_ptx(self, data: bytes | str, name: str = "user.ptx") -> Planner:
        """Add relocatable PTX. Nothing is optimised across it, not even in an LTO link."""
        from jitlto.runtime.linker import InputKind

        self._supplied.append((name, data if isinstance(data, str) else _bytes(data, name), InputKind.PTX))
        return self

    def add_binary(self, data: bytes, kind: str, name: str | None = None) -> Planner:
        """Add a ``fatbin``, ``cubin``, ``object`` or ``library``, by its bytes.

        It is assumed to define what nothing else in the plan defines; the link says if it does not.
        """
        from jitlto.runtime.linker import InputKind

        allowed = (InputKind.FATBIN, InputKind.CUBIN, InputKind.OBJECT, InputKind.LIBRARY)
        if kind not in allowed:
            raise PlanError(f"unknown kind of input {kind!r}", hint=f"one of {', '.join(allowed)}")
        name = name or f"user.{kind}"
        self._supplied.append((name, _bytes(data, name), InputKind(kind)))
        return self

    def plan(
        self,
        *,
        arch: str | Architecture | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
    ) -> Plan:
        """Resolve.

        Parameters
        ----------
        arch : str or Architecture, optional
            The target, e.g. ``sm_90``; by default the current device's, asked when it is needed.
        link_mode : str
            ``lto``: link-time optimisation. ``ptx``: link PTX, with calls between the fragments.
        link_options : mapping, optional
            Put over the family's own; see :class:`~jitlto.link_options.LinkOptions`.

        Raises
        ------
        PlanError
            Or one of its kinds, if the configuration does not lead to one set of fragments.
        CompileError
            If an added source or function does not compile.
        ToolchainError
            If what compiles it is not installed.
        """
        _refuse_unknown_mode(link_mode)
        begin = time.perf_counter()
        supplied = self._inputs()
        resolution = resolve(
            self._family.index,
            self._configuration,
            entry_group=self._entry,
            pinned=self._pinned,
            supplied=[item.symbols for item in supplied],
        )
        try:
            built = self._family.record.link
            options = built.merged(link_options or {})
            target = None if arch is None else Architecture.parse(str(arch))
        except JitltoError as error:
            raise PlanError(error.what, hint=error.hint) from None
        events.tell(Kind.PLANNED, str(resolution.entry.key), seconds=time.perf_counter() - begin)
        request = None  # a Python function cannot be written down
        if not self._functions:
            request = Request(
                self._family.name,
                self._entry,
                self._configuration,
                tuple(str(fragment.key) for fragment in self._pinned),
                tuple(self._supplied),
                link_mode,
                dict(link_options or {}),
            )
        database = self._family.database
        return Plan(
            self._family.name, resolution, tuple(supplied), options, built, link_mode, target, database, request
        )

    def launcher(self, *, link_mode: str = "lto", link_options: Mapping[str, object] | None = None) -> Launcher:
        """The launcher of the plan on the current device."""
        return self._family.load(self.plan(link_mode=link_mode, link_options=link_options))

    def _inputs(self) -> list[supply.UserInput]:
        given = [self._input(*item) for item in self._supplied]
        if not self._functions:
            return given
        from jitlto.runtime import numba_code

        return given + numba_code.from_functions(
            self._functions,
            self._family.record,
            self._family.database.fragments(self._family.name),
            self._configuration,
            entry_group=self._entry,
            pinned=self._pinned,
            supplied=given,
        )

    def _input(self, name: str, data: bytes | str, kind: InputKind | None) -> supply.UserInput:
        from jitlto.runtime import supply
        from jitlto.runtime.linker import InputKind

        if kind is None:
            return supply.from_source(str(data), name, self._family.record)
        if kind is InputKind.PTX:
            return supply.from_ptx(data, name)
        assert isinstance(data, bytes)  # noqa: S101 - the add methods see to it
        return supply.from_binary(data, kind, name, self._wanted())

    def _wanted(self) -> Sequence[Symbol]:
        """What a binary input may be there to provide: all that the family's fragments require of each other."""
        fragments = self._family.database.fragments(self._family.name)
        required = {symbol.name: symbol for fragment in fragments for symbol in fragment.requires}
        return [required[name] for name in sorted(required)]


def _bytes(data: object, name: str) -> bytes:
    """An input's bytes, from anything that holds bytes."""
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(f"is a {type(data).__name__}, not bytes", where=name, hint="give the file's content") from None
