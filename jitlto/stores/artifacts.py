"""Whole files in a store, by content: databases, packs, recorded plans.

An artifact is stored as it is, under the SHA-256 of its bytes. Its address ends with this SHA-256, which is what is
trusted: a file from anywhere that has it is the file that was pushed, so artifacts need no signature.
"""

import hashlib
import re
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import StoreError
from jitlto.stores.address import parse_store
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.entry import object_name, refuse_page

KIND = "artifacts"
#: Stands between the URL of a store and the SHA-256 of a file in it.
MARK = "#sha256="
_DIGEST = re.compile("[0-9a-f]{64}")


def push(backend: Backend, path: Path) -> tuple[str, int, bool]:
    """Store a file, unless the store holds it already; return its address, its size and whether it was there before.

    Raises:
        StoreError: If the store does not take it.
        OSError: If it cannot be read.
    """
    data = files.read(path)
    digest = hashlib.sha256(data).hexdigest()
    name = object_name(KIND, digest)
    # One of another size was left by a store that loses bytes, or put there by hand.
    was_there = backend.size_of(name) == len(data)
    if not was_there:
        backend.put(name, data)
    return f"{backend.address.url}{MARK}{digest}", len(data), was_there


def pull(address: str, output: Path) -> None:
    """Write the artifact of an address to a file, which stays as it is if the artifact cannot be fetched.

    Raises:
        StoreError: If the address is invalid, or the store lacks the artifact or has another content for it.
        OSError: If the file cannot be written.
    """
    url, _, digest = address.partition(MARK)
    if not _DIGEST.fullmatch(digest):
        what = "the address has no #sha256= and 64 hexadecimal digits, so what it holds cannot be verified"
        hint = "an address is what `jitlto push FILE URL` prints: URL#sha256=DIGEST"
        raise StoreError(what, code="store-no-digest", where=address, hint=hint)
    data = open_backend(parse_store(url, writes=False)).get(object_name(KIND, digest))
    if data is None:
        hint = "check the address, or push the file again: jitlto push FILE URL"
        raise StoreError("the store does not hold it", code="store-no-such-artifact", where=address, hint=hint)
    actual = hashlib.sha256(data).hexdigest()
    if actual != digest:
        refuse_page(data, address)
        what = f"the store sends other content, which is not used: its SHA-256 is {actual}"
        hint = "push it again after `jitlto store verify URL --delete`"
        raise StoreError(what, code="store-digest", where=address, hint=hint)
    files.write(output, data)
