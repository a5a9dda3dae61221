"""Compilation of callers' device code, once per content: kept in this process, and in the user's cache for others.

Entries are JSON, filed under the SHA-256 of everything that determines them. An unreadable entry is a miss.
"""

import hashlib
import json
from functools import lru_cache

import msgspec
from msgspec import Struct

from jitlto.base.cache_dir import CacheDir
from jitlto.base.cached import decoder
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture, Version
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.cuda import ptx, toolkit

#: The folder of the entries in the cache directory.
ENTRIES = "sources"
_SCHEMA = 7  # of the entries


class _Entry(Struct):
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
    # Text from a database or a caller must not lead to files beside the toolkit's headers.
    search = HeaderSearch((), overlay, system=toolkit.header_roots(), options=options, strict=True)
    source = search.closure(text)
    made_from = [_SCHEMA, source.sha256, str(architecture), options, toolkit.build_id("nvrtc")]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()
    payload = store.get(ENTRIES, key) if store else None
    if payload and (cached := _decode(payload, architecture)):
        return cached
    made = nvrtc.compile_source(source, [architecture], options)
    if store is not None:
        entry = _Entry(made.ltoir[architecture], made.ptx, str(made.version), made.warnings, made.identity)
        store.put(ENTRIES, key, msgspec.json.encode(entry))
        store.prune_if_due()
    return made


def _decode(payload: bytes, architecture: Architecture) -> nvrtc.Compiled | None:
    """Return the content of an entry; None if it cannot be read."""
    try:
        entry = decoder(_Entry).decode(payload)
        version, module = Version.parse(entry.version), ptx.parse_ptx(entry.ptx)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, JitltoError):
        return None
    return nvrtc.Compiled({architecture: entry.ltoir}, entry.ptx, module, version, entry.warnings, entry.identity)
