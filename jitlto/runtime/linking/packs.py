"""Packs: read-only files of linked kernels, shipped beside a database.

Magic, the SHA-256 of the index, the length of the index (8 bytes, little endian), the index as JSON, the entries one
after the other. The index gives offset, size and SHA-256 of each entry by the digest of its plan. Equal entries make
equal files.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from jitlto.errors import JitltoError
from jitlto.runtime.linking.cache_entry import LinkedKernel, LinkKey
from jitlto.storage import files
from jitlto.storage.cache_dir import WarnOnce
from jitlto.storage.files import Identity, identity

_MAGIC = b"jitlto pack 1\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}s32sQ")
_warn_once = WarnOnce(__name__)


class Pack:
    """An open pack.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a pack, or its index is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Kept open, so that index and entries still belong together if the file is replaced.
        self._file = path.open("rb")
        with self._closed_if_wrong() as file:
            head = file.read(_HEAD.size)
            if len(head) < _HEAD.size or not head.startswith(_MAGIC):
                raise ValueError("not a pack of linked kernels")
            _, sha, length = _HEAD.unpack(head)
            self._start = _HEAD.size + length
            size = os.fstat(file.fileno()).st_size - self._start
            if size < 0:
                raise ValueError("truncated")
            index = file.read(length)
            if hashlib.sha256(index).digest() != sha:
                raise ValueError("damaged")
            self._index = _entries(index, size)

    @contextmanager
    def _closed_if_wrong(self) -> Iterator[BinaryIO]:
        try:
            yield self._file
        except BaseException:
            self._file.close()
            raise

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the plans whose kernels it holds, sorted."""
        return tuple(sorted(self._index))

    def get(self, digest: str) -> bytes | None:
        """Return the entry of a plan; None if it is missing, or damaged, which is logged once."""
        if digest not in self._index:
            return None
        try:
            payload = self.read(digest)
        except OSError as error:
            _warn_once(self.path, "%s cannot be read: %s", self.path, error.strerror or error)
            return None
        if payload is None:
            _warn_once((self.path, digest), "%s is damaged: the kernel %s in it is not used", self.path, digest)
        return payload

    def read(self, digest: str) -> bytes | None:
        """Read an entry that is in the index; None if it is damaged.

        Raises:
            OSError: If it cannot be read.
        """
        offset, size, sha = self._index[digest]
        payload = os.pread(self._file.fileno(), size, self._start + offset)
        return payload if hashlib.sha256(payload).hexdigest() == sha else None


def verify(path: Path, images: Collection[str] | None = None) -> int:
    """Read and check everything in a pack.

    Args:
        path: The pack.
        images: The SHA-256 of each image in the database beside it: kernels of other images are never found.

    Returns:
        The number of kernels in it.

    Raises:
        JitltoError: At the first check that fails, or if kernels of it match no plan of the database.
    """
    stale: list[str] = []
    try:
        if not path.is_file():
            raise ValueError("not a regular file" if path.exists() else "no such file")
        pack = Pack(path)
        with pack._file:
            for digest in pack.digests:
                payload = pack.read(digest)
                if payload is None or LinkedKernel.decode(digest, payload, 0.0, "pack") is None:
                    raise ValueError(f"damaged: kernel {digest} does not match its SHA-256")
                if images is not None and not _inputs(payload).issubset(images):
                    stale.append(LinkKey.from_entry(payload).kernel)
        if not stale:
            return len(pack.digests)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
    except ValueError as error:
        what = str(error)
    if stale:
        raise JitltoError(
            f"{len(stale)} of {len(pack.digests)} kernels match no plan of this database, such as {min(stale)}",
            code="jitlto-stale-pack",
            where=str(path),
            hint="the database has been built again since: make the pack again: jitlto warm FAMILY --db DB -o PACK",
        )
    raise JitltoError(
        what,
        code="jitlto-damaged-pack",
        where=str(path),
        hint="fetch it again, or make it: jitlto warm FAMILY --db DB -o PACK",
    )


def _inputs(payload: bytes) -> set[str]:
    """Return the SHA-256 of each image that an entry was linked from."""
    images = LinkKey.from_entry(payload).inputs.get("images")
    return set(images) if isinstance(images, list) else set()


def _entries(index: bytes, length: int) -> dict[str, tuple[int, int, str]]:
    """Decode the index: entries by digest. ``length`` is the number of bytes after the index."""
    try:
        entries = {digest: (int(at), int(size), str(sha)) for digest, (at, size, sha) in json.loads(index).items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("its index has a format that this jitlto does not support") from error
    # Checked here, because reading an entry allocates its listed size even if the file is shorter.
    if any(at < 0 or size < 0 or at + size > length for at, size, _ in entries.values()):
        raise ValueError("its index lists entries beyond its end")
    return entries


def write(path: Path, entries: Mapping[str, bytes]) -> None:
    """Write a pack atomically.

    Raises:
        OSError: If it cannot be written.
    """
    index: dict[str, tuple[int, int, str]] = {}
    offset = 0
    for digest in sorted(entries):
        payload = entries[digest]
        index[digest] = (offset, len(payload), hashlib.sha256(payload).hexdigest())
        offset += len(payload)
    listed = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
    with files.replacing(path) as temporary, temporary.open("xb") as file:
        file.write(_HEAD.pack(_MAGIC, hashlib.sha256(listed).digest(), len(listed)))
        file.write(listed)
        file.writelines(entries[digest] for digest in sorted(entries))


def beside(database: Path) -> tuple[Pack, ...]:
    """Open the current packs of a database: ``NAME.pack`` and ``NAME.*.pack`` beside ``NAME.fragdb``.

    Each is opened once until it changes; a warning about a file that is no pack is logged once.
    """
    found = []
    for path in files.beside(database, ".pack"):
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                continue
            state = identity(status)
            known = _opened.get(path)
            if known is None or known[0] != state:
                known = _opened[path] = (state, Pack(path))
            found.append(known[1])
        except OSError as error:
            _warn_once(path, "%s is not used: %s", path, error.strerror or error)
        except ValueError as error:
            _warn_once(path, "%s is not used: %s", path, error)
    return tuple(found)


_opened: dict[Path, tuple[Identity, Pack]] = {}
