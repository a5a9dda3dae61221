"""Addresses of shared stores, as ``JITLTO_STORE`` lists them, and of files in them, which end with a SHA-256."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from jitlto.base.errors import StoreError

#: Schemes, and whether such a store can be written.
SCHEMES = {"s3": True, "gs": True, "az": True, "file": True, "http": False, "https": False}
_MARK = "#sha256="
_FILE_HINT = "an address is what `jitlto push FILE URL` prints: URL#sha256=DIGEST"
_HINT = "write e.g. s3://bucket/prefix, or s3://bucket/prefix#read to read only"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A shared store, and what this process does with it.

    Args:
        url: The URL without a trailing slash: ``s3://bucket/prefix``, ``file:///directory``.
        reads: Whether entries are read from it.
        writes: Whether entries are written to it.
    """

    url: str
    reads: bool
    writes: bool

    @property
    def scheme(self) -> str:
        """The URL's scheme."""
        return self.url.partition(":")[0]

    @property
    def is_local(self) -> bool:
        """Whether the store is a directory."""
        return self.scheme == "file"

    def only(self, *, writes: bool) -> StoreAddress:
        """Return the same store, to be read, and written or not."""
        return StoreAddress(self.url, self.reads, writes)

    def __str__(self) -> str:
        """Return the text that parses to this address."""
        if self.reads and not self.writes:
            return f"{self.url}#read"
        return self.url if self.reads else f"{self.url}#write"


def parse_addresses(text: str, where: str) -> tuple[StoreAddress, ...]:
    """Parse addresses that are separated by white space.

    Raises:
        StoreError: If one is not the address of a store, or is there twice; the error names ``where``.
    """
    addresses = tuple(_parse(word, where) for word in text.split())
    urls = [address.url for address in addresses]
    if repeated := next((url for url in urls if urls.count(url) > 1), None):
        raise _invalid(repeated, "it is listed twice", where, "write it once, without # to read and write")
    return addresses


def _parse(word: str, where: str) -> StoreAddress:
    url, _, purpose = word.partition("#")
    scheme, separator, rest = url.partition("://")
    if "," in word and "://" in rest:
        raise _invalid(word, "it is several", where, "separate stores by white space")
    if word.startswith(("/", "./", "../")):
        hint = f"write file://{Path(word).resolve()}"
        raise _invalid(word, "the path of a directory is no URL", where, hint)
    if not separator or scheme not in SCHEMES:
        raise _invalid(word, f"the scheme has to be one of {', '.join(SCHEMES)}", where, _HINT)
    if not word.isprintable() or "?" in url or "@" in rest.partition("/")[0]:
        hint = "credentials come from the store's own environment variables, such as AWS_ACCESS_KEY_ID"
        raise _invalid(scheme, "a store's URL holds neither credentials nor a query", where, hint)
    if scheme == "file" and not rest.startswith("/"):
        raise _invalid(word, "the path of a directory has to be absolute", where, "write file:///directory")
    rest = rest.rstrip("/")
    if scheme != "file" and (not rest or rest.startswith("/")):
        raise _invalid(word, "it names no bucket or host", where, _HINT)
    if purpose.startswith("sha256="):
        raise _invalid(word, "it is the address of a file in a store", where, f"write {url}")
    if purpose not in ("", "read", "write") or word.endswith("#"):
        raise _invalid(word, f"#{purpose} is neither #read nor #write", where, _HINT)
    if purpose == "write" and not SCHEMES[scheme]:
        raise _invalid(word, "it can only be read", where, f"write {url}, and list a second store to write to")
    return StoreAddress(f"{scheme}://{rest or '/'}", purpose != "write", purpose != "read" and SCHEMES[scheme])


def _invalid(word: str, why: str, where: str, hint: str) -> StoreError:
    what = f"is not the address of a store: {why}" if word == where else f"invalid store {word!r}: {why}"
    return StoreError(what, code="store-address", where=where, hint=hint)


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
        url, mark, digest = text.partition(_MARK)
        if not mark:
            what = "the address has no #sha256=..., so what it holds cannot be verified"
            raise StoreError(what, code="store-no-digest", where=text, hint=_FILE_HINT)
        if not re.fullmatch("[0-9a-f]{64}", digest):
            what = f"{digest!r} is not a SHA-256: 64 hexadecimal digits in lower case"
            raise StoreError(what, code="store-no-digest", where=text, hint=_FILE_HINT)
        return cls(parse_store(url), digest)


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
        raise StoreError("give the address of one store", code="store-address", where=url, hint=_FILE_HINT)
    if writes and not addresses[0].writes:
        hint = "give the address that it is written by, such as s3://bucket/prefix"
        raise StoreError("this store can only be read", code="store-address", where=url, hint=hint)
    return addresses[0].only(writes=writes)
