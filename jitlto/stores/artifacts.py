"""Whole files in a store, by content: databases with their packs, recorded plans, packs by themselves.

An artifact is stored as it is, under the SHA-256 of its bytes. Its address ends with this SHA-256, which is what is
trusted: a file from anywhere that has it is the file that was pushed, so artifacts need no signature. A database that
has packs beside it is pushed with them, and its address is that of an index: a small artifact that lists the names and
the SHA-256 of all of them.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import StoreError
from jitlto.stores import manifest
from jitlto.stores.address import ArtifactAddress, StoreAddress
from jitlto.stores.backend import PIECE, REFRESH_AFTER, Backend, open_backend
from jitlto.stores.entry import PAGE_HINT, is_page, object_name

KIND = "artifacts"
#: Bytes of the largest index: a thousand packs.
LARGEST_INDEX = 1 << 18

#: Called with the bytes of a file that were transferred and with all of them: first with 0, then after each piece.
OnPiece = Callable[[int, int], object]
_TIMEOUT = 30.0  # seconds for a transfer, and more for what is large
_REPLY = 10.0  # seconds for other requests, of which one is the first
_RETRIES = 3
_SLOWEST = 250_000  # bytes a second, below which a transfer fails
_INDEX = b'{"jitlto_files": 1,'
_DIGEST = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pushed:
    """A file that a store holds: its address, its bytes, and whether it was there before."""

    address: ArtifactAddress
    path: Path
    size: int
    was_there: bool


def open_store(address: StoreAddress, size: int = 0) -> Backend:
    """Open a store to transfer objects of up to ``size`` bytes.

    Raises:
        StoreError: If it cannot be opened.
    """
    return open_backend(address, timeout=_TIMEOUT + size / _SLOWEST if size else _REPLY, retries=_RETRIES)


def push(backend: Backend, path: Path, on_piece: OnPiece = lambda _done, _size: None) -> Pushed:
    """Store a file, unless the store holds it already.

    Raises:
        StoreError: If the store does not take it, or the file changes meanwhile.
        ManifestError: If it cannot be read.
    """
    digest = manifest.sha256(path)

    def pieces() -> Iterator[bytes]:
        sha = hashlib.sha256()
        with files.open_regular(path) as (file, status):
            on_piece(0, status.st_size)
            while piece := file.read(PIECE):
                sha.update(piece)
                yield piece
                on_piece(file.tell(), status.st_size)
        if sha.hexdigest() != digest:  # an upload that ends with an error leaves nothing in the store
            what, hint = "changed while it was pushed", "push it again when nothing writes to it"
            raise StoreError(what, code="store-file-changed", where=str(path), hint=hint)

    return _push(backend, digest, path, path.stat().st_size, pieces)


def push_with_packs(backend: Backend, database: Path, on_piece: OnPiece = lambda _done, _size: None) -> list[Pushed]:
    """Store a database with the packs beside it; what comes first names them all.

    Raises:
        StoreError, ManifestError: As :func:`push`.
    """
    pushed = [push(backend, path, on_piece) for path in manifest.with_packs([database])]
    if len(pushed) == 1:
        return pushed
    data = encode_index({each.path.name: each.address.digest for each in pushed})
    return [_push(backend, hashlib.sha256(data).hexdigest(), database, len(data), lambda: iter([data])), *pushed]


def _push(backend: Backend, digest: str, path: Path, size: int, pieces: Callable[[], Iterator[bytes]]) -> Pushed:
    name = object_name(KIND, digest)
    found = backend.head(name)
    # One of another size was left by a store that loses bytes, or put there by hand.
    was_there = found is not None and found.size == size
    if found is None or not was_there or time.time() - found.modified > REFRESH_AFTER:
        open_store(backend.address, size).write(name, pieces())
    return Pushed(ArtifactAddress(backend.address, digest), path, size, was_there)


def encode_index(digests: dict[str, str]) -> bytes:
    """Encode names and SHA-256 of files, of which the first is the database; equal ones make equal bytes."""
    listed = [{"name": name, "sha256": digest} for name, digest in digests.items()]
    return _INDEX + b' "files": ' + json.dumps(listed).encode() + b"}\n"


def decode_index(data: bytes) -> dict[str, str] | None:
    """Return the SHA-256 of the files that an index lists, by name; None if it is a different artifact.

    Raises:
        StoreError: If it is an index, and not one as :func:`encode_index` makes them.
    """
    if not data.startswith(_INDEX):
        return None
    try:
        digests = {str(each["name"]): str(each["sha256"]) for each in json.loads(data)["files"]}
        database, *packs = digests
        stem = database.removesuffix(files.SUFFIX)
        is_good = encode_index(digests) == data and stem != database
        is_good &= not any("/" in name or not name.isprintable() for name in digests)
        is_good &= all(name.startswith(f"{stem}.") and name.endswith(".pack") for name in packs)
        if is_good and all(map(_DIGEST.fullmatch, digests.values())):
            return digests
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    what, hint = "is not an index of a database and its packs", "push the database again with this version"
    raise StoreError(what, code="store-damaged", where=hashlib.sha256(data).hexdigest(), hint=hint)


def pull(
    backend: Backend, address: ArtifactAddress, output: Path, on_piece: OnPiece = lambda _done, _size: None
) -> list[Path]:
    """Write an artifact to a file; or a database, and its packs beside it, named after it.

    Returns:
        The files, the artifact or the database first. If anything fails, that one is as it was.

    Raises:
        StoreError: If the store lacks an artifact, or its content is a different one.
        OSError: If a file cannot be written.
    """
    with files.replacing(output) as temporary:
        written = [output]
        digests = download(backend, address, temporary, on_piece)
        if digests is not None:
            name, *packs = digests
            for pack in packs:
                written.append(output.with_name(output.stem + pack[len(name) - len(files.SUFFIX) :]))
                with files.replacing(written[-1]) as part:
                    download(backend, ArtifactAddress(address.store, digests[pack]), part, on_piece)
            temporary.unlink()
            download(backend, ArtifactAddress(address.store, digests[name]), temporary, on_piece)
    return written


def download(backend: Backend, address: ArtifactAddress, path: Path, on_piece: OnPiece) -> dict[str, str] | None:
    """Write an artifact to a new file, a piece at a time.

    Returns:
        The SHA-256 of the files that it lists, by name, if it is an index; else None.

    Raises:
        StoreError: If the store lacks it, or its content is a different one.
        OSError: If the file cannot be written.
    """
    name = object_name(KIND, address.digest)
    found = backend.head(name)
    # Only a whole reply says that the bucket is missing, and not just the object.
    found = (open_store(address.store, found.size) if found is not None else backend).open(name)
    if found is None:
        hint = "check the address, or push the file again: `jitlto store prune` may have removed it"
        raise StoreError("the store does not hold it", code="store-no-such-artifact", where=str(address), hint=hint)
    sha, start = hashlib.sha256(), b""
    on_piece(0, found.size)
    with path.open("xb") as file:
        for piece in found.pieces:
            start = start if len(start) > LARGEST_INDEX else start + piece
            sha.update(piece)
            file.write(piece)
            on_piece(file.tell(), found.size)
    if sha.hexdigest() != address.digest:
        what, hint = "the store sends other content", "push it again after `jitlto store verify URL --delete`"
        if is_page(start):
            what, hint = "a page came in place of it", PAGE_HINT
        what += f", which is not used: its SHA-256 is {sha.hexdigest()}"
        raise StoreError(what, code="store-digest", where=str(address), hint=hint)
    return decode_index(start) if len(start) <= LARGEST_INDEX else None
