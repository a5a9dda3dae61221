"""The families that installed packages bring, found by their metadata: no package is imported for it.

A distribution names its families as entry points of the group ``jitlto.fragments``; a value is the dotted path of the
database without its suffix: ``search = mypackage.fragments`` means the file ``mypackage/fragments.fragdb``.

What counts as installed is what :mod:`importlib.metadata` sees in the directories and archives of ``sys.path``: of two
distributions of one name the first, as Python would import it. That module is not used, for its import takes 13 ms,
as long as finding a family among a hundred. Nothing is remembered: packages may come and go while a process runs.

Sources: PyPA specifications, «Recording installed projects», «Entry points», «Direct URL data structure», «Name
normalization»; for eggs, setuptools, «The internal structure of Python eggs».
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from jitlto.errors import DatabaseError, RegistryError
from jitlto.model.frozen import Frozen
from jitlto.storage.files import GROUP, SUFFIX


class InstalledFamily(Frozen):
    """A family that an installed distribution declares.

    Args:
        family: The family's name.
        distribution, version: As its metadata spell them.
        value: The dotted path of the database.
        metadata: The path of the distribution's metadata.
        root: The path of what the distribution is installed into: a directory, or an archive.
        zipped: Whether it is an archive.
        source: The source tree, if it is installed editable.
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
        """The remedy where its database is missing or damaged."""
        return f"the package is not whole: {reinstall_command(self.distribution)}"

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
                hint=f'tell its author: FAMILY = "package.fragments" in the group {GROUP} names the file '
                f"package/fragments{SUFFIX}",
            )
        return parts

    @property
    def location(self) -> Path:
        """The path of the database; for an editable install, the path that it would have in an ordinary one.

        Raises:
            RegistryError: If the entry point is invalid.
        """
        return Path(f"{self.root}/{'/'.join(self.parts)}{SUFFIX}")

    def require_location(self) -> Path:
        """The database's path, if a file is there.

        Raises:
            RegistryError: If the entry point is invalid.
            DatabaseError: If the database is missing, or lies in an archive.
        """
        location = self.location
        if self.zipped:
            # SQLite reads files, and a copy would be a file beside the package, or one to check at every start.
            raise DatabaseError(
                f"cannot be read: {self.title} is installed as an archive",
                code="database-in-archive",
                where=str(location),
                hint=f"install it unpacked: pip install {self.distribution}",
            )
        if not os.path.isfile(location):  # noqa: PTH113 - Path.is_file raises on a name that is too long
            raise self._lost(location)
        return location

    def _lost(self, location: Path) -> DatabaseError:
        """The error for a database that is not there: its wheel did not hold it, or it has gone since."""
        named = f"{self.title} names this database for the family {self.family!r}, and"
        try:
            record = Path(self.metadata, "RECORD").read_text("utf-8", "replace")
        except OSError:
            record = ""  # an egg has none
        if record and f"{'/'.join(self.parts)}{SUFFIX}," not in record:
            return DatabaseError(
                f"{named} its wheel was built without it",
                code="database-not-packaged",
                where=str(location),
                hint="tell its author, who is to check that pyproject.toml has [tool.jitlto] and, with hatchling, "
                "[tool.hatch.build.hooks.jitlto]; installing it again would not help",
            )
        return DatabaseError(
            f"{named} there is no such file",
            code="database-not-found",
            where=str(location),
            hint=self.reinstall,
        )


def reinstall_command(distribution: str) -> str:
    """The command that installs a package again."""
    return f"pip install --force-reinstall --no-deps {distribution}"


def families(family: str | None = None) -> list[InstalledFamily]:
    """Find the families of installed distributions.

    Args:
        family: A name; by default all families.

    Returns:
        list of InstalledFamily: In the order of ``sys.path``.
    """
    installed: list[InstalledFamily] = []
    seen: set[str] = set()
    # A source tree, in which a build has left an egg-info, may come before the directory with the real metadata.
    for metadata in sorted(_all_metadata(), key=lambda each: each.is_egg):
        if metadata.name not in seen:
            seen.add(metadata.name)
            installed += metadata.families(family)
    return installed


def canonical_name(name: str) -> str:
    """A distribution's name in the one spelling that stands for all (PEP 503)."""
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

    def families(self, family: str | None) -> Iterator[InstalledFamily]:
        text = self._read("entry_points.txt")
        if text is None or GROUP not in text:
            return
        entries = {name: value for name, value in _entries(text) if family in (None, name)}
        if not entries:
            return
        headers = self._fallback | _headers(self._read("PKG-INFO" if self.is_egg else "METADATA") or "")
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
    # pip leaves ~name where it cannot remove
    return stem[:1].isalnum() or (not stem and root.lower().endswith(".egg"))


def _read_file(directory: str, name: str) -> str | None:
    try:
        with open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123 - a string, for speed
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None


def _in_archive(path: str) -> Iterator[_Metadata]:
    import zipfile  # of which few environments have one on their path
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
        return  # no archive that Python could import from


def _editable_source(direct_url: str | None) -> Path | None:
    """The source tree of an editable install."""
    if direct_url is None or "editable" not in direct_url:
        return None
    import json  # which few distributions need

    try:
        content = json.loads(direct_url)
        url, editable = content["url"], content.get("dir_info", {}).get("editable", False)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # somebody else's
    if editable is not True or not isinstance(url, str) or not url.startswith("file://"):
        return None
    from urllib.parse import unquote, urlsplit

    return Path(unquote(urlsplit(url).path))


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Names and values in our group; a line that is no entry point has no value."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def _headers(text: str) -> dict[str, str]:
    """The first Name and Version of a distribution's metadata."""
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(": ")
        if name in ("Name", "Version"):
            headers.setdefault(name, value.strip())
        if not line or len(headers) == 2:
            break
    return headers
