"""Compiled sources in shared stores: each is one object, under a key made of all that a compile of it can read.

A unit's *place* is the SHA-256 of its source key and its headers, as they are sent to the compiler. This may cover less
than the compiler reads: nvcc finds the host's headers itself, and macros may name further ones. So a unit also names
its manifest, and it is used only if every line of that holds here, as on disk. If one does not, the compile of another
machine has this place; the next place is made of this one and that manifest. Objects are written once and never
changed, so machines with different headers do not replace each other's, and no list has to be kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec

from jitlto.build.cache import keys
from jitlto.build.cache.keys import CompileConfig

if TYPE_CHECKING:  # not imported at run time, so that builds without a store do not load it
    from jitlto.stores.shared import SharedStores

COMPILED, HEADERS = "compiled", "headers"  # kinds of objects
_MOST_PLACES = 8  # that are looked at for one source


class SharedUnit(msgspec.Struct, frozen=True, array_like=True):
    """A compiled source as it is in a store."""

    manifest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]  # SHA-256
    seconds: float  # that the compile took
    compiled: bytes  # as the build cache has it


@dataclass
class _Places:
    """What was found on the way to a source's place."""

    free: str  # the first that no readable unit has
    manifests: set[str] = field(default_factory=set)  # of the units at the others


class SharedUnits:
    """The compiled sources in a process's shared stores.

    Args:
        stores: Asked for many objects at a time; written to behind the caller's back.
    """

    def __init__(self, stores: SharedStores) -> None:
        self.stores = stores
        self._manifests: dict[str, bytes] = {}  # that the stores have
        self._places: dict[str, _Places] = {}

    def find(self, wanted: Mapping[str, CompileConfig]) -> dict[str, tuple[SharedUnit, bytes]]:
        """Return the units, and their manifests, whose headers are unchanged.

        Args:
            wanted: What the headers are compared with, by the key of the compiler's whole input.
        """
        found: dict[str, tuple[SharedUnit, bytes]] = {}
        at = {key: key for key in wanted}
        for _ in range(_MOST_PLACES):
            units = self._read_units(at)
            self._read_manifests(unit.manifest for unit in units.values())
            following = {}
            for key, place in at.items():
                places = self._places.setdefault(key, _Places(place))
                places.free = place
                if (unit := units.get(key)) is None:
                    continue
                manifest = self._manifests.get(unit.manifest)
                if manifest is not None and wanted[key].is_current(unit.manifest, manifest):
                    found[key] = unit, manifest
                else:
                    places.manifests.add(unit.manifest)
                    following[key] = places.free = keys.entry_key(place, unit.manifest)
            at = following
            if not at:
                break
        return found

    def put(self, key: str, manifest: bytes, unit: SharedUnit) -> None:
        """Store a unit that was compiled because :meth:`find` has not found it, or that is not known to be there."""
        if unit.manifest not in self._manifests:
            self.stores.put(HEADERS, unit.manifest, manifest)
            self._manifests[unit.manifest] = manifest
        places = self._places.get(key) or _Places(key)
        if unit.manifest not in places.manifests:  # else its manifest was missing
            self.stores.put(COMPILED, places.free, msgspec.msgpack.encode(unit))

    def _read_units(self, at: Mapping[str, str]) -> dict[str, SharedUnit]:
        units: dict[str, SharedUnit] = {}
        objects = self.stores.get_many(COMPILED, list(dict.fromkeys(at.values())))
        for key, place in at.items():
            if place in objects:
                with contextlib.suppress(msgspec.MsgspecError, RecursionError):
                    units[key] = msgspec.msgpack.decode(objects[place], type=SharedUnit)
        return units

    def _read_manifests(self, wanted: Iterable[str]) -> None:
        missing = [sha for sha in dict.fromkeys(wanted) if sha not in self._manifests]
        if missing:
            for sha, manifest in self.stores.get_many(HEADERS, missing).items():
                if keys.sha256(manifest) == sha:
                    self._manifests[sha] = manifest
