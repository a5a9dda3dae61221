"""Addresses of shared stores, as ``JITLTO_STORE`` lists them: URLs with ``#read``, ``#write`` or neither."""

from __future__ import annotations

from pathlib import Path

from jitlto.base.errors import StoreError
from jitlto.base.frozen import Frozen

#: Schemes, and whether such a store can be written.
SCHEMES = {"s3": True, "gs": True, "az": True, "file": True, "http": False, "https": False}
_HINT = "write e.g. s3://bucket/prefix, or s3://bucket/prefix#read to read only"


class StoreAddress(Frozen):
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
