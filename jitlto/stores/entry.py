"""Entries of shared stores: those of :mod:`jitlto.base.entry`, signed.

A signature is of the entry's name and of the SHA-256 of its payload: what was signed for one name is rejected under
every other, so that an old entry cannot be passed off as a different one. It follows the SHA-256 of its public key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitlto.base import entry
from jitlto.base.errors import RejectedEntryError, StoreError

if TYPE_CHECKING:
    from jitlto.stores.signatures import SigningKey, TrustedKeys

#: The reason why what no writer of this version makes under a name is rejected.
DAMAGED = "it is damaged, or of another name or version"
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
    """Return the payload of the entry that was requested, which one of the keys has signed, if there are any.

    Raises:
        RejectedEntryError: If it is not a good entry of this kind and key, or no trusted key has signed it.
        StoreError: If it is a page.
    """
    where = object_name(kind, key)
    try:
        head = entry.Head(data)
    except ValueError:
        refuse_page(data, where)
        raise RejectedEntryError(DAMAGED, where=where) from None
    payload, reason = data[head.size :], ""
    key_id, signature = head.signature[:_KEY_ID], head.signature[_KEY_ID:]
    right = (f"{kind}/{key}".encode(), 1, len(payload), entry.digest_of(payload))
    if (head.name, head.schema, head.payload_size, head.digest) != right or len(signature) not in (0, _SIGNATURE):
        reason = DAMAGED
    elif trusted is not None and key_id not in trusted.ids:
        reason = "it is signed by a key that is not trusted" if signature else "it is not signed"
    elif trusted is not None and not trusted.verify(key_id, signature, head.signed + key_id):
        reason = "its signature is wrong"
    if reason:
        raise RejectedEntryError(reason, where=where)
    return payload


def refuse_page(data: bytes, where: str) -> None:
    """Refuse HTML and XML, which nobody has stored.

    Raises:
        StoreError: If it is that.
    """
    if data.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<":
        what = "a page came in place of it, as a proxy or the sign-in of a network sends it"
        hint = "sign in to the network, or correct the settings of its proxy (HTTPS_PROXY, NO_PROXY)"
        raise StoreError(what, code="store-failed", where=where, hint=hint)
