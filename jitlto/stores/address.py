"""Addresses of shared stores, as ``JITLTO_STORE`` names one."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from jitlto.base.errors import StoreError

_URL = re.compile(r"(?:(?:s3|gs|az|https?)://[^/?#@,\s]+(?:/[^?#,\s]*)?|file:///[^?#\s]*)")
_HINT = (
    "write e.g. s3://bucket/prefix, s3://bucket/prefix#read to read only, or file:///directory; credentials come from "
    "the store's own environment variables, such as AWS_ACCESS_KEY_ID"
)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A shared store, and whether this process writes entries to it, and not only reads."""

    url: str  # without a trailing slash
    writes: bool

    @property
    def scheme(self) -> str:
        """The URL's scheme."""
        return self.url.partition(":")[0]

    @property
    def directory(self) -> Path | None:
        """The directory that the store is; None for all other kinds."""
        return Path(unquote(self.url.removeprefix("file://"))) if self.scheme == "file" else None


def parse_store(text: str, where: str = "", *, writes: bool | None = None) -> StoreAddress:
    """Parse the address of a store; ``writes`` stands for what the address says, and ``where`` is for errors.

    Raises:
        StoreError: If it is invalid, or if it is to be written and can only be read.
    """
    url, _, purpose = text.partition("#")
    if not _URL.fullmatch(url) or not text.isprintable() or text not in (url, f"{url}#read"):
        shown = url.partition(":")[0] if re.search("[@?]", text) else text  # no credentials
        what = f"{shown!r} is not the address of a store" if where or shown != text else "is not the address of a store"
        raise StoreError(what, code="store-address", where=where or shown, hint=_HINT)
    address = StoreAddress(url if url == "file:///" else url.rstrip("/"), not purpose and not url.startswith("http"))
    if writes and not address.writes:
        hint = "give the address that it is written by, such as s3://bucket/prefix"
        raise StoreError("this store can only be read", code="store-address", where=text, hint=hint)
    return address if writes is None else StoreAddress(address.url, writes)
