"""A family that is compiled from its sources: the fragments of a plan when it is asked for, and again after edits.

What a configuration selects of a family is built by the same pipeline as a whole family, into the build cache, and
opened as a database. Times of files tell only whether to look again; what is compiled again follows from contents.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from jitlto.base.errors import NoDeviceError, PlanError
from jitlto.base.files import SUFFIX, Identity, identity
from jitlto.base.log import log, warn_once
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import open_cache
from jitlto.build.execution.workers import local_executor
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies, declared_places
from jitlto.compile.compiler import find_toolchain
from jitlto.compile.source_files import walk
from jitlto.cuda import device
from jitlto.cuda.compatibility import can_link_for
from jitlto.database import FragmentDatabase
from jitlto.database.index import Index
from jitlto.families.declaration import FamilyDeclaration, change_all, find_family, load_family, project_root
from jitlto.link.requests import Contents, FamilyContents
from jitlto.plan.configuration import normalize_configuration
from jitlto.plan.plan import Plan
from jitlto.plan.planner import Planner, parse_target
from jitlto.plan.resolve_errors import which_entrypoint
from jitlto.record.family_record import FamilyRecord
from jitlto.record.fragment import FragmentKey, Role, agrees, sorted_values
from jitlto.runtime.discovery.registry import DatabaseFile
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.session import Session

if TYPE_CHECKING:  # not imported at run time: it loads cuda.core and NumPy, and planning needs neither
    from jitlto.launch.launcher import Launcher

_PATIENCE = 600.0  # seconds of waiting for another process that compiles for the same family
_ALL = "all"


@dataclass(frozen=True, eq=False)
class _Part:
    """What is compiled of the sources as they are, and grows with what is asked of it: one open database a target."""

    keys: Set[FragmentKey]
    family: KernelFamily
    asked: set[object] = field(default_factory=set)


class SourceFamily(KernelFamily):
    """A family of kernels, loaded from its sources; made by :func:`jitlto.load`. Thread-safe.

    What concerns all kernels, such as :meth:`configurations` and :attr:`best`, compiles the whole family.

    Args:
        path: The ``family.toml``, or the directory that holds it.
        session: The session to use.

    Raises:
        FamilyError, MatrixError, RenderError: If it is not a family.
    """

    def __init__(self, path: Path, session: Session) -> None:
        self.path = find_family(path.absolute())  # so that a later chdir has no effect
        self._locks: dict[int, Any] = {}  # by process: a fork has none that a thread of its parent holds
        self._watched: dict[str, Identity] = {}
        self._rendered: dict[Architecture | None, RenderedFamilies] = {None: RenderedFamilies(())}  # by target
        self._parts: dict[Architecture | str | None, _Part]  # by target, and of all kernels
        self._update()
        self._begin(session)
        self._launchers = WeakValueDictionary()  # type: ignore[assignment]  # of all parts

    def __reduce__(self) -> tuple[Any, ...]:
        """Be loaded again, in another process, from the same path."""
        return SourceFamily, (self.path, self.session)

    @property
    def location(self) -> Path:
        """The path of the ``family.toml``."""
        return self.path

    @property
    def in_place(self) -> bool:
        """True if there is a ``family.toml``."""
        return self.path.is_file()

    @property
    def record(self) -> FamilyRecord:
        """The family's record, with the groups of the families that it uses."""
        records = next(iter(self._rendered.values())).records
        return records[self.name].with_used(records)

    @property
    def database(self) -> FragmentDatabase:
        """The database of all kernels, as ``jitlto build`` makes it."""
        return self._whole.database

    @property
    def index(self) -> Index:
        """The fragments of all kernels, and of the families that it uses."""
        return self._whole.index

    @property
    def _file(self) -> DatabaseFile:  # type: ignore[override]
        return self._whole._file

    @property
    def _whole(self) -> KernelFamily:
        with self._lock:
            self._update()
            if _ALL not in self._parts:
                self._parts[_ALL] = _Part(frozenset(), self._build(RenderedFamilies([load_family(self.path)])))
            return self._parts[_ALL].family

    @property
    def _lock(self) -> Any:
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def planner(self, /, entry: str | None = None, **configuration: object) -> Planner[Launcher]:
        """Return a planner for fragments that are compiled for the current device, or for any if there is none."""
        part, given = self._part(None, configuration, self._select_kernel, entry, False)
        return part.planner(entry, **given)

    def plan(self, *, entry: str | None = None, arch: str | Architecture | None = None, **asked: Any) -> Plan:
        """Compile what a configuration selects, for the target, and resolve it."""
        plan: Plan = self._ask("plan", entry, arch, asked, {"arch": arch})
        return plan

    def launcher(self, *, entry: str | None = None, **asked: Any) -> Launcher:
        """Return the launcher of a configuration on the current device, the same one until its code has changed.

        Raises:
            JitltoError: As that of a database; or the sources do not build, and earlier launchers stay usable.
        """
        device.current()  # raises if there is none, before anything is compiled
        launcher: Launcher = self._ask("launcher", entry, None, asked, {})
        return launcher

    def callback(
        self, group: str, /, *, arch: str | Architecture | None = None, **configuration: object
    ) -> tuple[str, bytes]:
        """Compile a device function for a library that links it itself; see :meth:`KernelFamily.callback`."""
        part, _ = self._part(arch, configuration, self._select_group, group)
        return part.callback(group, arch=arch, **configuration)

    def _ask(
        self,
        method: str,
        entry: str | None,
        arch: str | Architecture | None,
        asked: dict[str, Any],
        how: dict[str, Any],
    ) -> Any:
        """Call a method of what is compiled for a configuration, which is ``asked`` with the options of its link."""
        how |= {name: asked.pop(name) for name in ("link_mode", "link_options") if name in asked}
        try:
            part, given = self._part(arch, asked, self._select_kernel, entry, False)
            return getattr(part, method)(entry=entry, **how, **given)
        except PlanError:  # the fragments that do not agree say what there is
            part, given = self._part(arch, asked, self._select_kernel, entry, True)
            return getattr(part, method)(entry=entry, **how, **given)

    def _part(
        self,
        arch: str | Architecture | None,
        configuration: Mapping[str, object],
        select: Callable[..., set[FragmentKey]],
        *asked: object,
    ) -> tuple[KernelFamily, dict[str, Any]]:
        """Return what is selected for a configuration, compiled for an architecture, and what it has of the former."""
        with self._lock:
            self._update()
            given, target = normalize_configuration(configuration, self.parameters, self.name), _target(arch)
            what, part = (*asked, *sorted(given.items())), self._parts.get(target)
            if part is None or what not in part.asked:
                keys = select(given, *asked) | (part.keys if part else set())
                if part is None or keys != part.keys:
                    if target not in self._rendered:
                        self._rendered[target] = _render(self.path, target)
                    built = self._build(self._rendered[target].select(lambda each: each.key in keys))
                    part = self._parts[target] = _Part(keys, built)
                part.asked.add(what)
            built = part.family
        # It lacks parameters on which its kernels do not depend.
        return built, {name: value for name, value in given.items() if name in built.parameters}

    def _select_group(self, given: Mapping[str, str], group: str) -> set[FragmentKey]:
        """Return the fragments of a group that agree with a configuration."""
        return {each.key for each in self._own if each.key.group == group and agrees(each.pairs, given)}

    def _select_kernel(self, given: Mapping[str, str], entry: str | None, is_wide: bool) -> set[FragmentKey]:
        """Return what agrees with a configuration, and where nothing of a group does, perhaps all of that.

        Raises:
            PlanError: If not exactly one entrypoint agrees, which is known without compiling.
        """
        asked = {**given, "entry": entry} if entry else given
        agreeing = [each for each in self._own if agrees(each.pairs, asked)]
        if sum(each.group.role is Role.ENTRYPOINT for each in agreeing) != 1:
            entries = [each.key for each in self._own if each.group.role is Role.ENTRYPOINT]
            raise which_entrypoint(sorted(entries), given, entry)
        groups = {each.group.name for each in agreeing}
        others = [each.key for each in self._own if is_wide and each.group.name not in groups]
        return {*others, *(each.key for each in agreeing)}

    def _update(self) -> None:
        """Read the sources again, if a file was changed, added or removed since they were read."""
        if self._watched and all(_identify(path) == known for path, known in self._watched.items()):
            return
        # Before anything is read that is used, so that a change meanwhile is seen the next time.
        declared = {str(self.path): _identify(str(self.path))}
        family = load_family(self.path)
        target = next(reversed(self._rendered))
        paths = _paths((family, *family.all_used().values())) | self._watched.keys()
        while True:
            watched = {path: _identify(path) for path in paths} | declared
            rendered = _render(self.path, target)
            if (reached := _reached_files(rendered)) <= paths:
                break
            paths |= reached
        family = rendered.families[0]
        self.name = family.name
        self._own = [r for r in rendered.rendered if r.key.family == family.name or r.group.role is Role.DEVICE]
        self._held = FamilyContents(
            sorted_values((name, (value,)) for each in self._own for name, value in each.key.parameters),
            tuple(sorted({r.group.name for r in self._own if r.group.role is Role.ENTRYPOINT})),
            family.version,
        )
        self._rendered, self._parts, self._watched = {target: rendered}, {}, watched
        if "best" in self.__dict__:
            self.best.forget()

    def _build(self, sources: RenderedFamilies) -> KernelFamily:
        """Build a database, and return the family of it."""
        place = os.path.realpath(self.path)
        warn_once(__name__, place, "%s: fragments are compiled when they are asked for", self.path)
        cache = open_cache()  # no shared store: who edits is alone
        key = hashlib.sha256(os.fsencode(place)).hexdigest()
        is_alone = cache.store.locked(key, _PATIENCE, f"compiles fragments of {self.name}") if cache else nullcontext()
        with is_alone:
            executor = local_executor()  # in whose directory the database ends with this process
            path = executor.directory / f"{os.urandom(8).hex()}{SUFFIX}"
            report = build(sources, path, executor=executor, cache=cache, is_proved=False)
        log(__name__, "info", "%s: %s", self.path, report.summary)
        database = FragmentDatabase(path, list(report.fragments))
        file = DatabaseFile(self.path, database.location, Contents.from_database(database), database)
        made = KernelFamily(self.name, file, self.session)
        made._launchers = self._launchers
        return made


