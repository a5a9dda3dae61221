"""Whole files in a store, by content: databases with their packs, recorded plans, packs by themselves.

An artifact is stored as it is, under the SHA-256 of its bytes. Its address ends with this SHA-256, which is what is
trusted: a file from anywhere that has it is the file that was pushed, so artifacts need no signature. A database that
has packs beside it is pushed with them, and its address is that of an index: a small artifact that lists the names and
the SHA-256 of all of them.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from jitlto.base import files
from jitlto.base.cached import decoder
from jitlto.base.errors import StoreError
from jitlto.record.fragment import Sha256
from jitlto.stores.address import MARK, StoreAddress, parse_artifact
from jitlto.stores.backend import REFRESH_AFTER, Backend, open_backend
from jitlto.stores.entry import PAGE_HINT, is_page, object_name
from jitlto.stores.manifest import with_packs

KIND = "artifacts"
_TIMEOUT, _REPLY = 600.0, 10.0  # seconds for a transfer, and for each part of it
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Pushed:
    """A file that a store holds: its address, its bytes, and whether it was there before."""

    address: str
    path: Path
    size: int
    was_there: bool


def open_store(address: StoreAddress) -> Backend:
    """Open a store to transfer files and look after it.

    Raises:
        StoreError: If it cannot be opened.
    """
    return open_backend(address, timeout=_TIMEOUT, read_timeout=_REPLY, retries=_RETRIES)


def push(backend: Backend, path: Path) -> Pushed:
    """Store a file, unless the store holds it already.

    Raises:
        StoreError: If the store does not take it.
        OSError: If it cannot be read.
    """
    return _push(backend, path, files.read(path))


def push_with_packs(backend: Backend, database: Path) -> list[Pushed]:
    """Store a database with the packs beside it; what comes first names them all.

    Raises:
        StoreError, OSError: As :func:`push`.
    """
    pushed = [push(backend, path) for path in with_packs([database])]
    if len(pushed) == 1:
        return pushed
    index = encode_index({each.path.name: each.address.rpartition(MARK)[2] for each in pushed})
    return [_push(backend, database, index), *pushed]


def _push(backend: Backend, path: Path, data: bytes) -> Pushed:
    digest = hashlib.sha256(data).hexdigest()
    name = object_name(KIND, digest)
    found = backend.read(name, 1)
    # One of another size was left by a store that loses bytes, or put there by hand.
    was_there = found is not None and found.size == len(data)
    if found is None or not was_there or time.time() - found.modified > REFRESH_AFTER:
        backend.put(name, data)
    return Pushed(f"{backend.address.url}{MARK}{digest}", path, len(data), was_there)


class _Index(msgspec.Struct, forbid_unknown_fields=True):
    jitlto_files: Literal[1]
    files: dict[Annotated[str, msgspec.Meta(pattern=r"\A[^/\x00-\x1f\x7f]+\Z")], Sha256]


def encode_index(digests: dict[str, str]) -> bytes:
    """Encode names and SHA-256 of files, of which the first is the database; equal ones make equal bytes."""
    return msgspec.json.encode(_Index(1, digests))


def decode_index(data: bytes) -> dict[str, str] | None:
    """Return the SHA-256 of the files that an index lists, by name; None if it is a different artifact.

    Raises:
        StoreError: If it is an index, and not one as :func:`encode_index` makes them.
    """
    if not data.startswith(b'{"jitlto_files":'):
        return None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        digests = decoder(_Index).decode(data).files
        database, *packs = digests
        stem = database.removesuffix(files.SUFFIX)
        are_packs = all(name.startswith(f"{stem}.") and name.endswith(".pack") for name in packs)
        if encode_index(digests) == data and stem != database and are_packs:
            return digests
    what, hint = "is not an index of a database and its packs", "push the database again with this version"
    raise StoreError(what, code="store-damaged", where=hashlib.sha256(data).hexdigest(), hint=hint)


def pull(address: str, output: Path) -> list[Path]:
    """Write an artifact to a file; or a database, and its packs beside it, named after it.

    Args:
        address: As :func:`push` returns it.
        output: The file.

    Returns:
        The files, the artifact or the database first. If anything cannot be fetched, none is changed.

    Raises:
        StoreError: If the address is invalid, or the store lacks an artifact or has another content for it.
        OSError: If a file cannot be written.
    """
    store, digest = parse_artifact(address)
    backend = open_store(store)
    contents = {output: _fetch(backend, digest)}
    if digests := decode_index(contents[output]):
        (database, digest), *packs = digests.items()
        contents = {output: _fetch(backend, digest)}
        for name, digest in packs:
            path = output.with_name(output.stem + name.removeprefix(database.removesuffix(files.SUFFIX)))
            contents[path] = _fetch(backend, digest)
    for path, content in reversed(contents.items()):  # the database last
        files.write(path, content)
    return list(contents)


def _fetch(backend: Backend, digest: str) -> bytes:
    """Return the content of an artifact."""
    address = f"{backend.address.url}{MARK}{digest}"
    data = backend.get(object_name(KIND, digest))
    if data is None:
        hint = "check the address, or push the file again: `jitlto store prune` may have removed it"
        raise StoreError("the store does not hold it", code="store-no-such-artifact", where=address, hint=hint)
    actual = hashlib.sha256(data).hexdigest()
    if actual != digest:
        what, hint = "the store sends other content", "push it again after `jitlto store verify URL --delete`"
        if is_page(data):
            what, hint = "a page came in place of it", PAGE_HINT
        what += f", which is not used: its SHA-256 is {actual}"
        raise StoreError(what, code="store-digest", where=address, hint=hint)
    return data
