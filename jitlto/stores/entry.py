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
    payload, reason = _read(f"{kind}/{key}".encode(), data, trusted)
    if reason:
        raise RejectedEntryError(reason, where=object_name(kind, key))
    return payload


def _read(name: bytes, data: bytes, trusted: TrustedKeys | None) -> tuple[bytes, str]:
    """Return the payload, and why the entry is rejected; empty if it is not."""
    try:
        head = entry.Head(data)
    except ValueError:
        return b"", A_PAGE if is_page(data) else NOT_AN_ENTRY
    payload = data[head.size :]
    key_id, signature = head.signature[:_KEY_ID], head.signature[_KEY_ID:]
    if head.name != name:
        return b"", "it is the entry of a different name"
    if head.schema != 1 or len(head.signature) not in (0, _KEY_ID + _SIGNATURE):
        return b"", NOT_AN_ENTRY
    if len(payload) != head.payload_size:
        return b"", "it is truncated or extended"
    if entry.digest_of(payload) != head.digest:
        return b"", "its payload is damaged"
    if trusted is None:
        return payload, ""
    if not signature:
        return b"", "it is not signed"
    if key_id not in trusted.ids:
        return b"", "it is signed by a key that is not trusted"
    return payload, "" if trusted.verify(key_id, signature, head.signed + key_id) else "its signature is wrong"


def is_page(start: bytes) -> bool:
    """Return whether what begins like this is HTML or XML."""
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"
