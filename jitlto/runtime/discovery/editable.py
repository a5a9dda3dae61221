"""Databases of packages that are installed editable: built from the source tree, into the user's cache.

The package's ``[tool.jitlto]`` says what its database is made of; ``jitlto build --project`` makes it, in a process of
its own, for the run side never imports the build side. A digest of its sources is stored beside it: as long as that
stays the same, nothing is started. Sources are taken by directory, so that too much may count and nothing is missed;
the build then finds in its own cache what has not changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.errors import DatabaseError, JitltoError
from jitlto.model.headers import HeaderSearch
from jitlto.runtime.discovery import lookup_cache
from jitlto.storage import declaration
from jitlto.storage.cache_dir import CacheDir
from jitlto.storage.files import SUFFIX, digest_of, replacing

if TYPE_CHECKING:
    from jitlto.config import Config
    from jitlto.runtime.discovery.entry_points import InstalledFamily

#: Below the user's cache directory.
DIRECTORY = "editable"
_SILENT, _PATIENCE = 1.0, 600.0  # seconds of waiting for another process: not worth a word on the log, and at most
# The same modules as in this process, wherever it has them from.
_COMMAND = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from jitlto.cli import main; main()"


def ensure_database(installed: InstalledFamily, source: Path, settings: Config) -> Path:
    """The database of a distribution that is installed editable, built now if its sources have changed.

    Without ``[tool.jitlto]`` it is the file in the source tree, which somebody else makes.

    Args:
        installed : InstalledFamily
        source: The distribution's source tree.
        settings: Where databases are built.

    Raises:
        DatabaseError: If it cannot be built, or is not there.
    """
    table = _read_table(installed, source)
    if table is None:
        return _in_tree(installed, source)
    path = _built(installed, source, settings)
    _require_own(path.parent.parent, installed)
    if not _is_current(path, _state(source, table, settings)):
        _build_once(installed, source, path, settings)
    return path


def locate_database(installed: InstalledFamily, source: Path, settings: Config) -> Path:
    """The path at which :func:`ensure_database` has it, or will have it; nothing is built.

    Raises:
        DatabaseError: If the source tree is gone, or does not say how it is built and has none.
    """
    if _read_table(installed, source) is None:
        return _in_tree(installed, source)
    return _built(installed, source, settings)


def built_databases(settings: Config) -> dict[Path, int]:
    """The databases that were built for such packages and are still there, with their bytes."""
    sizes = {}
    for folder in _folders(settings):
        for path in folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                sizes[path] = path.lstat().st_size
    return sizes


def clear(settings: Config) -> int:
    """Remove these databases, each with the record of its sources; returns how many there were.

    Locks stay: another process may wait at one.
    """
    removed = 0
    for path in built_databases(settings):
        with contextlib.suppress(OSError):
            _record(path).unlink(missing_ok=True)
            path.unlink()
            removed += 1
    return removed


def _folders(settings: Config) -> list[Path]:
    """The folders of databases; nothing else of what lies in a cache directory."""
    try:
        directory = CacheDir(settings.cache_dir / DIRECTORY, 0, readonly=True).directory
        return [path for path in sorted(directory.iterdir()) if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []  # nothing was built, or it is not this user's own


def _built(installed: InstalledFamily, source: Path, settings: Config) -> Path:
    # A process with another environment has another compiler.
    of = json.dumps([os.path.realpath(source), sys.prefix, installed.distribution])
    name = hashlib.sha256(of.encode("utf-8", "surrogateescape")).hexdigest()
    return settings.cache_dir / DIRECTORY / name / installed.location.name


def _read_table(installed: InstalledFamily, source: Path) -> dict[str, object] | None:
    """The package's ``[tool.jitlto]``; empty if only the build can say what is wrong with it."""
    try:
        table = tomllib.loads((source / "pyproject.toml").read_text("utf-8-sig")).get("tool", {}).get("jitlto")
        return table if isinstance(table, dict | None) else {}
    except FileNotFoundError:
        if source.is_dir():
            return None
        raise DatabaseError(
            f"{installed.title} is installed editable, and its source tree is gone",
            code="database-source-gone",
            where=str(source),
            hint=f"install it again: pip install -e SOURCES, or pip uninstall {installed.distribution}",
        ) from None
    except (OSError, ValueError, RecursionError, AttributeError):
        return {}


def _in_tree(installed: InstalledFamily, source: Path) -> Path:
    packages = installed.parts[:-1]
    for root in (source / "src", source):
        path = root.joinpath(*packages, installed.location.name)
        if path.is_file():
            return path
    raise DatabaseError(
        f"{installed.title} is installed editable, and has no database for the family {installed.family!r}",
        code="database-not-built",
        where=str(path),
        hint=f"declare [tool.jitlto] in {source / 'pyproject.toml'}, and it is built when it is needed; or build it "
        f"there: jitlto build FAMILY -o {path}",
    )


