"""The families of installed packages, found by metadata without importing any package.

A distribution names its families as entry points of the group ``jitlto.fragments``; a value is the dotted path of the
database without its suffix: ``search = mypackage.fragments`` means the file ``mypackage/fragments.fragdb``.

Installed distributions are those that :mod:`importlib.metadata` finds in the directories and archives of ``sys.path``;
of several with the same name, the first counts that an interrupted upgrade has not left empty. That module is not used
because its import takes 13 ms, as long as finding a family among a hundred. Nothing is cached: packages may be
installed and removed while a process runs.

Sources: PyPA specifications, «Recording installed projects», «Entry points», «Direct URL data structure», «Name
normalization»; for eggs, setuptools, «The internal structure of Python eggs».
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from jitlto.base.errors import DatabaseError, RegistryError
from jitlto.base.files import GROUP, SUFFIX
from jitlto.base.frozen import Frozen


class InstalledFamily(Frozen):
    """A family that an installed distribution declares.

    Args:
        family: The family's name.
        distribution, version: As spelled in its metadata.
        value: The dotted path of the database.
        metadata: The path of the distribution's metadata.
        root: The path of the directory or archive that contains the distribution.
        zipped: Whether ``root`` is an archive.
        source: The source tree, if the distribution is installed editable.
    """

    family: str
    distribution: str
    version: str
    value: str
    metadata: str
    root: str
    zipped: bool
    source: Path | None

    @property
    def title(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def reinstall(self) -> str:
        """The remedy if its database is missing or damaged."""
        return f"reinstall the package: {reinstall_command(self.distribution)}"

    @property
    def parts(self) -> list[str]:
        """The parts of the dotted path.

        Raises:
            RegistryError: If the entry point is invalid.
        """
        parts = self.value.split(".")
        if not self.family.isidentifier() or not all(part.isidentifier() for part in parts):
            raise RegistryError(
                f"{self.title} has an invalid entry point: {self.family} = {self.value}",
                code="registry-invalid-entry-point",
                where=f"{self.metadata}/entry_points.txt",
                hint=f'report it to its author: FAMILY = "package.fragments" in the group {GROUP} names the file '
                f"package/fragments{SUFFIX}",
            )
        return parts

    @property
    def location(self) -> Path:
        """The path of the database; for an editable install, the path that it would have in a regular install.

        Raises:
            RegistryError: If the entry point is invalid.
        """
        return Path(f"{self.root}/{'/'.join(self.parts)}{SUFFIX}")

    def require_location(self) -> Path:
        """Return the path of the database, which exists.

        Raises:
            RegistryError: If the entry point is invalid.
            DatabaseError: If the database is missing or inside an archive.
        """
        location = self.location
        if self.zipped:
            # SQLite reads only files, and an extracted copy would have to be checked at every start.
            raise DatabaseError(
                f"cannot be read: {self.title} is installed as an archive",
                code="database-in-archive",
                where=str(location),
                hint=f"install it as a directory: pip install {self.distribution}",
            )
        if not os.path.isfile(location):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            raise self._not_found(location)
        return location

    def _not_found(self, location: Path) -> DatabaseError:
        """Return the error for a missing database: its wheel did not contain it, or it has been removed since."""
        named = f"{self.title} names this database for the family {self.family!r}, but"
        try:
            record = Path(self.metadata, "RECORD").read_text("utf-8", "replace")
        except OSError:
            record = ""  # an egg has none
        if record and f"{'/'.join(self.parts)}{SUFFIX}," not in record:
            return DatabaseError(
                f"{named} its wheel was built without it",
                code="database-not-packaged",
                where=str(location),
                hint="report it to its author: pyproject.toml needs [tool.jitlto] and, with hatchling, "
                "[tool.hatch.build.hooks.jitlto]; reinstalling does not help",
            )
        return DatabaseError(
            f"{named} there is no such file",
            code="database-not-found",
            where=str(location),
            hint=self.reinstall,
        )


def reinstall_command(distribution: str) -> str:
    """Return the command that reinstalls a package."""
    return f"pip install --force-reinstall --no-deps {distribution}"


def families(family: str | None = None) -> list[InstalledFamily]:
    """Return the families of installed distributions, or those with one name, in the order of ``sys.path``."""
    by_name: dict[str, list[_Metadata]] = {}
    # A source tree with an egg-info of a build may come before the directory with the actual metadata.
    for metadata in sorted(_all_metadata(), key=lambda each: each.is_egg):
        by_name.setdefault(metadata.name, []).append(metadata)
    installed: list[InstalledFamily] = []
    for several in by_name.values():
        first = several[0] if len(several) == 1 else next((each for each in several if each.text), several[0])
        installed += first.families(family)
    return installed


def canonical_name(name: str) -> str:
    """Return the normalized spelling of a distribution's name (PEP 503)."""
    words = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(word for word in words if word)


