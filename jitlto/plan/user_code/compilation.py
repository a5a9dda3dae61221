"""Compilation of callers' device code, once per content: kept in this process, and in the user's cache for others.

Entries are JSON, filed under the SHA-256 of everything that determines them. An unreadable entry is a miss.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache

import msgspec
from msgspec import Struct

from jitlto.base.cache_dir import CacheDir
from jitlto.base.cached import cached_property, decoder
from jitlto.base.errors import CompileError, JitltoError
from jitlto.base.versions import Architecture
from jitlto.compile import nvrtc_program as nvrtc
from jitlto.compile.headers import HeaderSearch
from jitlto.cuda import toolkit
from jitlto.cuda.ptx import Module, parse_ptx
from jitlto.record.fragment import ImageKind

#: The folder of the entries in the cache directory.
ENTRIES = "sources"
_SCHEMA = 8  # of the entries


class _Entry(Struct, omit_defaults=True):
    ptx: str
    identity: str
    ltoir: bytes = b""  # until it is linked; earlier releases take such an entry for a miss


class UserCode:
    """What a compiler makes of a caller's code, for one architecture.

    Args:
        ptx: Relocatable.
        identity: SHA-256 of everything that it was made from. NVRTC writes the working directory into LTO-IR, so equal
            sources do not give equal bytes in every process; they do give equal identities.
        ltoir: Not in a fatbin; or what makes it, when it is first asked for.
    """

    def __init__(self, ptx: str, identity: str, ltoir: bytes | Callable[[], bytes]) -> None:
        self.ptx, self.identity, self._ltoir = ptx, identity, ltoir

    @cached_property
    def module(self) -> Module:
        """What the PTX declares."""
        return parse_ptx(self.ptx)

    @property
    def ltoir(self) -> bytes:
        """The LTO-IR, compiled on first use.

        Raises:
            CompileError: If the code compiles to PTX alone.
        """
        made = self._ltoir
        if not isinstance(made, bytes):
            self._ltoir = made = made()
        return made


@lru_cache(maxsize=256)
def compile_once(
    text: bytes,
    headers: tuple[tuple[str, str], ...],
    architecture: Architecture,
    options: tuple[str, ...],
    store: CacheDir | None,
) -> UserCode:
    """Compile CUDA C++ with NVRTC, or return the earlier result for the same text, headers and options.

    PTX is made at once, since planning needs its symbols; LTO-IR when it is linked. ``headers`` are names and texts, in
    addition to the toolkit's.

    Raises:
        CompileError: If it does not compile; the log names it by
            :func:`jitlto.compile.nvrtc_program.program_name`.
    """
    overlay = {header: content.encode("utf-8", "surrogateescape") for header, content in headers}
    # Text from a database or a caller must not lead to files beside the toolkit's headers.
    search = HeaderSearch((), overlay, system=toolkit.header_roots(), strict=True)
    source = search.closure(text)
    made_from = [_SCHEMA, source.sha256, str(architecture), options, toolkit.build_id(toolkit.find_library("nvrtc"))]
    key = hashlib.sha256(json.dumps(made_from).encode()).hexdigest()

    def make(kind: ImageKind) -> bytes:
        with suppress(CompileError):  # in half the time; most sources need nothing that is left out, such as textures
            return nvrtc.run_step(source, nvrtc.Step(kind, architecture, (*options, "--minimal"))).data
        return nvrtc.run_step(source, nvrtc.Step(kind, architecture, options)).data

    def keep(ltoir: bytes) -> bytes:
        if store is not None:
            store.put(ENTRIES, key, msgspec.json.encode(_Entry(made.ptx, made.identity, ltoir)))
            store.prune_if_due()
        return ltoir

    def make_ltoir() -> bytes:
        return keep(make(ImageKind.LTOIR))

    payload = store.get(ENTRIES, key) if store else None
    if payload and (cached := _decode(payload, make_ltoir)):
        made = cached
    else:
        nvrtc.check_no_nul(source)
        identity = nvrtc.identify(source, architecture, options)
        made = UserCode(make(ImageKind.PTX).decode(), identity, make_ltoir)
        keep(b"")
    return made


def _decode(payload: bytes, make_ltoir: Callable[[], bytes]) -> UserCode | None:
    """Return the content of an entry; None if it cannot be read."""
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, JitltoError):
        entry = decoder(_Entry).decode(payload)
        made = UserCode(entry.ptx, entry.identity, entry.ltoir or make_ltoir)
        if made.module:
            return made
    return None
