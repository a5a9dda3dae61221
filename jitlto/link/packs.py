"""Packs: read-only files of linked kernels, shipped beside a database, and of the look-ups that lead to them.

Magic, the SHA-256 of the index, its number of records, the records, the entries one after the other; numbers are little
endian. A record gives kind, key, offset, size and SHA-256 of an entry; records and entries are sorted. Kinds, keys and
entries are those of every :class:`~jitlto.link.sources.KernelSource`. Equal entries make equal files.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import JitltoError
from jitlto.base.files import Identity, identity
from jitlto.base.log import WarnOnce
from jitlto.link.sources import CONTENTS, KERNELS, REQUESTS
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

_FAMILY = b"jitlto pack "
_MAGIC = _FAMILY + b"3\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}s32sQ")
_RECORD = struct.Struct("<c32sQQ32s")
_LARGEST = 1 << 30  # bytes of an entry, or of the index
_LETTERS = {REQUESTS: b"a", CONTENTS: b"c", KERNELS: b"k"}  # in the order in which they lie
_warn_once = WarnOnce(__name__)


class Pack:
    """An open pack, a source of kernels that takes none.

    Args:
        path: The file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a pack, or its index is damaged.
    """

    layer = "pack"

    def __init__(self, path: Path) -> None:
        self.path = path
        # Kept open, so that index and entries still belong together if the file is replaced.
        self._file = path.open("rb")
        try:
            self._end = os.fstat(self._file.fileno()).st_size
            self._index = self._read_index()
        except BaseException:
            self._file.close()
            raise

    def _read_index(self) -> bytes:
        head = self._file.read(_HEAD.size)
        if not head.startswith(_MAGIC):
            if head.startswith(_FAMILY):
                raise ValueError("made by another version of jitlto; make it again with `jitlto warm`")
            raise ValueError("not a pack of linked kernels")
        if len(head) < _HEAD.size:
            raise ValueError("truncated")
        _, sha, count = _HEAD.unpack(head)
        size = count * _RECORD.size
        if _HEAD.size + size > self._end or size > _LARGEST:
            raise ValueError("truncated")
        index = self._file.read(size)
        if hashlib.sha256(index).digest() != sha:
            raise ValueError("damaged")
        return index

    @property
    def digests(self) -> tuple[str, ...]:
        """The digests of the plans whose kernels it holds, sorted."""
        return tuple(key.hex() for letter, key, *_ in _RECORD.iter_unpack(self._index) if letter == _LETTERS[KERNELS])

    def find(self, digest: str, kind: str = KERNELS) -> bytes | None:
        """Return an entry, by default the kernel of a plan; None if it is missing, or damaged, which is logged once."""
        wanted = _LETTERS[kind] + bytes.fromhex(digest)
        places = range(0, len(self._index), _RECORD.size)
        place = bisect_left(places, wanted, key=lambda each: self._index[each : each + len(wanted)])
        if place == len(places) or not self._index.startswith(wanted, places[place]):
            return None
        try:
            return self._read(*_RECORD.unpack_from(self._index, places[place]))
        except OSError as error:
            _warn_once(self.path, "%s cannot be read: %s", self.path, error.strerror or error)
        except ValueError as error:
            _warn_once((self.path, digest), "%s is %s: the entry %s in it is not used", self.path, error, digest)
        return None

    def put(self, digest: str, payload: bytes, kind: str = KERNELS) -> None:
        """Do nothing: a pack is written as a whole."""

    def iterate(self) -> Iterator[tuple[bytes, str, bytes]]:
        """Read all entries.

        Yields:
            letter (bytes): Of its kind.
            key (str)
            payload (bytes)

        Raises:
            OSError: If one cannot be read.
            ValueError: If one is damaged.
        """
        for record in _RECORD.iter_unpack(self._index):
            yield record[0], record[1].hex(), self._read(*record)

    def _read(self, _letter: bytes, key: bytes, offset: int, size: int, sha: bytes) -> bytes:
        # Checked here, because reading allocates the listed size even if the file is shorter.
        fits = size <= _LARGEST and offset + size <= self._end
        payload = os.pread(self._file.fileno(), size, offset) if fits else b""
        if len(payload) != size or hashlib.sha256(payload).digest() != sha:
            raise ValueError(f"damaged: {key.hex()} does not match its SHA-256")
        return payload

    def close(self) -> None:
        self._file.close()


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
    count = 0
    remedy = "jitlto warm FAMILY --db DB -o PACK"
    try:
        if not path.is_file():
            raise ValueError("not a regular file" if path.exists() else "no such file")
        pack = Pack(path)
        try:
            for letter, digest, payload in pack.iterate():
                if letter != _LETTERS[KERNELS]:
                    continue
                count += 1
                if LinkedKernel.decode(digest, payload, 0.0, "pack") is None:
                    raise ValueError(f"damaged: kernel {digest} is another one")
                key = LinkKey.from_entry(payload)
                if images is not None and not key.images.issubset(images):
                    stale.append(key.kernel)
        finally:
            pack.close()
    except (OSError, ValueError) as error:
        what = f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error)
        hint = f"fetch it again, or make it: {remedy}"
        raise JitltoError(what, code="jitlto-damaged-pack", where=str(path), hint=hint) from error
    if stale:
        raise JitltoError(
            f"{len(stale)} of {count} kernels match no plan of this database, such as {min(stale)}",
            code="jitlto-stale-pack",
            where=str(path),
            hint=f"the database has been built again since: make the pack again: {remedy}",
        )
    return count


def write(path: Path, entries: Mapping[str, Mapping[str, bytes]]) -> None:
    """Write a pack atomically.

    Args:
        path: The file.
        entries: By kind and key.

    Raises:
        OSError: If it cannot be written.
    """
    listed = [(_LETTERS[kind], bytes.fromhex(key), each[key]) for kind, each in entries.items() for key in each]
    listed.sort(key=lambda entry: entry[:2])
    offset = _HEAD.size + _RECORD.size * len(listed)
    index = bytearray()
    for letter, key, payload in listed:
        index += _RECORD.pack(letter, key, offset, len(payload), hashlib.sha256(payload).digest())
        offset += len(payload)
    with files.replacing(path) as temporary, temporary.open("xb") as file:
        file.write(_HEAD.pack(_MAGIC, hashlib.sha256(index).digest(), len(listed)) + index)
        file.writelines(payload for *_, payload in listed)


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
