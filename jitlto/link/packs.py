"""Packs: read-only files of linked kernels, shipped beside a database, and of the look-ups that lead to them.

Magic, the SHA-256 of the directory, the directory, the records, the entries one after the other; numbers are little
endian. A record gives kind (``k`` for a kernel, ``l`` for a look-up), key, offset, size and SHA-256 of an entry. The
key of a kernel is the digest of its plan; :mod:`~jitlto.link.packed_requests` makes look-ups and their keys.
Records and entries are sorted, look-ups first. The directory has for each first byte of a key the number of records up
to there, and the SHA-256 of those with this byte: a look-up reads and checks no more than them and its entry, however
large the pack is. Equal entries make equal files.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from jitlto.base import files
from jitlto.base.cache_dir import WarnOnce
from jitlto.base.errors import JitltoError
from jitlto.base.files import Identity, identity
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

_FAMILY = b"jitlto pack "
_MAGIC = _FAMILY + b"2\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}s32s")
_BUCKET = struct.Struct("<Q32s")
_BUCKETS = 256
_RECORD = struct.Struct("<c32sQQ32s")
_START = _HEAD.size + _BUCKETS * _BUCKET.size  # of the records
_LARGEST = 1 << 30  # bytes of an entry, or of the records of keys with one first byte
KERNEL, LOOKUP = b"k", b"l"
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
            head = file.read(_START)
            if not head.startswith(_MAGIC):
                if head.startswith(_FAMILY):
                    raise ValueError("made by another version of jitlto; make it again with `jitlto warm`")
                raise ValueError("not a pack of linked kernels")
            if len(head) < _START:
                raise ValueError("truncated")
            self._directory = head[_HEAD.size :]
            if hashlib.sha256(self._directory).digest() != _HEAD.unpack_from(head)[1]:
                raise ValueError("damaged")
            self._end = os.fstat(file.fileno()).st_size
            if _START + _RECORD.size * self._bucket(_BUCKETS - 1)[1] > self._end:
                raise ValueError("truncated")

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
        return self.keys(KERNEL)

    def keys(self, kind: bytes) -> tuple[str, ...]:
        """The keys of all entries of a kind, sorted; without those in damaged parts of the index, which is logged."""
        return tuple(key.hex() for first in range(_BUCKETS) for key in self._keys(kind, first))

    def _keys(self, kind: bytes, first: int) -> list[bytes]:
        try:
            return [key for each, key, *_ in self._records(first) if each == kind]
        except (OSError, ValueError) as error:
            _warn_once((self.path, first), "%s: a part of its index is not used: %s", self.path, error)
            return []

    def get(self, digest: str, kind: bytes = KERNEL) -> bytes | None:
        """Return an entry, by default the kernel of a plan; None if it is missing, or damaged, which is logged once."""
        try:
            return self.read(digest, kind)
        except OSError as error:
            _warn_once(self.path, "%s cannot be read: %s", self.path, error.strerror or error)
        except ValueError as error:
            _warn_once((self.path, digest), "%s is %s: the entry %s in it is not used", self.path, error, digest)
        return None

    def read(self, digest: str, kind: bytes = KERNEL) -> bytes | None:
        """Read an entry; None if there is none.

        Raises:
            OSError: If it cannot be read.
            ValueError: If it is damaged.
        """
        key = bytes.fromhex(digest)
        for each, other, offset, size, sha in self._records(key[0]):
            if other == key and each == kind:
                # Checked here, because reading allocates the listed size even if the file is shorter.
                payload = self._pread(size, offset) if offset + size <= self._end else b""
                if len(payload) != size or hashlib.sha256(payload).digest() != sha:
                    raise ValueError("damaged")
                return payload
        return None

    def _pread(self, size: int, offset: int) -> bytes:
        if size > _LARGEST:  # a few bytes of a file can say that terabytes follow, and nothing be there
            raise ValueError("damaged")
        return os.pread(self._file.fileno(), size, offset)

    def _bucket(self, first: int) -> tuple[int, int, bytes]:
        """Return the numbers of the first record of a bucket and of that after its last, and its SHA-256."""
        end, sha = _BUCKET.unpack_from(self._directory, first * _BUCKET.size)
        begin = _BUCKET.unpack_from(self._directory, (first - 1) * _BUCKET.size)[0] if first else 0
        return begin, end, sha

    def _records(self, first: int) -> Iterator[tuple[bytes, bytes, int, int, bytes]]:
        """Yield the records of the keys that begin with a byte."""
        begin, end, sha = self._bucket(first)
        size = _RECORD.size * (end - begin)
        if not size:
            return
        if size < 0 or _START + _RECORD.size * end > self._end:
            raise ValueError("damaged")
        data = self._pread(size, _START + _RECORD.size * begin)
        if hashlib.sha256(data).digest() != sha:
            raise ValueError("damaged")
        yield from _RECORD.iter_unpack(data)


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
    digests: tuple[str, ...] = ()
    try:
        if not path.is_file():
            raise ValueError("not a regular file" if path.exists() else "no such file")
        pack = Pack(path)
        with pack._file:
            for first in range(_BUCKETS):
                for _ in pack._records(first):
                    pass
            digests = pack.digests
            for digest in digests:
                payload = _checked(pack, digest, KERNEL)
                if payload is None or LinkedKernel.decode(digest, payload, 0.0, "pack") is None:
                    raise ValueError(f"damaged: kernel {digest} does not match its SHA-256")
                if images is not None and not _inputs(payload).issubset(images):
                    stale.append(LinkKey.from_entry(payload).kernel)
            if any(_checked(pack, key, LOOKUP) is None for key in pack.keys(LOOKUP)):
                raise ValueError("damaged: a look-up does not match its SHA-256")
        if not stale:
            return len(digests)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
    except ValueError as error:
        what = str(error)
    if stale:
        raise JitltoError(
            f"{len(stale)} of {len(digests)} kernels match no plan of this database, such as {min(stale)}",
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


def _checked(pack: Pack, key: str, kind: bytes) -> bytes | None:
    """Return an entry; None if it is damaged."""
    try:
        return pack.read(key, kind)
    except ValueError:
        return None


def write(path: Path, kernels: Mapping[str, bytes], lookups: Mapping[str, bytes] = MappingProxyType({})) -> None:
    """Write a pack atomically.

    Args:
        path: The file.
        kernels: Entries of kernels, by the digest of their plan.
        lookups: Entries that lead to them, by key.

    Raises:
        OSError: If it cannot be written.
    """
    entries = [(bytes.fromhex(key), KERNEL, payload) for key, payload in kernels.items()]
    entries += [(bytes.fromhex(key), LOOKUP, payload) for key, payload in lookups.items()]
    entries.sort(key=lambda entry: (entry[1] == KERNEL, entry[0]))
    offset = _START + _RECORD.size * len(entries)
    buckets: list[list[bytes]] = [[] for _ in range(_BUCKETS)]
    for key, kind, payload in entries:
        buckets[key[0]].append(_RECORD.pack(kind, key, offset, len(payload), hashlib.sha256(payload).digest()))
        offset += len(payload)
    records = list(map(b"".join, buckets))
    ends = accumulate(map(len, buckets))
    directory = b"".join(
        _BUCKET.pack(end, hashlib.sha256(data).digest()) for end, data in zip(ends, records, strict=True)
    )
    with files.replacing(path) as temporary, temporary.open("xb") as file:
        file.write(_HEAD.pack(_MAGIC, hashlib.sha256(directory).digest()) + directory)
        file.writelines(records)
        file.writelines(payload for *_, payload in entries)


def size_of(kernels: Mapping[str, bytes], lookups: Mapping[str, bytes]) -> int:
    """Return the bytes of the file that :func:`write` makes."""
    entries = [*kernels.values(), *lookups.values()]
    return _START + _RECORD.size * len(entries) + sum(map(len, entries))


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
