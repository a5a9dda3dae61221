"""The families of installed packages, found by metadata without importing any package.

A distribution names its families as entry points of the group ``jitlto.fragments``; a value is the dotted path of the
database without its suffix: ``search = mypackage.fragments`` means the file ``mypackage/fragments.fragdb``.

Installed distributions are those with a ``dist-info`` in the directories of ``sys.path``; of several with the same
name, the first counts that an interrupted upgrade has not left empty. :mod:`importlib.metadata` is not used because its
import takes 13 ms, as long as finding a family among a hundred. Nothing is cached: packages may be installed and
removed while a process runs.

Sources: PyPA specifications, «Recording installed projects», «Entry points», «Direct URL data structure», «Name
normalization».
"""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from jitlto.base.errors import RegistryError
from jitlto.base.files import GROUP, SUFFIX
from jitlto.base.frozen import Frozen

_DIST_INFO = ".dist-info"


class InstalledFamily(Frozen):
    """A family that an installed distribution declares."""

    family: str
    distribution: str  # as spelled in its metadata, as the version
    version: str
    value: str  # the dotted path of the database
    metadata: str  # the path of the distribution's metadata
    root: str  # the path of the directory that contains the distribution
    source: Path | None  # the source tree, if the distribution is installed editable

    @property
    def title(self) -> str:
        """The distribution and its version, for messages."""
        return f"{self.distribution} {self.version}"

    @property
    def remedy(self) -> str:
        """What to do if its database is missing or damaged."""
        if self.source is None:
            return f"pip install --force-reinstall --no-deps {self.distribution}"
        declare = f"declare [tool.jitlto] in {self.source / 'pyproject.toml'}, to have it compiled when needed"
        return f"{declare}; if that is gone, pip uninstall {self.distribution}"

    @property
    def location(self) -> Path:
        """The path of the database; for an editable install, in the source tree.

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
        file = "/".join(parts) + SUFFIX
        if self.source is None:
            return Path(self.root, file)
        path = self.source / "src" / file
        return path if path.is_file() else self.source / file


def canonical_name(name: str) -> str:
    """Return the normalized spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def families(family: str | None = None, distribution: str | None = None) -> list[InstalledFamily]:
    """Return the families, or those of a name, of installed distributions in the order of ``sys.path``.

    Of one distribution, if it is named, in any spelling.
    """
    by_name: dict[str, list[str]] = {}
    for place in dict.fromkeys(path for path in sys.path if isinstance(path, str)):
        with suppress(OSError):
            root = os.path.abspath(place)  # noqa: PTH100 - a string, for speed
            for name in os.listdir(root):  # noqa: PTH208
                # pip leaves ~name if it cannot remove a package.
                if name.endswith(_DIST_INFO) and name[0].isalnum():
                    by_name.setdefault(canonical_name(name.partition("-")[0]), []).append(f"{root}/{name}")
    if distribution is not None:
        by_name = {"": by_name.get(canonical_name(distribution), [])}
    installed: list[InstalledFamily] = []
    for several in filter(None, by_name.values()):
        whole = several if len(several) == 1 else [each for each in several if _read(each, "METADATA")]
        installed += _families_of((whole or several)[0], family)
    return installed


def _families_of(metadata: str, family: str | None) -> Iterator[InstalledFamily]:
    text = _read(metadata, "entry_points.txt")
    entries = {name: value for name, value in _entries(text) if family in (None, name)} if GROUP in text else {}
    if entries:
        root, name = os.path.split(metadata)
        distribution, _, version = name.removesuffix(_DIST_INFO).partition("-")
        headers = _read(metadata, "METADATA").partition("\n\n")[0].splitlines()
        given = dict(line.split(": ", 1) for line in reversed(headers) if line.startswith(("Name: ", "Version: ")))
        about = given.get("Name", distribution).strip(), given.get("Version", version or "?").strip()
        source = _editable_source(_read(metadata, "direct_url.json"))
        for entry, value in entries.items():
            yield InstalledFamily(entry, *about, value, metadata, root, source)


def _read(directory: str, name: str) -> str:
    """Return the text of a file; empty if there is none."""
    try:
        with open(f"{directory}/{name}", "rb") as file:  # noqa: PTH123 - a string, for speed
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _editable_source(direct_url: str) -> Path | None:
    """Return the source tree of an editable install, or None."""
    with suppress(ValueError, TypeError, KeyError, RecursionError):  # not written by a known installer
        content = json.loads(direct_url or "{}")
        url = content["url"]
        if content["dir_info"]["editable"] is True and isinstance(url, str) and url.startswith("file://"):
            from urllib.parse import unquote, urlsplit  # imported lazily: few distributions need it

            return Path(unquote(urlsplit(url).path))
    return None


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield names and values of our group; a line that is not an entry point has an empty value."""
    inside = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            inside = line == f"[{GROUP}]"
        elif inside and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
