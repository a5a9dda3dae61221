"""The lookup cache: results of opening a database and of planning, in the user's cache for the next process.

Both take ten times as long as finding and loading a linked kernel. A result is stored under the SHA-256 of all that it
depends on, so that any change makes a miss, and after a miss everything goes the ordinary way:

- the contents of a database, under its digest;
- the families that each of several databases holds, under their paths. It is valid for the files that are unchanged;
- the kernel that answers a request, under the database's digest, the request, the device's compute capability,
  jitlto's version and everything that decides which nvJitLink is found. An entry is valid only while the nvJitLink that
  was found when it was stored is still there.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jitlto.base.cache_dir import CacheDir
from jitlto.base.frozen import Frozen
from jitlto.base.version import __version__
from jitlto.plan.cache_entry import Chosen

if TYPE_CHECKING:
    from jitlto.base.files import Identity
    from jitlto.database import FragmentDatabase
    from jitlto.record.family_record import DeprecatedValue

#: Increment when planning may give a different result for the same request, or the format of these entries changes.
_REVISION = 3
_VARIABLES = ("CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")
_CONTENTS, _HELD, _CHOSEN = "databases", "searches", "requests"


class FamilyContents(Frozen):
    """The parameters and entrypoints of a family, and how it was made.

    Args:
        parameters: Its parameters, and the values that occur, both sorted.
        entrypoints: Its groups of entrypoints, sorted.
        architectures: What its LTO-IR was made for, sorted.
        compilers: What made its images, each with its version, sorted.
        version: The version that its author declares; empty if there is none.
        deprecated: Values that callers should no longer give, also of the families that it uses.
    """

    parameters: Mapping[str, tuple[str, ...]]
    entrypoints: tuple[str, ...]
    architectures: tuple[str, ...]
    compilers: tuple[str, ...]
    version: str
    deprecated: tuple[DeprecatedValue, ...]


class Contents(Frozen):
    """The summary of an undamaged database.

    Args:
        digest: The database's.
        part: The part of a sharded build that it is, e.g. ``2/4``; None if it is complete.
        families: By name.
    """

    digest: str
    part: str | None
    families: Mapping[str, FamilyContents]

    @classmethod
    def from_database(cls, database: FragmentDatabase) -> Contents:
        """The contents of an open database."""
        from jitlto.record.fragment import Role
        from jitlto.record.index import merge_values  # imported lazily: not needed on a cache hit

        families = {}
        for name, record in database.families.items():
            shapes = list(database.shapes(name))
            entrypoints = {shape.group for shape in shapes if shape.role is Role.ENTRYPOINT}
            shapes += [s for used in record.uses for s in database.shapes(used) if s.role is Role.DEVICE]
            compilers = {compiler for shape in shapes for compiler in shape.compilers}
            families[name] = FamilyContents(
                merge_values(shape.parameters for shape in shapes),
                tuple(sorted(entrypoints)),
                tuple(map(str, record.architectures)),
                tuple(f"{toolchain} {major}.{minor}" for toolchain, major, minor in sorted(compilers)),
                record.version,
                tuple(d for each in (name, *record.uses) for d in database.families[each].deprecated),
            )
        return cls(database.digest, None if database.part is None else str(database.part), families)

    def to_json(self) -> bytes:
        """The contents as JSON, for :meth:`from_json`."""
        families = {
            name: [
                family.version,
                dict(family.parameters),
                family.deprecated,
                family.entrypoints,
                family.architectures,
                family.compilers,
            ]
            for name, family in self.families.items()
        }
        return json.dumps([self.digest, self.part, families]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Contents:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError, TypeError, AttributeError: If it is something else.
        """
        digest, part, families = json.loads(text)
        read = {}
        for name, (version, parameters, deprecated, *rest) in families.items():
            values = {parameter: _texts(several) for parameter, several in parameters.items()}
            entrypoints, architectures, compilers = map(_texts, rest)
            replaced = tuple(_deprecated(each) for each in deprecated)
            read[name] = FamilyContents(values, entrypoints, architectures, compilers, str(version), replaced)
        return cls(digest, part, read)


def decode_contents(digest: str, payload: bytes) -> Contents | None:
    """Decode the contents of the database with a digest; None if they are something else."""
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # not written by jitlto
        contents = Contents.from_json(payload)
        return contents if contents.digest == digest else None
    return None


def _texts(values: Iterable[str]) -> tuple[str, ...]:
    """Return texts that were read as a tuple; raise TypeError if one of them is something else."""
    texts = tuple(values)
    "".join(texts)
    return texts


