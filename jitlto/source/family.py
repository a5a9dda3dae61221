"""A family that is compiled from its sources: the fragments of a plan when it is asked for, and again after edits.

What a configuration selects of a family is built by the same pipeline as a whole family, into the build cache, and
opened as a database. Times of files tell only whether to look again; what is compiled again follows from contents.
"""

from __future__ import annotations

import filecmp
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jitlto.base.errors import MissingProviderError, NoDeviceError
from jitlto.base.files import EDITABLE, SUFFIX, Identity, identity
from jitlto.base.lock import locked
from jitlto.base.log import log, warn_once
from jitlto.base.user_caches import UserCache
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import open_cache
from jitlto.build.execution.workers import local_executor
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.compile.compiler import find_toolchain
from jitlto.compile.source_files import walk_places
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

Answer = TypeVar("Answer")

_PATIENCE = 600.0  # seconds of waiting for another process that compiles for the same family
_KEPT = 100  # databases of one family


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
        self._toml = find_family(path.absolute())  # so that a later chdir has no effect
        self._locks: dict[int, Any] = {}  # by process: a fork has none that a thread of its parent holds
        self._watched: dict[str, Identity] = {}
        self._rendered: dict[Architecture | None, RenderedFamilies] = {None: RenderedFamilies(())}  # by target
        self._parts: dict[object, tuple[object, KernelFamily]] = {}  # with the state of the sources
        self._update()
        self._hold(self.name, self._held, session)

    def __reduce__(self) -> tuple[Any, ...]:
        """Be loaded again, in another process, from the same path."""
        return SourceFamily, (self._toml, self.session)

    @property
    def path(self) -> Path:
        """The path of the ``family.toml``."""
        return self._toml

    @property
    def location(self) -> Path:
        """The path of the ``family.toml``."""
        return self._toml

    @property
    def in_place(self) -> bool:
        """True if there is a ``family.toml``."""
        return self._toml.is_file()

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
            return self._made(None, lambda: RenderedFamilies([load_family(self.path)]))

    @property
    def _lock(self) -> Any:
        return self._locks.setdefault(os.getpid(), threading.RLock())

    def planner(self, /, entry: str | None = None, **configuration: object) -> Planner[Launcher]:
        """Return a planner for fragments that are compiled for the current device, or for any if there is none."""
        part, given = self._part(entry, configuration, None)
        return part.planner(entry, **given)

    def plan(
        self,
        *,
        entry: str | None = None,
        arch: str | Architecture | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Plan:
        """Compile what a configuration selects, for the target, and resolve it."""
        how: dict[str, Any] = {"arch": arch, "link_mode": link_mode, "link_options": link_options}
        return self._ask(entry, configuration, arch, lambda part, given: part.plan(entry=entry, **how, **given))

    def launcher(
        self,
        *,
        entry: str | None = None,
        link_mode: str = "lto",
        link_options: Mapping[str, object] | None = None,
        **configuration: object,
    ) -> Launcher:
        """Return the launcher of a configuration on the current device, the same one until its code has changed.

        Raises:
            JitltoError: As that of a database; or the sources do not build, and earlier launchers stay usable.
        """
        device.current()  # raises if there is none, before anything is compiled
        how: dict[str, Any] = {"link_mode": link_mode, "link_options": link_options}
        return self._ask(entry, configuration, None, lambda part, given: part.launcher(entry=entry, **how, **given))

    def callback(
        self, group: str, /, *, arch: str | Architecture | None = None, **configuration: object
    ) -> tuple[str, bytes]:
        """Compile a device function for a library that links it itself; see :meth:`KernelFamily.callback`."""
        with self._lock:
            self._update()
            given = normalize_configuration(configuration, self.parameters, self.name)
            own = (each for each in self._own if each.key.group == group and agrees(each.pairs, given))
            part = self._compiled(arch, (group, *sorted(given.items())), lambda: {each.key for each in own})
        return part.callback(group, arch=arch, **given)

    def _ask(
        self,
        entry: str | None,
        configuration: Mapping[str, object],
        arch: str | Architecture | None,
        ask: Callable[[KernelFamily, dict[str, Any]], Answer],
    ) -> Answer:
        try:
            return ask(*self._part(entry, configuration, arch))
        except MissingProviderError:  # the fragments that do not agree say what there is
            return ask(*self._part(entry, configuration, arch, is_wide=True))

    def _part(
        self,
        entry: str | None,
        configuration: Mapping[str, object],
        arch: str | Architecture | None,
        *,
        is_wide: bool = False,
    ) -> tuple[KernelFamily, dict[str, Any]]:
        """Return what agrees with a configuration, compiled for an architecture, and what of the configuration it has.

        Args:
            is_wide: Also compile the groups of which nothing agrees.

        Raises:
            PlanError: If not exactly one entrypoint agrees, which is known without compiling.
            JitltoError: If the sources are not those of a family, or do not build.
        """
        with self._lock:
            self._update()
            given = normalize_configuration(configuration, self.parameters, self.name)
            choose = partial(self._choose, entry, given, is_wide=is_wide)
            part = self._compiled(arch, (is_wide, entry, *sorted(given.items())), choose)
        # It lacks parameters on which its kernels do not depend.
        return part, {name: value for name, value in given.items() if name in part.parameters}

    def _choose(self, entry: str | None, given: Mapping[str, str], *, is_wide: bool) -> set[FragmentKey]:
        """Return the keys of what :meth:`_part` compiles."""
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
        paths = _paths((family, *family.all_used().values()))
        while True:
            watched = {path: _identify(path) for path in paths} | declared
            rendered = _render(self.path, target)
            if (more := _read_paths(rendered)) <= paths:
                break
            paths |= more  # whose names are rendered, or which lie elsewhere
        family = rendered.families[0]
        self.name = family.name
        self._own = [r for r in rendered.rendered if r.key.family == family.name or r.group.role is Role.DEVICE]
        self._held = FamilyContents(
            sorted_values((name, (value,)) for each in self._own for name, value in each.key.parameters),
            tuple(sorted({r.group.name for r in self._own if r.group.role is Role.ENTRYPOINT})),
            family.version,
        )
        self._rendered, self._watched, self._state = {target: rendered}, watched, object()
        if "best" in self.__dict__:
            self.best.forget()

    def _compiled(
        self, arch: str | Architecture | None, asked: object, choose: Callable[[], Set[FragmentKey]]
    ) -> KernelFamily:
        """Return the fragments that are chosen for what is asked, compiled for an architecture, as a family."""
        target = _target(arch)

        def select() -> RenderedFamilies:
            if target not in self._rendered:
                self._rendered[target] = _render(self.path, target)
            keys = choose()
            return self._rendered[target].select(lambda each: each.key in keys)

        return self._made((target, asked), select)

    def _made(self, what: object, select: Callable[[], RenderedFamilies]) -> KernelFamily:
        """Return what is built of some sources, the same one until one of its fragments has changed."""
        state, made = self._parts.get(what, (None, None))
        if made is None or state is not self._state:
            made = self._build(select(), made)
            self._parts[what] = self._state, made
        return made

    def _build(self, sources: RenderedFamilies, before: KernelFamily | None) -> KernelFamily:
        """Build a database, unless it is that of the family ``before``; it is named by its digest."""
        about = json.dumps([os.path.realpath(self.path), sys.prefix])  # another environment has another compiler
        databases = self.session.config.cache_dir / EDITABLE
        directory = databases / hashlib.sha256(about.encode("utf-8", "surrogateescape")).hexdigest()
        UserCache(EDITABLE, "databases", databases, 0).open()  # this user's own: it becomes code
        directory.mkdir(mode=0o700, exist_ok=True)
        warn_once(__name__, directory, "%s: fragments are compiled when they are asked for", self.path)
        made = directory / f".{os.urandom(8).hex()}{SUFFIX}"
        with locked(directory / "building.lock", _PATIENCE, f"compiles fragments of {self.name}"):
            try:
                cache, workers = open_cache(), local_executor()  # no shared store: who edits is alone
                report = build(sources, made, executor=workers, cache=cache, allow_incomplete=True)
                path = directory / f"{report.digest}{SUFFIX}"
                if not (path.exists() and filecmp.cmp(made, path, shallow=False)):  # perhaps damaged
                    made.replace(path)
            finally:
                made.unlink(missing_ok=True)
            for old in sorted(directory.glob(f"[!.]*{SUFFIX}"), key=os.path.getmtime)[:-_KEPT]:
                old.unlink(missing_ok=True)
        log(__name__, "info", "%s: %s", self.path, report.summary)
        if before is not None and before.contents.digest == report.digest:
            return before
        database = FragmentDatabase(path, list(report.fragments))
        file = DatabaseFile(self.path, database.location, Contents.from_database(database), database)
        return KernelFamily(self.name, file, self.session)


def _paths(families: Collection[FamilyDeclaration]) -> set[str]:
    """Return what lies where sources are, and the directories in which another file might be found first."""
    templates = {each.template for family in families for each in family.groups if each.template}
    templates |= {template for family in families for _, template in family.generated}
    searched = {folder for each in families for folder in (*each.include, *each.templates)}
    searched |= {each.parent for each in templates}
    shared = {project_root(each.path) / name for each in families for name in ("matrices", "templates")}
    files = {each.path for each in families} | templates
    files |= {group.matrix for family in families for group in family.groups if group.matrix}
    found = {path for path, _ in walk_places(searched)}
    found |= {path for path, is_folder in walk_places(shared) if is_folder}
    return found | {str(path) for each in files for path in (each, each.parent)} | {*map(str, searched | shared)}


def _read_paths(rendered: RenderedFamilies) -> set[str]:
    """Return the headers that rendered sources may include, and the files of groups with a binary."""
    every = rendered.requests
    named = {(each.config.own, name) for each in every for name in each.own_closure.headers}
    headers = (path for search, name in named if (path := search.path(name)))
    return {*map(str, headers), *(each.text for each, _ in rendered.binaries)}


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
