"""The one form of what is stored on disk, in packs and in shared stores: a payload with its name, and checked.

Numbers are little-endian:

======== ===========================================================================================
bytes    content
======== ===========================================================================================
15       ``jitlto entry 2`` and a line feed
2        schema of the payload
2        length of the name
2        length of the signature
8        length of the payload
32       SHA-256 of the payload
as given the name: kind, ``/``, key, in UTF-8
as given the signature, of all bytes before it; none on disk and in packs
as given the payload
======== ===========================================================================================

What does not match, such as an entry of an earlier form or of another schema, is a miss.
"""

import struct
from collections.abc import Callable

_MAGIC = b"jitlto entry 2\n"
_FORM = struct.Struct("<15sHHHQ32s")


def encode(
    name: str, payload: bytes, *, schema: int = 1, sign: Callable[[bytes], bytes] | None = None, size: int = 0
) -> bytes:
    """Encode a payload.

    Args:
        sign: Makes a signature of ``size`` bytes.
    """
    head = _head(name.encode(), payload, schema, size)
    return head + (sign(head) if sign else b"") + payload


def decode(name: str, data: bytes, *, schema: int = 1) -> bytes | None:
    """Return the payload of an entry that is not signed; None if it is damaged, or of another name or schema."""
    text = name.encode()
    payload = data[_FORM.size + len(text) :]
    return payload if data[: _FORM.size + len(text)] == _head(text, payload, schema, 0) else None


def is_earlier(data: bytes) -> bool:
    """Return whether these are whole bytes of another form, which an earlier version has written."""
    return data.startswith(b"jitlto ") and not data.startswith(_MAGIC)


def _head(name: bytes, payload: bytes, schema: int, signature_size: int) -> bytes:
    return _FORM.pack(_MAGIC, schema, len(name), signature_size, len(payload), digest_of(payload)) + name


def digest_of(payload: bytes) -> bytes:
    """Return the SHA-256 of bytes."""
    import hashlib  # imported lazily: takes 2 ms, and `from jitlto import load` does not need it

    return hashlib.sha256(payload).digest()


class Head:
    """What stands before the payload of an entry, read from its beginning.

    Args:
        start: The beginning, with all of the head.

    Raises:
        ValueError: If it is not the beginning of an entry.
    """

    def __init__(self, start: bytes) -> None:
        if not start.startswith(_MAGIC) or len(start) < _FORM.size:
            raise ValueError("not an entry")
        _, self.schema, name_size, signature_size, self.payload_size, self.digest = _FORM.unpack_from(start)
        end = _FORM.size + name_size
        self.name = start[_FORM.size : end]
        self.signed = start[:end]  #: what a signature is of
        self.signature = start[end : end + signature_size]
        self.size = end + signature_size
