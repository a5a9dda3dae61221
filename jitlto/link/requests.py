"""Look-ups: what opening a database and planning gave, for the next process that asks for the same.

Both take ten times as long as finding and loading a linked kernel. A result lies beside the kernels, on disk and in
packs the same, under the SHA-256 of all that it depends on: the contents of a database under its digest, the kernel
that answers a request under its :func:`request_key`. So any change makes a miss, and then everything goes the
ordinary way.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from jitlto.base import __version__
from jitlto.base.entry import digest_of
from jitlto.base.frozen import Frozen
from jitlto.link.sources import CONTENTS, REQUESTS, find_first
from jitlto.plan.cache_entry import Chosen

if TYPE_CHECKING:
    from jitlto.database import FragmentDatabase
    from jitlto.link.sources import KernelSource

#: Increment when planning may give a different result for the same request, or the format of these entries changes.
_REVISION = 8


def request_key(
    database: str,
    family: str,
    entry: str | None,
    link_mode: str,
    link_options: Mapping[str, object],
    configuration: Mapping[str, str],
    capability: tuple[int, int],
    linker: str,
) -> str | None:
    """Return the SHA-256 of a request to a family, and of all else that decides which kernel answers it.

    Args:
        database: The database's digest.
        family, link_mode, link_options: As requested.
        entry: The entrypoint's group; None if the configuration decides between several.
        configuration: The parameters that are given, spelled as by the family.
        capability: The device's compute capability.
        linker: The release of nvJitLink.

    Returns:
        str or None: None if it cannot be written as JSON.
    """
    with contextlib.suppress(TypeError, ValueError, RecursionError):
        return hash_key(database, family, entry, link_mode, link_options, configuration, capability, linker)
    return None


def find_contents(sources: Iterable[KernelSource], digest: str) -> Contents | None:
    """Return the contents of the database with a digest; None if they are not known."""
    return find_first(sources, CONTENTS, hash_key(digest), lambda payload, _: Contents.decode(digest, payload))


def find_chosen(sources: Iterable[KernelSource], key: str) -> Chosen | None:
    """Return the kernel that answers a request; None if it is not known."""
    return find_first(sources, REQUESTS, key, lambda payload, _: Chosen.decode(payload))


class FamilyContents(Frozen):
    """The parameters and entrypoints of a family.

    Args:
        parameters: Its parameters, and the values that occur, both sorted.
        entrypoints: Its groups of entrypoints, sorted.
        version: The version that its author declares; empty if there is none.
    """

    parameters: Mapping[str, tuple[str, ...]]
    entrypoints: tuple[str, ...]
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
        from jitlto.record.fragment import sorted_values  # imported lazily: not needed on a cache hit

        families = {}
        for name, record in database.families.items():
            shapes = list(database.shapes.get(name, ()))
            entrypoints = {shape.group for shape in shapes if shape.role == "entrypoint"}
            shapes += [s for used in record.uses for s in database.shapes.get(used, ()) if s.role == "device"]
            families[name] = FamilyContents(
                sorted_values(item for shape in shapes for item in shape.parameters.items()),
                tuple(sorted(entrypoints)),
                record.version,
            )
        return cls(database.digest, None if database.part is None else str(database.part), families)

    @property
    def key(self) -> str:
        """The key under which they are stored."""
        return hash_key(self.digest)

    def encode(self) -> bytes:
        """Encode them as JSON, for :meth:`decode`."""
        families = {name: list(family.as_dict().values()) for name, family in self.families.items()}
        return json.dumps([self.digest, self.part, families]).encode()

    @classmethod
    def decode(cls, digest: str, payload: bytes) -> Contents | None:
        """Decode the contents of the database with a digest; None if they are something else."""
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # not written by jitlto
            written, part, families = json.loads(payload)
            read = {}
            for name, (parameters, groups, version) in families.items():
                values = {parameter: tuple(values) for parameter, values in parameters.items()}
                read[name] = FamilyContents(values, tuple(groups), version)
            return cls(digest, part, read) if written == digest else None
        return None


def hash_key(*parts: object) -> str:
    """Return the SHA-256 of values that JSON has, and of the version of jitlto, whose answers they are.

    Raises:
        TypeError, ValueError, RecursionError: If one cannot be written as JSON.
    """
    return digest_of(json.dumps([_REVISION, __version__, *parts], sort_keys=True).encode()).hex()
