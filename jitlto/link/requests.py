"""Look-ups: what opening a database and planning gave, for the next process that asks for the same.

Both take ten times as long as finding and loading a linked kernel. A result lies beside the kernels, on disk and in
packs the same, under the SHA-256 of all that it depends on: the contents of a database under its digest, the kernel
that answers a request under its :class:`KernelRequest`. So any change makes a miss, and then everything goes the
ordinary way.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from jitlto.base.frozen import Frozen
from jitlto.base.version import __version__
from jitlto.cuda.libraries import installed_release
from jitlto.link.sources import CONTENTS, REQUESTS
from jitlto.plan.cache_entry import Chosen

if TYPE_CHECKING:
    from pathlib import Path

    from jitlto.base.files import Identity
    from jitlto.database import FragmentDatabase
    from jitlto.link.sources import KernelSource

#: Increment when planning may give a different result for the same request, or the format of these entries changes.
_REVISION = 6
_VARIABLES = ("CONDA_PREFIX", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME")


class KernelRequest(Frozen):
    """A request to a family, and all else that decides which kernel answers it.

    Args:
        database: The database's digest.
        family, link_mode, link_options: As requested.
        entry: The entrypoint's group; None if the configuration decides between several.
        configuration: The parameters that are given, spelled as by the family.
        capability: The device's compute capability.
        linker: The release of nvJitLink, or whatever decides which one is found; see :func:`find_linker`.
    """

    database: str
    family: str
    entry: str | None
    link_mode: str
    link_options: Mapping[str, object]
    configuration: Mapping[str, str]
    capability: tuple[int, int]
    linker: object

    @property
    def key(self) -> str | None:
        """The SHA-256 of the request; None if it cannot be written as JSON."""
        try:
            return hash_key(*self.as_dict().values())
        except (TypeError, ValueError, RecursionError):
            return None


class LookUps:
    """Results of look-ups, in the places where kernels lie.

    Args:
        sources: The places, in order.
    """

    def __init__(self, sources: Sequence[KernelSource]) -> None:
        self._sources = sources

    def find_contents(self, digest: str) -> Contents | None:
        """Return the contents of the database with a digest; None if they are not known."""
        for payload in self._find(hash_key(digest), CONTENTS):
            contents = decode_contents(digest, payload)
            if contents is not None:
                return contents
        return None

    def put_contents(self, contents: Contents) -> None:
        """Store the contents of a database."""
        for source in self._sources:
            source.put(hash_key(contents.digest), contents.to_json(), CONTENTS)

    def find_chosen(self, request: KernelRequest) -> Chosen | None:
        """Return the kernel that answers a request; None if it is not known."""
        for payload in self._find(request.key or "", REQUESTS):
            chosen = Chosen.decode(payload)
            if chosen is not None:
                return chosen
        return None

    def put_chosen(self, request: KernelRequest, chosen: Chosen) -> None:
        """Store the kernel that answers a request."""
        if request.key is not None:
            for source in self._sources:
                source.put(request.key, chosen.encode(), REQUESTS)

    def find_held(self, paths: Iterable[Path]) -> dict[str, tuple[Identity, list[str]]]:
        """Return the families that each of several databases held when they were searched, by path, if it is known."""
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # not written by jitlto
            for payload in self._find(_search_key(paths), CONTENTS):
                held = json.loads(payload).items()
                return {path: (tuple(state), list(map(str, names))) for path, (state, names) in held}
        return {}

    def put_held(self, paths: Iterable[Path], held: Mapping[str, tuple[Identity, list[str]]]) -> None:
        """Store what :meth:`find_held` returns; it is valid for the files that are unchanged."""
        for source in self._sources:
            source.put(_search_key(paths), json.dumps(held).encode(), CONTENTS)

    def _find(self, key: str, kind: str) -> Iterator[bytes]:
        found = (source.find(key, kind) for source in self._sources) if key else ()
        return (payload for payload in found if payload is not None)


def _search_key(paths: Iterable[Path]) -> str:
    return hash_key("searched", [os.fsencode(path.absolute()).hex() for path in paths])


def contents_entry(contents: Contents) -> tuple[str, bytes]:
    """Return the key and the entry of the contents of a database, for a pack."""
    return hash_key(contents.digest), contents.to_json()


class FamilyContents(Frozen):
    """The parameters and entrypoints of a family, and how it was made.

    Args:
        parameters: Its parameters, and the values that occur, both sorted.
        entrypoints: Its groups of entrypoints, sorted.
        architectures: What its LTO-IR was made for, sorted.
        compilers: What made its images, each with its version, sorted.
        version: The version that its author declares; empty if there is none.
    """

    parameters: Mapping[str, tuple[str, ...]]
    entrypoints: tuple[str, ...]
    architectures: tuple[str, ...]
    compilers: tuple[str, ...]
    version: str


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
            )
        return cls(database.digest, None if database.part is None else str(database.part), families)

    def to_json(self) -> bytes:
        """The contents as JSON, for :meth:`from_json`."""
        families = {name: list(family.as_dict().values()) for name, family in self.families.items()}
        return json.dumps([self.digest, self.part, families]).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Contents:
        """Read what :meth:`to_json` wrote.

        Raises:
            ValueError, TypeError, AttributeError: If it is something else.
        """
        digest, part, families = json.loads(text)
        read = {}
        for name, (parameters, entrypoints, architectures, compilers, version) in families.items():
            values = {parameter: _texts(several) for parameter, several in parameters.items()}
            groups, made_for, made_by = map(_texts, (entrypoints, architectures, compilers))
            read[name] = FamilyContents(values, groups, made_for, made_by, str(version))
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


def find_linker() -> object:
    """Return the release of the nvJitLink that a new process would load, or else whatever decides which one it finds.

    The release is told from the library's file, which takes 0.1 ms. It cannot be told where no package has nvJitLink.
    """
    return installed_release(os.environ.get("CONDA_PREFIX", "")) or linker_surroundings()


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