def _paths(families: Collection[FamilyDeclaration]) -> set[str]:
    """Return what is declared or may be a template, and the directories in which another file might be found first."""
    named, texts = (set[Path]().union(*each) for each in zip(*map(declared_places, families), strict=True))
    searched = {project_root(each.path) / name for each in families for name in ("matrices", "templates")}
    searched |= {folder for each in families for folder in each.include}
    found = {path for path, _ in walk(texts)}
    found |= {path for path, is_folder in walk(searched) if is_folder}
    return found | {str(path) for each in named for path in (each, each.parent)} | {*map(str, searched)}


def _reached_files(rendered: RenderedFamilies) -> set[str]:
    """Return the headers that rendered sources may include, and the binaries of groups."""
    named = {(each.config.own, name) for each in rendered.requests for name in each.own_closure.headers}
    headers = {str(path) for search, name in named if (path := search.path(name))}
    return headers | {each.text for each, _ in rendered.binaries}


def _identify(path: str) -> Identity:
    """Return what changes when a file is written, or an entry of a directory is added or removed."""
    try:
        return identity(os.stat(path))  # noqa: PTH116 - a text, for each launcher
    except OSError:
        return ()


def _target(arch: str | Architecture | None) -> Architecture | None:
    """Return the architecture to compile for; None if there is no device either.

    Raises:
        PlanError: If it is invalid.
    """
    try:
        return parse_target(arch) or device.architecture()
    except NoDeviceError:
        return None


def _render(path: Path, target: Architecture | None) -> RenderedFamilies:
    return RenderedFamilies(change_all([load_family(path)], partial(_for_target, target=target)))


def _for_target(family: FamilyDeclaration, target: Architecture | None) -> FamilyDeclaration:
    """Return a declaration for one target: without cubins, and with LTO-IR of the target if the compiler makes it.

    It stays that of the declared architectures if these are above the target, or special ones.
    """
    family = replace(family.without_cubins(), is_auto=False)
    declared = [*family.architectures, *(each for group in family.groups for each in group.architectures)]
    if target is None or any(each.suffix or each.number > target.number for each in declared):
        return family
    if not can_link_for(find_toolchain(family.toolchain).version, target):  # which holds for compilers too
        return family
    groups = tuple(replace(group, architectures=()) for group in family.groups)
    return replace(family, architectures=(target,), groups=groups)
