"""Entries of shared stores: a payload with its name, its SHA-256 and a signature over both.

The format is described in ``docs/shared-stores.md``. What was signed for one name is rejected under every other, so
that an old entry cannot be passed off as a different one.
"""

from __future__ import annotations

import hashlib
import struct

from jitlto.base.errors import RejectedEntryError
from jitlto.base.frozen import Frozen
from jitlto.stores.keys import SigningKey, TrustedKeys

#: The reason why what no writer of this version makes is rejected, such as an error page.
NOT_AN_ENTRY = "it is not an entry of this version"
#: The same for a page, which nobody has stored.
A_PAGE = "it is not an entry but a page, as a proxy or the sign-in of a network sends it"
#: What to do about pages.
PAGE_HINT = "sign in to the network, or correct the settings of its proxy (HTTPS_PROXY, NO_PROXY)"
_MAGIC = b"jitlto entry 1\n"
_UNSIGNED, _ED25519 = 0, 1
_FIXED = struct.Struct(f"<{len(_MAGIC)}sBHQ32s")  # magic, algorithm, bytes of the name, bytes of the payload, SHA-256
_KEY_ID = 32  # bytes
_SIGNATURE = 64  # bytes
#: No header is longer than this, in bytes.
MOST_HEADER_BYTES = 4096
_MOST_NAME_BYTES = MOST_HEADER_BYTES - _FIXED.size - _KEY_ID - _SIGNATURE


class Header(Frozen):
    """What stands before the payload of an entry.

    Args:
        size: Bytes of the header itself.
        payload_size: Bytes of the payload.
        digest: SHA-256 of the payload.
    """

    size: int
    payload_size: int
    digest: bytes


def object_name(kind: str, key: str) -> str:
    """Return the name of the object that holds an entry."""
    return f"v1/{kind}/{key[:2]}/{key[2:]}"


def encode(kind: str, key: str, payload: bytes, signing_key: SigningKey | None) -> bytes:
    """Return the object for a payload, signed if there is a key."""
    name = _name(kind, key)
    if len(name) > _MOST_NAME_BYTES:
        raise ValueError(f"the key of an entry has more than {_MOST_NAME_BYTES} bytes")
    algorithm = _UNSIGNED if signing_key is None else _ED25519
    header = _FIXED.pack(_MAGIC, algorithm, len(name), len(payload), hashlib.sha256(payload).digest()) + name
    if signing_key is not None:
        header += signing_key.id
        header += signing_key.sign(header)
    return header + payload


def decode(kind: str, key: str, data: bytes, trusted: TrustedKeys | None) -> bytes:
    """Return the payload of an entry.

    Args:
        kind: The kind of entry that was requested.
        key: The key that was requested.
        data: The object.
        trusted: The keys of which one has to have signed it; None if its checksum is enough.

    Raises:
        RejectedEntryError: If it is not a good entry of this kind and key, or no trusted key has signed it.
    """
    header = read_header(kind, key, data, len(data), trusted)
    payload = data[header.size :]
    if hashlib.sha256(payload).digest() != header.digest:
        raise RejectedEntryError("its payload is damaged", where=object_name(kind, key))
    return payload


def read_header(kind: str, key: str, start: bytes, size: int, trusted: TrustedKeys | None) -> Header:
    """Check and return the header of an entry.

    Args:
        kind: The kind of entry that was requested.
        key: The key that was requested.
        start: The beginning of the object, at least 4096 bytes if it has so many.
        size: Bytes of the whole object.
        trusted: As for :func:`decode`.

    Raises:
        RejectedEntryError: As :func:`decode` does.
    """

    def rejected(reason: str) -> RejectedEntryError:
        return RejectedEntryError(reason, where=object_name(kind, key))

    if len(start) < _FIXED.size or not start.startswith(_MAGIC):
        raise rejected(A_PAGE if is_page(start) else NOT_AN_ENTRY)
    _, algorithm, name_size, payload_size, digest = _FIXED.unpack_from(start)
    end = _FIXED.size + name_size
    if start[_FIXED.size : end] != _name(kind, key):
        raise rejected("it is the entry of a different name")
    if algorithm not in (_UNSIGNED, _ED25519):
        raise rejected(NOT_AN_ENTRY)
    header_size = end + (_KEY_ID + _SIGNATURE if algorithm == _ED25519 else 0)
    if size != header_size + payload_size or len(start) < header_size:
        raise rejected("it is truncated or extended")
    if trusted is not None:
        if algorithm == _UNSIGNED:
            raise rejected("it is not signed")
        signed = start[: end + _KEY_ID]
        if start[end : end + _KEY_ID] not in trusted:
            raise rejected("it is signed by a key that is not trusted")
        if not trusted.verify(start[end : end + _KEY_ID], start[end + _KEY_ID : header_size], signed):
            raise rejected("its signature is wrong")
    return Header(header_size, payload_size, digest)


def is_page(start: bytes) -> bool:
    """Return whether what begins like this is HTML or XML."""
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def _name(kind: str, key: str) -> bytes:
    return f"{kind}/{key}".encode()
