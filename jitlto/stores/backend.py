"""The objects of one store, through obstore: get, put, list, delete, with jitlto's errors.

obstore hangs in a process that was forked after it has been used. So a forked child can open none, nor use its
parent's.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from jitlto.base import config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress

#: The largest object that is read, in bytes.
MOST_BYTES = 1 << 30
_SERVER = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?(/[!-~]*)?")
_PARTS = 2  # of a large object, of 5 MB each, are sent side by side
#: Seconds for a request with all of its reply (``JITLTO_STORE_TIMEOUT``), for each part of it, for connecting.
_TIMEOUT, _REPLY, _CONNECT = 600.0, 10.0, 2.0
#: Options of the HTTP client that obstore reads from AWS_..., GOOGLE_... and AZURE_... only if it is given none itself.
_FROM_ENVIRONMENT = ("ALLOW_HTTP", "ALLOW_INVALID_CERTIFICATES", "PROXY_URL", "PROXY_CA_CERTIFICATE", "PROXY_EXCLUDES")
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_SETTINGS = "correct the URL or the environment variables of this kind of store; {}ALLOW_HTTP=true allows http://"
#: What a message of obstore says, the code and the remedy; "missing" for an object that is not there. The first that
#: matches counts: there are classes for some of these errors alone, and for none where objects are listed.
_ERRORS = (
    ("NoSuchBucket|ContainerNotFound|(bucket|container) does not exist", "store-no-such-bucket", "create the bucket"),
    ("status code: 404|not found: ", "missing", ""),
    ("status code: 501|not (yet )?implemented", "store-unsupported", "use a different kind of store"),
    ("status code: 40[13]|Permission ?denied", "store-denied", "check that the credentials may read, write and list"),
    ("BadScheme|builder error|InvalidUri|MissingAccount", "store-settings", _SETTINGS),
    ("canonicalize filesystem root", "store-unreachable", "create the directory, or mount it"),
    ("sending request", "store-unreachable", "check the URL, {}ENDPOINT_URL, the network and its proxies"),
    ("timed ?out", "store-unreachable", "check the network; JITLTO_STORE_TIMEOUT is how long all of a reply may take"),
    ("", "store-failed", "see the store's answer"),
)
#: What the system or the TLS library says in the dump after a message: "Connection refused", InvalidCertificate(...).
_CAUSE = re.compile(r'\b(?:message|error): "([^"]{1,200})|\b(InvalidCertificate\(\w+\))')
_used_in: int | None = None  # the process that first used obstore


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store: its name below the URL, its bytes, and when it was written, in seconds since 1970."""

    name: str
    size: int
    modified: float


