"""The build cache: compiler output by content, shared between processes and checkouts."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from jitlto import config
from jitlto.build.cache import keys
from jitlto.build.cache.keys import CompileConfig
from jitlto.build.compilers.base import CompiledSource
from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey
from jitlto.model.versions import Architecture
from jitlto.storage.cache_dir import CacheDir, open_cache_dir

_MOST_MANIFESTS = 32  # manifests stored for one source
_COSTS = keys.sha256(b"costs")
_COMPILED = "compiled"
_DAMAGED = (msgspec.DecodeError, ValueError, RecursionError, JitltoError)


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a source: the manifests that it was compiled with, the latest first, and the result for that."""

    manifests: list[str]
    latest: bytes  # those of the others are in entries of their own


class Cache:
    """The build cache: compiled sources by source key and headers, costs and histories by fragment key.

    An entry that is damaged, or was not written by jitlto, is a miss.
    """

    def __init__(self, store: CacheDir) -> None:
        self.store = store
        self._headers: dict[str, bytes] = {}  # manifests that the store has; most sources share theirs

    def find(self, source_key: str, compile_config: CompileConfig) -> CompiledSource | None:
        """Return the compiled form of a source, if its headers are unchanged."""
        entry = self._entry(source_key)
        for sha in entry.manifests:
            manifest = self._manifest(sha)
            if manifest is None or not compile_config.is_current(sha, manifest):
                continue
            is_latest = sha == entry.manifests[0]
            data = entry.latest if is_latest else self.store.get(_COMPILED, keys.entry_key(source_key, sha))
            if data is not None and (compiled := decode_compiled(data)) is not None:
                return compiled
        return None

    def put(self, source_key: str, manifest: bytes, compiled: CompiledSource) -> None:
        """Store the compiled form of a source that was compiled with the headers of ``manifest``."""
        sha = keys.sha256(manifest)
        if self._headers.get(sha) != manifest:
            self.store.put("headers", sha, manifest)
            self._headers[sha] = manifest
        entry = self._entry(source_key)
        if entry.manifests and entry.manifests[0] != sha:
            self.store.put(_COMPILED, keys.entry_key(source_key, entry.manifests[0]), entry.latest)
        manifests = [sha, *(other for other in entry.manifests if other != sha)]
        made = _Entry(manifests[:_MOST_MANIFESTS], encode_compiled(compiled))
        self.store.put(_COMPILED, source_key, msgspec.msgpack.encode(made))

    def costs(self) -> dict[str, float]:
        """Seconds that fragments took to compile, by the text form of their keys."""
        with contextlib.suppress(*_DAMAGED):
            return msgspec.json.decode(self.store.get("costs", _COSTS) or b"{}", type=dict[str, float])
        return {}

    def record_costs(self, seconds: Mapping[str, float]) -> None:
        """Add to the costs."""
        if seconds:
            self.store.put("costs", _COSTS, json.dumps(self.costs() | dict(seconds), sort_keys=True).encode())

    def history(self, key: FragmentKey) -> dict[str, str | dict[str, str]] | None:
        """The inputs of a fragment when it was last built with this cache, by name."""
        with contextlib.suppress(*_DAMAGED):
            batch = self._history(key).get(key.text)
            data = self.store.get("history", batch) if batch else None
            fields = data and msgspec.convert(json.loads(data), dict[str, dict[str, str]]).get(key.text)
            if fields and (manifest := self._manifest(fields.get("headers", ""))) is not None:
                return {**fields, "headers": keys.headers(manifest)}
        return None

    def record_history(self, inputs: Mapping[FragmentKey, tuple[Mapping[str, str], bytes]]) -> None:
        """Store the inputs of fragments, by name, with the manifests of their headers.

        They are in one entry, and an entry for each group tells in which those of each fragment are: many file systems
        take longer to make a file than a compile takes to be stored.
        """
        if not inputs:
            return
        batch = {key.text: {**fields, "headers": keys.sha256(manifest)} for key, (fields, manifest) in inputs.items()}
        data = json.dumps(batch).encode()
        sha = keys.sha256(data)
        self.store.put("history", sha, data)
        groups: dict[tuple[str, str], list[FragmentKey]] = defaultdict(list)
        for key in inputs:
            groups[key.family, key.group].append(key)
        for several in groups.values():
            merged = self._history(several[0]) | dict.fromkeys((key.text for key in several), sha)
            self.store.put("history", _history_key(several[0]), msgspec.json.encode(merged))

    def _history(self, key: FragmentKey) -> dict[str, str]:
        """The entry that has the inputs of each fragment of a group, by the fragment's key."""
        with contextlib.suppress(*_DAMAGED):
            return msgspec.json.decode(self.store.get("history", _history_key(key)) or b"{}", type=dict[str, str])
        return {}

    def _manifest(self, sha: str) -> bytes | None:
        if sha not in self._headers:
            manifest = self.store.get("headers", sha)
            if manifest is None or keys.sha256(manifest) != sha:
                return None
            self._headers[sha] = manifest
        return self._headers[sha]

    def _entry(self, source_key: str) -> _Entry:
        with contextlib.suppress(*_DAMAGED):
            return msgspec.msgpack.decode(self.store.get(_COMPILED, source_key) or b"", type=_Entry)
        return _Entry([], b"")


def _history_key(key: FragmentKey) -> str:
    return keys.sha256(f"{key.family}/{key.group}".encode())


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