def _deprecated(values: list[str]) -> DeprecatedValue:
    from jitlto.record.family_record import DeprecatedValue  # imported lazily: few families have any

    return DeprecatedValue(*map(str, values))


class LookupCache:
    """Results of look-ups, in a cache directory."""

    def __init__(self, store: CacheDir) -> None:
        self._store = store

    def find_contents(self, digest: str) -> Contents | None:
        """The contents of the database with a digest; None if they are not known."""
        payload = self._store.get(_CONTENTS, hash_key(digest))
        if payload is None:
            return None
        return decode_contents(digest, payload)

    def store_contents(self, contents: Contents) -> None:
        """Store the contents of a database."""
        self._store.put(_CONTENTS, hash_key(contents.digest), contents.to_json())

    def find_held(self, key: str) -> dict[str, tuple[Identity, list[str]]]:
        """The identity of each database of a :func:`directory_key`, by path, and the families that it held then."""
        payload = self._store.get(_HELD, key)
        if payload is None:
            return {}
        try:
            return {path: (tuple(state), list(map(str, names))) for path, (state, names) in json.loads(payload).items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def store_held(self, key: str, held: Mapping[str, tuple[Identity, list[str]]]) -> None:
        """Store what :meth:`find_held` returns."""
        self._store.put(_HELD, key, json.dumps(held).encode())

    def find_chosen(self, key: str) -> Chosen | None:
        """The kernel that answers the request of a :func:`request_key`; None if it is not known."""
        payload = self._store.get(_CHOSEN, key)
        if payload is None:
            return None
        try:
            kernel, digest, signature, linker, status = json.loads(payload)
            if _size_and_time(str(linker)) != tuple(status):
                return None
            return Chosen.from_list(kernel, digest, signature)
        except (ValueError, TypeError, OSError, RecursionError):
            return None

    def store_chosen(self, key: str, chosen: Chosen) -> None:
        """Store the kernel that answers the request of a :func:`request_key`, found with the nvJitLink at hand."""
        from jitlto.cuda import nvjitlink  # imported lazily: a hit needs no linker

        linker = nvjitlink.find_installed()
        status = _size_and_time(linker or "")
        if status is not None:
            content = [*chosen.to_list(), linker, status]
            self._store.put(_CHOSEN, key, json.dumps(content).encode())


def directory_key(paths: Iterable[Path]) -> str:
    """Return the SHA-256 key of a search in several databases."""
    return hash_key("searched", [os.fsencode(path.absolute()).hex() for path in paths])


def request_key(
    database: str,
    family: str,
    entry: str | None,
    link_mode: str,
    link_options: Mapping[str, object] | None,
    configuration: Mapping[str, str],
    capability: tuple[int, int],
) -> str | None:
    """Return the SHA-256 key of a request to a family; None if the request cannot be written as JSON.

    Requests that could have different answers have different keys.

    Args:
        database: The database's digest.
        family, entry, link_mode, link_options: As requested.
        configuration: As requested: different spellings of a value are different requests.
        capability: The device's compute capability.
    """
    request = (database, family, entry, link_mode, link_options or {}, configuration, capability)
    try:
        return hash_key(request, linker_surroundings())
    except (TypeError, ValueError, RecursionError):
        return None


def linker_surroundings() -> tuple[object, ...]:
    """Return everything that decides which nvJitLink is found. Cheaper than finding it.

    A directory changes its time when a file in it is made or removed. Source: the search order of
    ``jitlto.cuda.libraries.load``: packages, conda, the loader, variables.
    """
    conda, loader, *toolkits = (os.environ.get(name, "") for name in _VARIABLES)
    places = [*site_packages(), f"{conda}/lib", *loader.split(os.pathsep), "/etc/ld.so.cache"]
    return (toolkits, [(place, _size_and_time(place)) for place in places])


def site_packages() -> list[str]:
    """Return the directories of packages, with whatever name if NVIDIA's are there, from which Python imports."""
    named = ("site-packages", "dist-packages")
    return [place for place in sys.path if place.endswith(named) or os.path.isdir(f"{place}/nvidia")]  # noqa: PTH112


def _size_and_time(path: str) -> tuple[int, int] | None:
    """Return size and modification time, which change when the file is replaced; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a string
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns)


def hash_key(*parts: object) -> str:
    """Return the SHA-256 of values that JSON has, and of the version of jitlto, whose answers they are.

    Raises:
        TypeError, ValueError, RecursionError: If one cannot be written as JSON.
    """
    import hashlib  # 2 ms, which importing jitlto.load does not need

    text = json.dumps([_REVISION, __version__, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