class Backend:
    """The objects of one store, by obstore's object for it. Every method raises :class:`StoreError` if it fails."""

    def __init__(self, address: StoreAddress, store: Any) -> None:
        self.address = address
        self._store = store

    def get(self, name: str) -> bytes | None:
        """Return the bytes of an object; None if there is none.

        Raises:
            StoreError: If the store fails, or the object is larger than 1 GiB.
        """

        def read() -> bytes:
            result = self._store.get(name)
            if (size := result.meta["size"]) > MOST_BYTES:
                what = f"the object has {size} bytes, more than {MOST_BYTES} are not read"
                raise StoreError(what, code="store-too-large", where=self._where(name), hint="delete the object")
            return bytes(result.bytes())

        found: bytes | None = self._call(name, read)
        return found

    def size_of(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if there is none."""
        found: int | None = self._call(name, lambda: self._store.head(name)["size"])
        return found

    def put(self, name: str, data: bytes) -> None:
        """Write an object: all of it or nothing."""
        self._call(name, lambda: self._store.put(name, data, max_concurrency=_PARTS), missing_ok=False)

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose names begin with a prefix, which ends at a ``/``."""
        if self.address.scheme.startswith("http"):
            what, hint = "a web server cannot list what it holds", "give the address that it is written by"
            raise StoreError(what, code="store-unsupported", where=self.address.url, hint=hint)
        pages = self._call(prefix, lambda: iter(self._store.list(prefix or None)), missing_ok=False)
        while (page := self._call(prefix, lambda: next(pages, None), missing_ok=False)) is not None:
            for meta in page:
                yield StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def delete(self, name: str) -> None:
        """Delete an object, if there is one of this name."""
        self._call(name, lambda: self._store.delete(name))

    def _call(self, name: str, work: Callable[[], Any], *, missing_ok: bool = True) -> Any:
        """Return what an operation returns, or None for a missing object; raise obstore's errors as jitlto's."""
        try:
            return work()
        except StoreError:
            raise
        except BaseException as error:  # Rust's panics are no Exception
            found = _translated(error, self.address, self._where(name))
            if found.code != "missing":
                raise found from error
            if missing_ok:
                return None
            hint = "create the bucket, or correct the URL"
            raise StoreError(found.what, code="store-no-such-bucket", where=found.where, hint=hint) from error

    def _where(self, name: str) -> str:
        return f"{self.address.url}/{name}" if name else self.address.url


def open_backend(address: StoreAddress, *, retries: int = 3, makes: bool = False) -> Backend:
    """Open a store, whose directory it ``makes`` if that is missing; no request is sent yet.

    Raises:
        StoreError: If obstore is not installed, its settings for this store are incomplete, or this process was forked
            from one that uses stores.
    """
    global _used_in
    if _used_in not in (None, os.getpid()):
        what = "a process that was forked from one that uses stores cannot use them"
        hint = "start processes with the start method 'spawn' or 'forkserver'"
        raise StoreError(what, code="store-forked", where=address.url, hint=hint)
    _used_in = os.getpid()  # before the import: a fork during it would leave its lock locked
    try:
        from obstore.store import from_url  # 15 ms, and an extra; many who read this module need only its names
    except ImportError as error:
        what, hint = "shared stores need the package obstore, which is not installed", "pip install 'jitlto[remote]'"
        raise StoreError(what, code="store-missing-package", where=address.url, hint=hint) from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT")
    if address.scheme == "s3" and endpoint and not _SERVER.fullmatch(endpoint):  # the client would panic
        what, hint = f"AWS_ENDPOINT_URL is not the URL of a server: {endpoint!r}", "write it as in http://host:9000"
        raise StoreError(what, code="store-settings", where=address.url, hint=hint)
    try:
        return Backend(address, from_url(address.url, **_options(address, retries, makes)))
    except BaseException as error:  # as above
        raise _translated(error, address, address.url) from error


def _options(address: StoreAddress, retries: int, makes: bool) -> dict[str, Any]:
    if address.directory:
        return {"mkdir": makes}
    timeout = config.current().store_timeout or _TIMEOUT
    times = {"timeout": timeout, "read_timeout": _REPLY, "connect_timeout": _CONNECT}
    client: dict[str, Any] = {name: timedelta(seconds=value) for name, value in times.items()}
    if address.scheme == "http":
        client["allow_http"] = True
    elif prefix := _PREFIXES.get(address.scheme):
        client |= {name.lower(): value for name in _FROM_ENVIRONMENT if (value := os.environ.get(prefix + name))}
    return {
        "client_options": client,
        "retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=min(_REPLY, timeout))},
    }


def _translated(error: BaseException, address: StoreAddress, where: str) -> StoreError:
    """Return an error of obstore as one of jitlto's; raise others again."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    text = re.sub(r"[^\n\x20-\x7e\xa1-\uffff]", "?", str(error)).strip()  # control characters of objects' names
    code, hint = next((code, hint) for words, code, hint in _ERRORS if re.search(words, text, re.IGNORECASE))
    what, _, dump = text.partition("\n")
    cause = _CAUSE.search(dump)
    what = what[:300] + (f" ({cause[1] or cause[2]})" if cause else " (timed out)" if "TimedOut" in dump else "")
    hint = hint.format(_PREFIXES.get(address.scheme, "AWS_"))
    return StoreError(what or type(error).__name__, code=code, where=where, hint=hint)
