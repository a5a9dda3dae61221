"""Compilation of callers' device code, once per content: kept in this process, and in the user's cache for others.

Entries are JSON, filed under the SHA-256 of everything that determines them. An unreadable entry is a miss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct

from jitlto.base.cache_dir import CacheDir
from jitlto.base.cached import decoder
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.header_search import HeaderSearch
from jitlto.cuda import ptx, toolkit
from jitlto.record.headers import Source

#: The folder of the entries in the cache directory.
ENTRIES = "sources"
_SCHEMA = 5  # of the entries


class Entry(Struct):
    """Base of cached values; ``key`` is part of the entry, because a file may have been renamed."""

    key: str


_E = TypeVar("_E", bound=Entry)


def entry_key(inputs: Mapping[str, object]) -> str:
    """Return the key of the entry made from these inputs, which are plain JSON values."""
    return hashlib.sha256(json.dumps({"schema": _SCHEMA, **inputs}, sort_keys=True).encode()).hexdigest()


def load_entry(store: CacheDir | None, kind: type[_E], key: str) -> _E | None:
    """Return an entry of the user's cache; None if it is missing or cannot be read."""
    payload = store.get(ENTRIES, key) if store else None
    if payload is None:
        return None
    try:
        entry = decoder(kind).decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return entry if entry.key == key else None


def save_entry(store: CacheDir | None, entry: Entry) -> None:
    """Keep an entry for other processes."""
    if store is not None and not store.readonly:
        store.put(ENTRIES, entry.key, msgspec.json.encode(entry))
        store.prune_if_due()


class _SourceEntry(Entry):
    headers: dict[str, str | None]
    ltoir: bytes
    ptx: str
    version: str
    warnings: str
    identity: str


@lru_cache(maxsize=256)
def compile_once(
    text: bytes,
    headers: tuple[tuple[str, str], ...],
    architecture: Architecture,
    options: tuple[str, ...],
    store: CacheDir | None,
) -> nvrtc.Compiled:
    """Compile CUDA C++ with NVRTC, or return the earlier result for the same text, headers and options.

    ``headers`` are names and texts, in addition to the toolkit's.

    Raises:
        CompileError: If it does not compile; the log names it by
            :func:`jitlto.compile.nvrtc_program.program_name`.
    """
    overlay = {header: content.encode("utf-8", "surrogateescape") for header, content in headers}
    key = entry_key(
        {
            "text": hashlib.sha256(text).hexdigest(),
            "headers": {name: hashlib.sha256(content).hexdigest() for name, content in overlay.items()},
            "architecture": str(architecture),
            "options": list(options),
            "nvrtc": toolkit.build_id("nvrtc"),
        }
    )
    search = _RecordingSearch((), overlay, system=toolkit.header_roots(), options=options, strict=True, beyond=False)
    entry = load_entry(store, _SourceEntry, key)
    cached = _from_entry(entry, search, architecture) if entry else None
    if cached is not None:
        return cached
    compiled = nvrtc.compile_closure(search, text, [architecture], options)
    # Headers that were searched for and not found count too: if one appears, the result changes.
    looked_up = search.absent(text, search.last_headers) | search.last_headers
    save_entry(
        store,
        _SourceEntry(
            key,
            {name: search.sha256(name) for name in looked_up},
            compiled.ltoir[architecture],
            compiled.ptx,
            str(compiled.version),
            compiled.warnings,
            compiled.identity,
        ),
    )
    return compiled


def _from_entry(entry: _SourceEntry, search: HeaderSearch, architecture: Architecture) -> nvrtc.Compiled | None:
    """Return the content of an entry; None if the toolkit's headers have changed since, or its PTX cannot be read."""
    if any(search.sha256(name) != digest for name, digest in entry.headers.items()):
        return None
    try:
        version, module = Version.parse(entry.version), ptx.parse_ptx(entry.ptx)
    except JitltoError:
        return None
    ltoir = {architecture: entry.ltoir}
    return nvrtc.Compiled(ltoir, entry.ptx, module, version, entry.warnings, entry.identity)


class _RecordingSearch(HeaderSearch):
    """A search that records the headers of the last closure, including those named explicitly.

    Text from a database or a caller must not lead to files beside the toolkit's headers.
    """

    last_headers: frozenset[str] = frozenset()

    def closure(self, text: bytes, extra: Iterable[str] = ()) -> Source:
        source = super().closure(text, extra)
        self.last_headers = frozenset(source.headers)
        return source
