"""Entries of shared stores: those of :mod:`jitlto.base.entry`, signed.

A signature is of the entry's name and of the SHA-256 of its payload: what was signed for one name is rejected under
every other, so that an old entry cannot be passed off as a different one. It follows the SHA-256 of its public key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitlto.base import entry
from jitlto.base.errors import RejectedEntryError

if TYPE_CHECKING:
    from jitlto.stores.signatures import SigningKey, TrustedKeys

#: The reason why what no writer of this version makes is rejected, such as an error page.
NOT_AN_ENTRY = "it is not an entry of this version"
#: The same for a page, which nobody has stored.
A_PAGE = "it is not an entry but a page, as a proxy or the sign-in of a network sends it"
#: What to do about pages.
PAGE_HINT = "sign in to the network, or correct the settings of its proxy (HTTPS_PROXY, NO_PROXY)"
#: No head is longer than this, in bytes.
MOST_HEADER_BYTES = 4096
_KEY_ID, _SIGNATURE = 32, 64  # bytes


def object_name(kind: str, key: str) -> str:
    """Return the name of the object that holds an entry."""
    return f"v1/{kind}/{key[:2]}/{key[2:]}"


def encode(kind: str, key: str, payload: bytes, signing_key: SigningKey | None) -> bytes:
    """Return the object for a payload, signed if there is a key."""
    if signing_key is None:
        return entry.encode(f"{kind}/{key}", payload)
    key_id, sign = signing_key.id, signing_key.sign
    size = _KEY_ID + _SIGNATURE
    return entry.encode(f"{kind}/{key}", payload, sign=lambda head: key_id + sign(head + key_id), size=size)


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
    head = read_header(kind, key, data, len(data), trusted)
    payload = data[head.size :]
    if entry.digest_of(payload) != head.digest:
        raise RejectedEntryError("its payload is damaged", where=object_name(kind, key))
    return payload


def read_header(kind: str, key: str, start: bytes, size: int, trusted: TrustedKeys | None) -> entry.Head:
    """Check and return what stands before the payload.

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

    try:
        head = entry.Head(start)
    except ValueError:
        raise rejected(A_PAGE if is_page(start) else NOT_AN_ENTRY) from None
    if head.name != f"{kind}/{key}".encode():
        raise rejected("it is the entry of a different name")
    if head.schema != 1 or len(head.signature) not in (0, _KEY_ID + _SIGNATURE):
        raise rejected(NOT_AN_ENTRY)
    if size != head.size + head.payload_size:
        raise rejected("it is truncated or extended")
    if trusted is not None:
        key_id, signature = head.signature[:_KEY_ID], head.signature[_KEY_ID:]
        if not signature:
            raise rejected("it is not signed")
        if key_id not in trusted.ids:
            raise rejected("it is signed by a key that is not trusted")
        if not trusted.verify(key_id, signature, head.signed + key_id):
            raise rejected("its signature is wrong")
    return head


def is_page(start: bytes) -> bool:
    """Return whether what begins like this is HTML or XML."""
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"
