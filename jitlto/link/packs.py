"""Packs: read-only files of linked kernels, shipped beside a database, and of the look-ups that lead to them.

A pack is entries of :mod:`jitlto.base.entry`, one after the other, the same bytes as in the user's cache. The first is
the index: a record for each other entry, with its key, offset and size (little-endian), sorted by key. Equal entries
make equal files.
"""

import contextlib
import os
import stat
import struct
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import cast

from jitlto.base import entry, files
from jitlto.base.entry import Head
from jitlto.base.errors import JitltoError
from jitlto.base.files import Identity, identity
from jitlto.base.log import warn_once
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel, LinkKey

SUFFIX = ".pack"
_INDEX = "pack"  # the name of the first entry
_RECORD = struct.Struct("<32sQQ")
_LARGEST = 1 << 30  # bytes of an entry, or of the index
_HEAD_SIZE = len(entry.encode(_INDEX, b""))


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
        with contextlib.ExitStack() as failed:
            failed.callback(self._file.close)
            self._end = os.fstat(self._file.fileno()).st_size
            index = None
            with contextlib.suppress(ValueError):
                size = Head(self._read(0, min(_HEAD_SIZE, self._end))).payload_size
                index = entry.decode(_INDEX, self._read(0, _HEAD_SIZE + size))
            if index is None or len(index) % _RECORD.size:
                raise ValueError("damaged, or not a pack of this version of jitlto; make it again with `jitlto warm`")
            self._index = index
            failed.pop_all()

    def get(self, kind: str, digest: str) -> bytes | None:
        """Return an entry; None if it is missing, or damaged, which is logged once."""
        wanted = bytes.fromhex(digest)
        places = range(0, len(self._index), _RECORD.size)
        place = bisect_left(places, wanted, key=lambda each: self._index[each : each + len(wanted)])
        if place == len(places) or not self._index.startswith(wanted, places[place]):
            return None
        _, offset, size = _RECORD.unpack_from(self._index, places[place])
        try:
            payload = entry.decode(f"{kind}/{digest}", self._read(offset, size))
            why = "does not match its SHA-256"
        except (OSError, ValueError) as error:
            payload, why = None, f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if payload is None:
            what = "%s is damaged: %s/%s %s, and is not used"
            warn_once(__name__, (self.path, digest), what, self.path, kind, digest, why)
        return payload

    def put(self, kind: str, digest: str, payload: bytes) -> None:
        """Do nothing: a pack is written as a whole."""

    def iterate(self) -> Iterator[tuple[str, str, bytes]]:
        """Read all entries.

        Yields:
            kind (str)
            key (str)
            payload (bytes)

        Raises:
            OSError: If one cannot be read.
            ValueError: If one is damaged.
        """
        for key, offset, size in _RECORD.iter_unpack(self._index):
            data = self._read(offset, size)
            name = ""
            with contextlib.suppress(ValueError):
                name = Head(data).name.decode()
            payload, (kind, _, named) = entry.decode(name, data), name.partition("/")
            if payload is None or named != key.hex():
                raise ValueError(f"damaged: {key.hex()} does not match its SHA-256")
            yield kind, named, payload

    def _read(self, offset: int, size: int) -> bytes:
        # Checked first, because reading allocates what is asked for even if the file is shorter.
        if offset + size > self._end or size > _LARGEST:
            raise ValueError("truncated")
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        """Close the file."""
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
    kernels: list[LinkKey] = []
    remedy = "jitlto warm FAMILY --db DB -o PACK"
    try:
        if not path.is_file():
            raise ValueError("not a regular file" if path.exists() else "no such file")
        with contextlib.closing(Pack(path)) as pack:
            for digest, payload in ((digest, data) for kind, digest, data in pack.iterate() if kind == KERNELS):
                if LinkedKernel.decode(digest, payload, 0.0, "pack") is None:
                    raise ValueError(f"damaged: kernel {digest} is another one")
                kernels.append(LinkKey.from_entry(payload))
        stale = [
            key.kernel
            for key in kernels
            if images is not None and not set(cast("list[str]", key.inputs.get("images", []))).issubset(images)
        ]
    except (OSError, ValueError, TypeError) as error:  # the last of what somebody made up
        raise JitltoError(
            f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error),
            code="jitlto-damaged-pack",
            where=str(path),
            hint=f"fetch it again, or make it: {remedy}",
        ) from error
    if stale:
        raise JitltoError(
            f"{len(stale)} of {len(kernels)} kernels match no plan of this database, such as {stale[0]}",
            code="jitlto-stale-pack",
            where=str(path),
            hint=f"the database has been built again since: make the pack again: {remedy}",
        )
    return len(kernels)


def write(path: Path, entries: Mapping[str, Mapping[str, bytes]]) -> None:
    """Write a pack atomically.

    Args:
        path: The file.
        entries: By kind and key.

    Raises:
        OSError: If it cannot be written.
    """
    keyed = sorted((bytes.fromhex(key), kind) for kind, each in entries.items() for key in each)
    encoded = [entry.encode(f"{kind}/{key.hex()}", entries[kind][key.hex()]) for key, kind in keyed]
    offset = _HEAD_SIZE + _RECORD.size * len(keyed)
    index = bytearray()
    for (key, _), data in zip(keyed, encoded, strict=True):
        index += _RECORD.pack(key, offset, len(data))
        offset += len(data)
    with files.replacing(path) as temporary, temporary.open("xb") as file:
        file.writelines([entry.encode(_INDEX, bytes(index)), *encoded])


def beside(database: Path) -> list[Pack]:
    """Open the packs of a database, ``NAME.pack`` and ``NAME.*.pack`` beside ``NAME.fragdb``, each until it changes.

    A warning about a file that is no pack is logged once.
    """
    found = []
    for path in files.beside(database, SUFFIX):
        try:
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                state = identity(status)
                known = _opened.get(path)
                if known is None or known[0] != state:
                    known = _opened[path] = (state, Pack(path))
                found.append(known[1])
        except (OSError, ValueError) as error:
            warn_once(__name__, path, "%s is not used: %s", path, getattr(error, "strerror", None) or error)
    return found


_opened: dict[Path, tuple[Identity, Pack]] = {}
