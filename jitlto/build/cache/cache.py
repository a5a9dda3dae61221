"""The build cache: compiler output by content, shared between processes, checkouts and, through a store, machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from jitlto.base import config
from jitlto.base.cache_dir import CacheDir, open_cache_dir
from jitlto.build.cache.keys import CompileConfig
from jitlto.compile.compiler import CompiledSource
from jitlto.link.sources import open_shared

if TYPE_CHECKING:  # not imported at run time, so that builds without a store do not load it
    from jitlto.stores.shared import SharedStore

T = TypeVar("T", bound=msgspec.Struct)

#: The kind of entries with compiled sources.
COMPILED = "compiled"
#: Seconds that a build or a check may wait for a shared store in vain.
PATIENCE = 2.0
_DAMAGED = (msgspec.DecodeError, ValueError, RecursionError)


class Layer(StrEnum):
    """Where a compiled source came from: one of this build, the user's directory or a shared store."""

    MEMORY = "memory"
    DIRECTORY = "directory"
    STORE = "store"


class Unit(msgspec.Struct, frozen=True, array_like=True):
    """A compiled source as the cache has it."""

    compiled: CompiledSource  # without the names of the headers that were read
    headers: dict[str, str]  # that it was compiled with, beside those of its key, with their states


class Cache:
    """Entries by key, in layers: the user's directory, and a shared store for what that lacks. None is changed.

    One that is damaged, or was not written by jitlto, is a miss.

    Args:
        store: The user's directory.
        shared: The shared store; written to behind the caller's back.
    """

    def __init__(self, store: CacheDir, shared: SharedStore | None = None) -> None:
        self.store = store
        self.shared = shared

    def find(self, kind: str, keys: Iterable[str]) -> dict[str, tuple[bytes, Layer]]:
        """Return the entries that there are, with their layers; each layer gets what the other has."""
        wanted = list(dict.fromkeys(keys))
        held = {key: data for key in wanted if (data := self.store.get(kind, key)) is not None}
        found = {key: (data, Layer.DIRECTORY) for key, data in held.items()}
        if self.shared is not None:
            if self.shared.takes_writes:
                for key, data in held.items():
                    self.shared.put(kind, key, data)
            for key, data in self.shared.get_many(kind, [key for key in wanted if key not in held]).items():
                self.store.put(kind, key, data)
                found[key] = data, Layer.STORE
        return found

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Store an entry whose key is made of all that it depends on."""
        self.store.put(kind, key, data)
        if self.shared is not None:
            self.shared.put(kind, key, data)

    def find_units(self, wanted: Mapping[str, CompileConfig]) -> dict[str, tuple[Unit, Layer]]:
        """Return those compiled sources that there are, with their layers.

        Args:
            wanted: How each is compiled, by its key.
        """
        units = {}
        for key, (data, layer) in self.find(COMPILED, wanted).items():
            unit = decode(data, Unit)
            if unit is not None and wanted[key].is_current(unit.headers):
                units[key] = unit, layer
        return units


def encode_unit(unit: Unit) -> bytes:
    """Serialise a compiled source as MessagePack."""
    return msgspec.msgpack.encode(Unit(replace(unit.compiled, reads=()), unit.headers))


def decode(data: bytes, kind: type[T]) -> T | None:
    """Deserialise an entry; None if ``data`` is damaged."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except _DAMAGED:
        return None


def open_cache(directory: Path | None = None) -> Cache | None:
    """Open the user's build cache, or the one in ``directory``; return None if it cannot be used."""
    settings = config.current()
    store = open_cache_dir(Path(directory or settings.cache_dir) / "build", settings.build_cache_size)
    return Cache(store) if store else None


def open_shared_cache() -> Cache | None:
    """Open the user's build cache over the shared store of ``JITLTO_STORE``; return None if it cannot be used."""
    cache = open_cache()
    if cache is not None and (shared := open_shared(config.current(), PATIENCE)) is not None:
        cache.shared = shared
        if not (cache.store.directory / COMPILED).exists():  # the store will be asked soon
            shared.open_soon()
    return cache


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Fragments that were not compiled, by the layer that they came from, and the traffic with the shared store."""

    memory: int = 0
    directory: int = 0
    store: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    rejected: int = 0  # objects that were damaged, or not signed by a trusted key
    failures: int = 0  # requests that failed