def _require_own(directory: Path, installed: InstalledFamily) -> None:
    """Make a directory of this user alone, or see that it is one: what lies in it becomes code."""
    try:
        CacheDir(directory, 0)
    except OSError as error:
        raise DatabaseError(
            f"cannot be used for the database of {installed.title}, which is installed editable: "
            f"{error.strerror or error}",
            code="database-unusable-directory",
            where=str(directory),
            hint="set JITLTO_CACHE_DIR to another directory, one that belongs to this user",
        ) from error


def _state(source: Path, table: dict[str, object], settings: Config) -> str | None:
    """SHA-256 of all that the database is made from; None where only the build knows what that is."""
    if settings.prebuilt:
        return None  # what the build takes instead of sources is its own affair
    try:
        families = _families(source, table)
        digest = hashlib.sha256(json.dumps(lookup_cache.linker_surroundings()).encode("utf-8", "surrogateescape"))
        digest.update((source / "pyproject.toml").read_bytes())
        for path in families:
            for name, content in _sources(declaration.load_family(path)):
                digest.update(os.fsencode(name) + b"\0" + hashlib.sha256(content).digest())
    except (OSError, JitltoError):
        return None
    return digest.hexdigest()


def _families(source: Path, table: dict[str, object]) -> list[Path]:
    """The declarations that ``families`` names, by their folders.

    Raises:
        FamilyError: If one is not there.
    """
    names = table.get("families")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return sorted((source / "fragments").glob("*/family.toml"))
    return [declaration.find_family(name, source) for name in names]


def _sources(family: declaration.FamilyDeclaration) -> Iterator[tuple[str, bytes]]:
    """Names and contents of what a family is made from: all below its directories, and headers beyond them."""
    folders = {family.path.parent, *family.include}
    for group in family.groups:
        folders.update(path.parent for path in (group.matrix, group.template) if path)
    search = HeaderSearch(family.include)
    for folder in sorted(folders):
        for directory, inner, names in os.walk(folder):
            inner[:] = sorted(name for name in inner if not name.startswith(".") and name != "__pycache__")
            for name in sorted(names):
                path = Path(directory, name)
                if name.startswith(".") or not path.is_file():
                    continue
                content = path.read_bytes()
                yield str(path), content
                # Of a header that is beside the directories, the text alone says so: "../common.cuh".
                beyond = search.closure(content).headers
                yield from ((name, beyond[name]) for name in sorted(beyond) if name.startswith(".."))


def _record(path: Path) -> Path:
    return path.with_suffix(".json")


def _is_current(path: Path, state: str | None) -> bool:
    """True if there is a database made from sources in this state."""
    if state is None:
        return False
    try:
        recorded = json.loads(_record(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    # Of the file too: a build that was stopped may have left the new one with the old record.
    return bool(recorded == [state, digest_of(path)])


def _build_once(installed: InstalledFamily, source: Path, path: Path, settings: Config) -> None:
    """Build, unless another process that was before us has."""
    import logging

    import filelock

    log = logging.getLogger(__name__)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    lock = filelock.FileLock(path.with_suffix(".lock"), thread_local=False)
    begin = time.monotonic()
    try:
        try:
            lock.acquire(timeout=_SILENT)
        except filelock.Timeout:
            log.warning("waiting for another process that builds the fragments of %s", installed.title)
            lock.acquire(timeout=_PATIENCE)
    except filelock.Timeout:
        waited = time.monotonic() - begin
        log.warning(
            "another process has been building the fragments of %s for %.0f s; building them too",
            installed.title,
            waited,
        )
    except (OSError, NotImplementedError):
        log.debug("no lock at %s", lock.lock_file)  # which would only have saved work
    try:
        state = _state(source, _read_table(installed, source) or {}, settings)
        if _is_current(path, state):
            return
        why = "its sources or its compiler have changed" if path.exists() else "it is used for the first time"
        why = why if state else "only a build can tell what it is made from"
        log.warning("%s is installed editable from %s, and %s: building its fragments", installed.title, source, why)
        begin = time.monotonic()
        if digest_of(path) is None:
            with contextlib.suppress(OSError):
                path.unlink()  # damaged: a build replaces databases alone
        _build(installed, source, path)
        log.warning("built the fragments of %s in %.1f s", installed.title, time.monotonic() - begin)
        if state is not None:
            with replacing(_record(path)) as temporary:
                temporary.write_text(json.dumps([state, digest_of(path)]))
    finally:
        lock.release()


def _build(installed: InstalledFamily, source: Path, path: Path) -> None:
    arguments = ["build", "--project", str(source), "-o", str(path), "--quiet"]
    done = subprocess.run(
        [sys.executable, "-c", _COMMAND, json.dumps(sys.path), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode == 0 and digest_of(path) is not None:
        return
    message = done.stderr.decode("utf-8", "replace").strip().removeprefix("error: ") or f"exit status {done.returncode}"
    lines = "\n".join(f"    {line}" for line in message.splitlines())
    raise DatabaseError(
        f"{installed.title} is installed editable from here, and its fragments cannot be built:\n{lines}",
        code="database-build-failed",
        where=str(source),
        hint="correct it and try again; the same by hand: " + " ".join(["jitlto", *arguments[:3], "-o DB"]),
    )