class _Metadata:
    """A directory of metadata, in a directory or in an archive."""

    def __init__(self, name: str, root: str, read: Callable[[str], str | None], *, zipped: bool = False) -> None:
        stem, _, suffix = name.rpartition(".")
        if not stem and root.lower().endswith(".egg"):
            stem = os.path.basename(root)[: -len(".egg")]  # noqa: PTH119 - a string, for speed
        self.is_egg = suffix.lower() == "egg-info"
        distribution, _, version = stem.partition("-")
        self.name = canonical_name(distribution)
        self._fallback = {"Name": distribution, "Version": version.partition("-")[0] or "?"}
        self._path, self._root, self._read, self._zipped = f"{root}/{name}", root, read, zipped

    @property
    def text(self) -> str:
        """What it says of the distribution; empty if an interrupted upgrade has left the directory."""
        return self._read("PKG-INFO" if self.is_egg else "METADATA") or ""

    def families(self, family: str | None) -> Iterator[InstalledFamily]:
        text = self._read("entry_points.txt")
        if text is None or GROUP not in text:
            return
        entries = {name: value for name, value in _entries(text) if family in (None, name)}
        if not entries:
            return
        headers = self._fallback | _headers(self.text)
        source = _editable_source(self._read("direct_url.json"))
        about = (self._path, self._root, self._zipped, source)
        for entry, value in entries.items():
            yield InstalledFamily(entry, headers["Name"], headers["Version"], value, *about)


def _all_metadata() -> Iterator[_Metadata]:
    for place in dict.fromkeys(path for path in sys.path if isinstance(path, str)):
        root = place
        try:
            root = os.path.abspath(place)  # noqa: PTH100 - a string, for speed
            for name in os.listdir(root):  # noqa: PTH208 - names are what is wanted
                if _is_metadata(name, root):
                    yield _Metadata(name, root, partial(_read_file, f"{root}/{name}"))
        except NotADirectoryError:
            yield from _in_archive(root)
        except OSError:
            continue


def _is_metadata(name: str, root: str) -> bool:
    stem, _, suffix = name.rpartition(".")
    if suffix.lower() not in ("dist-info", "egg-info"):
        return False
    # pip leaves ~name if it cannot remove a package.
    return stem[:1].isalnum() or (not stem and root.lower().endswith(".egg"))


def _read_file(directory: str, name: str) -> str | None:
    try:
        with open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123 - a string, for speed
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def _in_archive(path: str) -> Iterator[_Metadata]:
    import zipfile  # imported lazily: few environments have an archive on their path
    import zlib

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for directory in dict.fromkeys(name.partition("/")[0] for name in names if "/" in name):
                if _is_metadata(directory, path):
                    texts = {
                        name: archive.read(f"{directory}/{name}").decode("utf-8", "replace")
                        for name in ("entry_points.txt", "METADATA", "PKG-INFO")
                        if f"{directory}/{name}" in names
                    }
                    yield _Metadata(directory, path, texts.get, zipped=True)
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return  # not an archive that Python could import from


def _editable_source(direct_url: str | None) -> Path | None:
    """Return the source tree of an editable install, or None."""
    if direct_url is None or "editable" not in direct_url:
        return None
    import json  # imported lazily: few distributions need it

    try:
        content = json.loads(direct_url)
        url, editable = content["url"], content.get("dir_info", {}).get("editable", False)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # not written by a known installer
    if editable is not True or not isinstance(url, str) or not url.startswith("file://"):
        return None
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of our group; a line that is not an entry point has an empty value."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _headers(text: str) -> dict[str, str]:
    """Return the first Name and Version of a distribution's metadata."""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name in ("Name", "Version"):
            headers.setdefault(name, value.strip())
        if not line or len(headers) == 2:
            break
    return headers
