"""Addresses of files in stores: the store's address and the SHA-256 of the content, which is what is trusted."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress, parse_addresses

_MARK = "#sha256="
_HINT = "an address is what `jitlto push FILE URL` prints: URL#sha256=DIGEST"


@dataclass(frozen=True, slots=True)
class ArtifactAddress:
    """The address of an artifact: ``s3://bucket/prefix#sha256=…``.

    Args:
        store: The store's address, to read from.
        digest: The SHA-256 of the artifact, in hexadecimal.
    """

    store: StoreAddress
    digest: str

    def __str__(self) -> str:
        return f"{self.store.url}{_MARK}{self.digest}"

    @classmethod
    def parse(cls, text: str) -> ArtifactAddress:
        """Parse an address.

        Raises:
            JitltoError: If it is not the address of a store, or has no digest.
        """
        url, digest = split_address(text)
        return cls(parse_store(url), digest)


def split_address(text: str) -> tuple[str, str]:
    """Return the address of the store and the SHA-256 of an artifact.

    Raises:
        StoreError: If there is no digest.
    """
    url, mark, digest = text.partition(_MARK)
    if not mark:
        what = "the address has no #sha256=..., so what it holds cannot be verified"
        raise StoreError(what, code="store-no-digest", where=text, hint=_HINT)
    if not re.fullmatch("[0-9a-f]{64}", digest):
        what = f"{digest!r} is not a SHA-256: 64 hexadecimal digits in lower case"
        raise StoreError(what, code="store-no-digest", where=text, hint=_HINT)
    return url, digest


def parse_store(url: str, *, writes: bool = False) -> StoreAddress:
    """Parse the address of one store.

    Args:
        url: The address.
        writes: Whether the store is to be written.

    Raises:
        StoreError: If it is invalid, if there are several, or if it is to be written and can only be read.
    """
    addresses = parse_addresses(url, url)
    if len(addresses) != 1:
        raise StoreError("give the address of one store", code="store-address", where=url, hint=_HINT)
    if writes and not addresses[0].writes:
        hint = "give the address that it is written by, such as s3://bucket/prefix"
        raise StoreError("this store can only be read", code="store-address", where=url, hint=hint)
    return addresses[0].only(writes=writes)
