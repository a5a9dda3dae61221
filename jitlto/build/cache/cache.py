"""The build cache: compiler output by content, shared between processes and checkouts."""

from __future__ import annotations

import contextlib
import json
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
_DAMAGED = (msgspec.DecodeError, ValueError, RecursionError, JitltoError)


class Cache:
    """The build cache: compiled sources by source key and headers, costs and histories by fragment key.

    An entry that is damaged, or was not written by jitlto, is a miss.
    """

    def __init__(self, store: CacheDir) -> None:
        self.store = store
        self._headers: dict[str, bytes] = {}  # manifests that the store has; most sources share theirs

    def find(self, source_key: str, compile_config: CompileConfig) -> CompiledSource | None:
        """Return the compiled form of a source, if its headers are unchanged."""
        for sha in self._manifests(source_key):
            manifest = self._manifest(sha)
            if manifest is None or not compile_config.is_current(sha, manifest):
                continue
            data = self.store.get("compiled", keys.entry_key(source_key, sha))
            if data is not None and (compiled := decode_compiled(data)) is not None:
                return compiled
        return None

    def put(self, source_key: str, manifest: bytes, compiled: CompiledSource) -> None:
        """Store the compiled form of a source that was compiled with the headers of ``manifest``."""
        sha = keys.sha256(manifest)
        if self._headers.get(sha) != manifest:
            self.store.put("headers", sha, manifest)
            self._headers[sha] = manifest
        self.store.put("compiled", keys.entry_key(source_key, sha), encode_compiled(compiled))
        manifests = [sha, *(other for other in self._manifests(source_key) if other != sha)]
        self.store.put("sources", source_key, "\n".join(manifests[:_MOST_MANIFESTS]).encode())

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
        if data := self.store.get("history", keys.sha256(str(key).encode())):
            with contextlib.suppress(*_DAMAGED):
                # Header names may not be valid UTF-8, which msgspec's own decoder rejects.
                return msgspec.convert(json.loads(data), dict[str, str | dict[str, str]])
        return None

    def record_history(self, key: FragmentKey, fields: Mapping[str, object]) -> None:
        """Store the inputs of a fragment, by name."""
        self.store.put("history", keys.sha256(str(key).encode()), json.dumps(fields).encode())

    def _manifest(self, sha: str) -> bytes | None:
        if sha not in self._headers:
            manifest = self.store.get("headers", sha)
            if manifest is None or keys.sha256(manifest) != sha:
                return None
            self._headers[sha] = manifest
        return self._headers[sha]

    def _manifests(self, source_key: str) -> list[str]:
        data = self.store.get("sources", source_key)
        return data.decode("ascii", "replace").split("\n") if data else []


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
