"""Whole files in a store, by content: databases with their packs, recorded plans, packs by themselves.

An artifact is stored as it is, under the SHA-256 of its bytes. Its address ends with this SHA-256, which is what is
trusted: a file from anywhere that has it is the file that was pushed, so artifacts need no signature. A database that
has packs beside it is pushed with them, and its address is that of an index: a small artifact that lists the names and
the SHA-256 of all of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import StoreError
from jitlto.stores import manifest
from jitlto.stores.address import ArtifactAddress, StoreAddress
from jitlto.stores.backend import REFRESH_AFTER, Backend, open_backend
from jitlto.stores.entry import PAGE_HINT, is_page, object_name

KIND = "artifacts"
#: Bytes of the largest index: a thousand packs.
LARGEST_INDEX = 1 << 18
_PIECE = 1 << 20

#: Called with the bytes of a file that were transferred and with all of them: first with 0, then after each piece.
OnPiece = Callable[[int, int], object]
_TIMEOUT = 30.0  # seconds for a transfer, and more for what is large
_REPLY = 10.0  # seconds for other requests, of which one is the first
_RETRIES = 3
_SLOWEST = 250_000  # bytes a second, below which a transfer fails
_INDEX = b'{"jitlto_files": 1,'


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


def push(
    backend: Backend,
    path: Path,
    clock: Callable[[], float] = time.time,
    on_piece: OnPiece = lambda _done, _size: None,
) -> Pushed:
    """Store a file, unless the store holds it already.

    Raises:
        StoreError: If the store does not take it, or the file changes meanwhile.
        ManifestError: If it cannot be read.
    """
    address = ArtifactAddress(backend.address, manifest.sha256(path))
    return _push(backend, address, path, path.stat().st_size, lambda: _pieces(path, on_piece), clock)


def push_with_packs(
    backend: Backend,
    database: Path,
    clock: Callable[[], float] = time.time,
    on_piece: OnPiece = lambda _done, _size: None,
) -> list[Pushed]:
    """Store a database with the packs beside it; what comes first names them all.

    Raises:
        StoreError, ManifestError: As :func:`push`.
    """
    pushed = [push(backend, path, clock, on_piece) for path in manifest.with_packs([database])]
    if len(pushed) == 1:
        return pushed
    data = encode_index({each.path.name: each.address.digest for each in pushed})
    address = ArtifactAddress(backend.address, hashlib.sha256(data).hexdigest())
    return [_push(backend, address, database, len(data), lambda: iter([data]), clock), *pushed]


def index_of(database: Path) -> tuple[str, dict[str, str]]:
    """Return the digest of the address that a database has in every store, and the digests of its files by name.

    Raises:
        ManifestError: If a file cannot be read.
    """
    digests = {path.name: manifest.sha256(path) for path in manifest.with_packs([database])}
    if len(digests) == 1:
        return digests[database.name], digests
    return hashlib.sha256(encode_index(digests)).hexdigest(), digests


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
        stem, suffix = os.path.splitext(next(iter(digests)))  # noqa: PTH122 - a name
        packs = list(digests)[1:]
        if (
            encode_index(digests) == data
            and suffix == files.SUFFIX
            and not any("/" in name or "\0" in name or not name.isprintable() for name in digests)
            and all(name.startswith(f"{stem}.") and name.endswith(".pack") for name in packs)
            and all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())
        ):
            return digests
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError):
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
        digests = download(backend, address, temporary, on_piece=on_piece)
        if digests is not None:
            name, *packs = digests
            for pack in packs:
                written.append(output.with_name(output.stem + pack[len(name) - len(files.SUFFIX) :]))
                with files.replacing(written[-1]) as part:
                    download(backend, ArtifactAddress(address.store, digests[pack]), part, on_piece=on_piece)
            temporary.unlink()
            download(backend, ArtifactAddress(address.store, digests[name]), temporary, on_piece=on_piece)
    return written


def download(
    backend: Backend,
    address: ArtifactAddress,
    path: Path,
    mode: int = 0o666,
    on_piece: OnPiece = lambda _done, _size: None,
) -> dict[str, str] | None:
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
    pieces = (open_store(address.store, found.size) if found is not None else backend).read(name)
    if found is None or pieces is None:
        hint = "check the address, or push the file again: `jitlto store prune` may have removed it"
        raise StoreError("the store does not hold it", code="store-no-such-artifact", where=str(address), hint=hint)
    sha = hashlib.sha256()
    on_piece(0, found.size)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:  # noqa: PTH123 - a descriptor
        for piece in pieces:
            sha.update(piece)
            file.write(piece)
            on_piece(file.tell(), found.size)
    if sha.hexdigest() != address.digest:
        what = f"the store sends other content, which is not used: its SHA-256 is {sha.hexdigest()}"
        hint = "remove it with `jitlto store verify URL --delete`, and push the file again"
        with path.open("rb") as written:
            if is_page(written.read(_PIECE)):
                what, hint = (
                    f"a page came in place of it, which is not used: its SHA-256 is {sha.hexdigest()}",
                    PAGE_HINT,
                )
        raise StoreError(what, code="store-digest", where=str(address), hint=hint)
    with path.open("rb") as written:
        data = written.read(LARGEST_INDEX + 1)
    return decode_index(data) if len(data) <= LARGEST_INDEX else None


def _push(
    backend: Backend,
    address: ArtifactAddress,
    path: Path,
    size: int,
    pieces: Callable[[], Iterator[bytes]],
    clock: Callable[[], float],
) -> Pushed:
    name = object_name(KIND, address.digest)
    found = backend.head(name)
    # One of another size was left by a store that loses bytes, or put there by hand.
    was_there = found is not None and found.size == size
    if found is None or not was_there or clock() - found.modified > REFRESH_AFTER:
        open_store(backend.address, size).write(name, _checked(pieces(), address.digest, path))
    return Pushed(address, path, size, was_there)


def _checked(pieces: Iterator[bytes], digest: str, path: Path) -> Iterator[bytes]:
    """Yield the pieces of a file, and raise an error instead of the end if they are not what the digest says.

    An upload that ends with an error leaves nothing in the store.
    """
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
        yield piece
    if sha.hexdigest() != digest:
        what, hint = "changed while it was pushed", "push it again when nothing writes to it"
        raise StoreError(what, code="store-file-changed", where=str(path), hint=hint)


def _pieces(path: Path, on_piece: OnPiece) -> Iterator[bytes]:
    with files.open_regular(path) as (file, status):
        on_piece(0, status.st_size)
        while piece := file.read(_PIECE):
            yield piece
            on_piece(file.tell(), status.st_size)
