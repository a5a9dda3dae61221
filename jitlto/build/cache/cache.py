"""The build cache: compiler output by content, shared between processes and checkouts."""

from __future__ import annotations

import contextlib
import functools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jitlto.base import config
from jitlto.base.cache_dir import CacheDir, open_cache_dir
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture
from jitlto.build.cache import keys
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.cache.shared_units import COMPILED, HEADERS, SharedUnit, SharedUnits
from jitlto.compile.compiler import CompiledSource
from jitlto.record.fragment import FragmentKey

if TYPE_CHECKING:  # not imported at run time, so that builds without a store do not load it
    from jitlto.stores.shared import SharedStores

_MOST_MANIFESTS = 32  # manifests stored for one source
_COSTS = keys.sha256(b"costs")
_DAMAGED = (msgspec.DecodeError, ValueError, RecursionError, JitltoError)


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a source: the manifests that it was compiled with, the latest first, and the result for that."""

    manifests: list[str]
    latest: bytes  # those of the others are in entries of their own


@dataclass(frozen=True, slots=True)
class HeldUnit:
    """A compiled source from the directory."""

    compiled: CompiledSource
    manifest: bytes  # of its headers
    encoded: bytes


@dataclass(frozen=True, slots=True)
class TakenUnit:
    """A compiled source from a shared store."""

    compiled: CompiledSource
    manifest: bytes  # of its headers
    seconds: float  # that the compile took


class Inputs(NamedTuple):
    """What a fragment was made from.

    Args:
        checkout: Where the files of its group are: what other checkouts build has no part in why it is compiled.
        fields: By name.
        manifest: Of its headers.
    """

    checkout: str
    fields: Mapping[str, str]
    manifest: bytes


class Cache:
    """The build cache: compiled sources by source key and headers, costs by fragment key, histories also by checkout.

    An entry that is damaged, or was not written by jitlto, is a miss.

    Args:
        store: The user's directory.
        stores: Shared stores, for what the directory lacks. Costs and histories are kept in the directory alone.
    """

    def __init__(self, store: CacheDir, stores: SharedStores | None = None) -> None:
        self.store = store
        self.shared = SharedUnits(stores) if stores else None
        self._headers: dict[str, bytes] = {}  # manifests that the store has; most sources share theirs

    def find(self, source_key: str, compile_config: CompileConfig) -> CompiledSource | None:
        """Return the compiled form of a source, if its headers are unchanged."""
        held = self.find_unit(source_key, compile_config)
        return held.compiled if held else None

    def find_unit(self, source_key: str, compile_config: CompileConfig) -> HeldUnit | None:
        """Return the compiled form of a source, if its headers are unchanged, as the directory has it."""
        entry = self._entry(source_key)
        for sha in entry.manifests:
            manifest = self._manifest(sha)
            if manifest is None or not compile_config.is_current(sha, manifest):
                continue
            is_latest = sha == entry.manifests[0]
            data = entry.latest if is_latest else self.store.get(COMPILED, keys.entry_key(source_key, sha))
            if data is not None and (compiled := decode_compiled(data)) is not None:
                return HeldUnit(compiled, manifest, data)
        return None

    @property
    def fills_stores(self) -> bool:
        """Whether shared stores are written to."""
        return self.shared is not None and self.shared.stores.takes_writes

    def find_shared(self, wanted: Mapping[str, tuple[str, CompileConfig]]) -> dict[str, TakenUnit]:
        """Return those compiled sources that shared stores have, and store them in the directory.

        Args:
            wanted: The source key and configuration of each, by the key of the compiler's whole input.
        """
        taken: dict[str, TakenUnit] = {}
        if self.shared is None or not wanted:
            return taken
        configs = {key: compile_config for key, (_, compile_config) in wanted.items()}
        for key, (unit, manifest) in self.shared.find(configs).items():
            if (compiled := decode_compiled(unit.compiled)) is not None:
                self._put(wanted[key][0], manifest, unit.compiled)
                taken[key] = TakenUnit(compiled, manifest, unit.seconds)
        return taken

    def put(self, source_key: str, manifest: bytes, compiled: CompiledSource) -> bytes:
        """Store the compiled form of a source that was compiled with the headers of ``manifest``; return it encoded."""
        data = encode_compiled(compiled)
        self._put(source_key, manifest, data)
        return data

    def share(self, key: str, manifest: bytes, data: bytes, seconds: float) -> None:
        """Store a compiled source in shared stores, behind the caller's back.

        Args:
            key: Of the compiler's whole input.
            data: As :meth:`put` returns it.
            seconds: How long the compile took.
        """
        if self.shared is not None:
            unit = SharedUnit(keys.sha256(manifest), seconds, data)
            self.shared.put(key, manifest, unit)

    def fetch(self, kind: str, wanted: Iterable[str]) -> None:
        """Store in the directory those entries that it lacks and shared stores have, and in these what they lack."""
        if self.shared is None:
            return
        held = {key: self.store.get(kind, key) for key in wanted}
        for key, data in held.items():
            if data is not None and self.fills_stores:
                self.shared.stores.put(kind, key, data)
        for key, data in self.shared.stores.get_many(kind, [key for key, data in held.items() if data is None]).items():
            self.store.put(kind, key, data)

    def keep(self, kind: str, key: str, data: bytes) -> None:
        """Store an entry whose key is made of all that it depends on, in shared stores too."""
        self.store.put(kind, key, data)
        if self.shared is not None:
            self.shared.stores.put(kind, key, data)

    def _put(self, source_key: str, manifest: bytes, data: bytes) -> None:
        sha = keys.sha256(manifest)
        if self._headers.get(sha) != manifest:
            self.store.put(HEADERS, sha, manifest)
            self._headers[sha] = manifest
        entry = self._entry(source_key)
        if entry.manifests and entry.manifests[0] != sha:
            self.store.put(COMPILED, keys.entry_key(source_key, entry.manifests[0]), entry.latest)
        manifests = [sha, *(other for other in entry.manifests if other != sha)]
        made = _Entry(manifests[:_MOST_MANIFESTS], data)
        self.store.put(COMPILED, source_key, msgspec.msgpack.encode(made))

    def costs(self) -> dict[str, float]:
        """Seconds that fragments took to compile, by the text form of their keys."""
        with contextlib.suppress(*_DAMAGED):
            return msgspec.json.decode(self.store.get("costs", _COSTS) or b"{}", type=dict[str, float])
        return {}

    def record_costs(self, seconds: Mapping[str, float]) -> None:
        """Add to the costs."""
        if seconds:
            self.store.put("costs", _COSTS, json.dumps(self.costs() | dict(seconds), sort_keys=True).encode())

    def history(self, key: FragmentKey, checkout: str) -> dict[str, str | dict[str, str]] | None:
        """The inputs of a fragment when it was last built in a checkout with this cache, by name."""
        with contextlib.suppress(*_DAMAGED):
            batch, _ = self._history(_history_key(key, checkout)).get(key.text, ("", ""))
            data = self.store.get("history", batch) if batch else None
            fields = data and msgspec.convert(json.loads(data), dict[str, dict[str, str]]).get(key.text)
            if fields and (manifest := self._manifest(fields.get("headers", ""))) is not None:
                return {**fields, "headers": keys.headers(manifest)}
        return None

    def record_history(self, inputs: Mapping[FragmentKey, Inputs]) -> None:
        """Store the inputs of fragments, where they are not those of their last build.

        They are in one entry, and an entry for each group tells in which those of each fragment are: many file systems
        take longer to make a file than a compile takes to be stored.
        """
        before = functools.cache(self._history)
        is_held = functools.cache(lambda sha: self.store.get("history", sha) is not None)
        batch: dict[str, dict[str, str]] = {}
        changed: dict[str, dict[str, str]] = defaultdict(dict)
        for key, (checkout, fields, manifest) in inputs.items():
            now = {**fields, "headers": keys.sha256(manifest)}
            place, digest = _history_key(key, checkout), keys.sha256(json.dumps(now).encode())
            last, recorded = before(place).get(key.text, ("", ""))
            if recorded != digest or not is_held(last):
                batch[key.text], changed[place][key.text] = now, digest
        if not batch:
            return
        data = json.dumps(batch).encode()
        sha = keys.sha256(data)
        self.store.put("history", sha, data)
        for place, digests in changed.items():
            merged = before(place) | {text: (sha, digest) for text, digest in digests.items()}
            self.store.put("history", place, msgspec.json.encode(merged))

    def _history(self, place: str) -> dict[str, tuple[str, str]]:
        """By the keys of a group's fragments, the entry that has their inputs, and the SHA-256 of these."""
        with contextlib.suppress(*_DAMAGED):
            return msgspec.json.decode(self.store.get("history", place) or b"{}", type=dict[str, tuple[str, str]])
        return {}

    def _manifest(self, sha: str) -> bytes | None:
        if sha not in self._headers:
            manifest = self.store.get(HEADERS, sha)
            if manifest is None or keys.sha256(manifest) != sha:
                return None
            self._headers[sha] = manifest
        return self._headers[sha]

    def _entry(self, source_key: str) -> _Entry:
        with contextlib.suppress(*_DAMAGED):
            return msgspec.msgpack.decode(self.store.get(COMPILED, source_key) or b"", type=_Entry)
        return _Entry([], b"")


def _history_key(key: FragmentKey, checkout: str) -> str:
    return keys.sha256(f"{key.family}/{key.group}\n{checkout}".encode("utf-8", "surrogateescape"))


def encode_compiled(compiled: CompiledSource) -> bytes:
    """Serialise a compiled source as MessagePack, without its headers, which the manifest names."""
    return msgspec.msgpack.encode(replace(compiled, reads=()))


def decode_compiled(data: bytes) -> CompiledSource | None:
    """Deserialise a compiled source; None if ``data`` is damaged."""
    with contextlib.suppress(*_DAMAGED):
        compiled = msgspec.msgpack.decode(data, type=CompiledSource)
        for architecture in (compiled.target, *(architecture for _, architecture, _ in compiled.images)):
            Architecture.parse(str(architecture))
        return compiled
    return None


def open_cache(directory: Path | None = None) -> Cache | None:
    """Open the user's build cache, or the one in ``directory``; return None if it cannot be used."""
    settings = config.current()
    store = open_cache_dir(Path(directory or settings.cache_dir) / "build", settings.build_cache_size)
    return Cache(store) if store else None
