"""The objects of one store, through obstore: open, put, list, delete, with jitlto's errors.

obstore hangs in a process that was forked after it has been used. So a backend belongs to the process that opened it,
and a forked child can open none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from jitlto.base.errors import StoreError
from jitlto.stores.address import SCHEMES, StoreAddress

#: The largest object that is read whole, in bytes.
MOST_BYTES = 1 << 30
#: Objects are received in pieces of this size, in bytes.
PIECE = 1 << 20
#: Seconds: an object that is used and is older is written again, so that its date is that of its last use, to a day.
REFRESH_AFTER = 86400.0
_PARTS = 4  # of a large object, of 5 MB each, are sent side by side
_CONNECT = 2.0  # seconds at most until a connection stands
#: Options of the HTTP client that obstore reads from AWS_..., GOOGLE_... and AZURE_... only if it is given none itself.
_FROM_ENVIRONMENT = ("ALLOW_HTTP", "ALLOW_INVALID_CERTIFICATES", "PROXY_URL", "PROXY_CA_CERTIFICATE", "PROXY_EXCLUDES")
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_SERVER = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:]+\])(:[0-9]{1,5})?(/[!-~]*)?")
_ANSWER = re.compile(r"status code: ([0-9]{3}) ([A-Za-z -]*)")
_REQUEST = re.compile(r"^.*Error performing [A-Z]+ \S+ in \S+( - |, after .* retries.*? - )")
_ENDPOINT = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)\S* in ([0-9.]+)(s|ms|µs)")
_NO_CONNECTION = re.compile("error sending request|Timeout|TimedOut|timed out|dns error")
#: What the system or the TLS library says in the dump after a message: "Connection refused", InvalidCertificate(...).
_CAUSE = re.compile(r'\b(?:message|error): "([^"]{1,200})"|\b(InvalidCertificate\(\w+)')
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|specified (?:bucket|container) does not exist")
_used_in: int | None = None  # the process that first used obstore


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of a store.

    Args:
        name: Its name, relative to the store's URL.
        size: Its size in bytes.
        modified: When it was written, in seconds since 1970 by the store's clock.
        pieces: Its bytes, where it is being received.
    """

    name: str
    size: int
    modified: float
    pieces: Iterator[bytes] = field(default_factory=lambda: iter(()), compare=False)


class Backend:
    """The objects of one store. Every method raises :class:`StoreError` if the store fails.

    Args:
        address: The store.
        store: obstore's object for it.
    """

    def __init__(self, address: StoreAddress, store: Any) -> None:
        self.address = address
        self._store = store
        self._pid = os.getpid()

    def open(self, name: str, first: int | None = None) -> StoredObject | None:
        """Begin to receive an object, or its first bytes alone; None if there is no such object, or no such bytes."""
        options = None if first is None else {"range": (0, first)}
        result = self._call(name, lambda: self._store.get(name, options=options), missing_ok=True)
        if result is None:
            return None
        stream = iter(result.stream(min_chunk_size=PIECE))

        def pieces() -> Iterator[bytes]:
            while (each := self._call(name, lambda: next(stream, None))) is not None:
                yield bytes(each)

        return _stored(result.meta, pieces())

    def get(self, name: str) -> bytes | None:
        """Return an object, or None if there is none of this name.

        Raises:
            StoreError: If the store fails, or the object is larger than 1 GiB.
        """
        found = self.open(name)
        if found is None:
            return None
        self.check_size(found)
        return b"".join(found.pieces)

    def check_size(self, found: StoredObject) -> None:
        """Check that an object may be read whole.

        Raises:
            StoreError: If it is larger than 1 GiB.
        """
        if found.size > MOST_BYTES:
            what, hint = f"the object has {found.size} bytes, more than {MOST_BYTES} are not read", "delete the object"
            raise StoreError(what, code="store-too-large", where=self._where(found.name), hint=hint)

    def head(self, name: str) -> StoredObject | None:
        """Return name, size and time of an object, or None if there is none of this name."""
        found = self._call(name, lambda: self._store.head(name), missing_ok=True)
        return None if found is None else _stored(found)

    def put(self, name: str, data: bytes) -> None:
        """Write an object: all of it or nothing."""
        self._call(name, lambda: self._store.put(name, data, use_multipart=False))

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write an object of any size: all of it, or nothing if the pieces end with an exception."""
        self._call(name, lambda: self._store.put(name, pieces, max_concurrency=_PARTS))

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose names begin with a prefix, which ends at a ``/``."""
        if not SCHEMES[self.address.scheme]:
            what, hint = "a web server cannot list what it holds", "give the address that it is written by"
            raise StoreError(what, code="store-unsupported", where=self.address.url, hint=hint)
        pages = self._call(prefix, lambda: iter(self._store.list(prefix or None)))
        while (page := self._call(prefix, lambda: next(pages, None))) is not None:
            yield from map(_stored, page)

    def delete(self, name: str) -> None:
        """Delete an object, if there is one of this name."""
        self._call(name, lambda: self._store.delete(name), missing_ok=True)

    def _call(self, name: str, work: Callable[[], Any], *, missing_ok: bool = False) -> Any:
        """Return what an operation returns, or None for a missing object; raise obstore's errors as jitlto's."""
        if self._pid != os.getpid():
            raise _forked(self.address)
        try:
            return work()
        except StoreError:
            raise
        except BaseException as error:  # Rust's panics are no Exception
            if not _is_of_obstore(error):
                raise
            code, hint = self._classify(error)
            if code == "missing":
                if missing_ok and not _NO_BUCKET.search(str(error)):
                    return None
                code, hint = "store-no-such-bucket", "create the bucket or container, or correct the URL"
            raise StoreError(_in_short(error), code=code, where=self._where(name), hint=hint) from error

    def _classify(self, error: BaseException) -> tuple[str, str]:
        """Return the code of an error of obstore, and what to do about it."""
        kind, text = type(error).__name__, str(error)
        # obstore has classes for some statuses, and not where it lists objects.
        match = _ANSWER.search(text)
        status = match[1] if match else ""
        if isinstance(error, FileNotFoundError) or status == "404" or "InvalidRange" in text:
            return "missing", ""
        if isinstance(error, NotImplementedError) or status == "501":
            return "store-unsupported", "use a different kind of store"
        if kind in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
            return "store-denied", "check the credentials, and that they may read, write and list below this URL"
        if "InvalidUri" in text:
            return "store-settings", "correct the URL, and the settings of the client"
        if "BadScheme" in text:
            prefix = _PREFIXES.get(self.address.scheme, "AWS_")
            return "store-settings", f"set {prefix}ALLOW_HTTP=true for an http:// endpoint"
        if _NO_CONNECTION.search(text):  # there is no class for it
            setting = "AWS_ENDPOINT_URL"
            named = self.address.scheme == "s3" and setting in os.environ
            return "store-unreachable", f"check {setting if named else 'the URL'}, the network and its proxies"
        return "store-failed", "see the store's answer"

    def _where(self, name: str) -> str:
        return f"{self.address.url}/{name}" if name else self.address.url


def open_backend(address: StoreAddress, *, timeout: float, retries: int = 0) -> Backend:
    """Open a store; no request is sent yet.

    Args:
        address: The store.
        timeout: Seconds that a request may take, with its reply.
        retries: How often a request that failed is sent again.

    Raises:
        StoreError: If obstore is not installed, its settings for this store are incomplete, or this process was forked
            from one that uses stores.
    """
    global _used_in
    if _used_in not in (None, os.getpid()):
        raise _forked(address)
    _used_in = os.getpid()  # before the import: a fork during it would leave its lock locked
    try:
        from obstore.store import from_url  # 15 ms, and an extra; many who read this module need only its names
    except ImportError as error:
        what, hint = "shared stores need the package obstore, which is not installed", "pip install 'jitlto[remote]'"
        raise StoreError(what, code="store-missing-package", where=address.url, hint=hint) from error
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT") if address.scheme == "s3" else ():
        value = os.environ.get(name)
        if value and not _SERVER.fullmatch(value):  # the client would panic
            what, hint = f"{name} is not the URL of a server: {value!r}", f"write it as in {name}=http://host:9000"
            raise StoreError(what, code="store-settings", where=address.url, hint=hint)
    try:
        return Backend(address, from_url(address.url, **_options(address, timeout, retries)))
    except BaseException as error:  # Rust's panics are no Exception
        if not _is_of_obstore(error):
            raise
        code, hint = "store-settings", "correct the URL, or the environment variables of this kind of store"
        if address.is_local:
            code, hint = "store-unreachable", "create the directory, or mount it"
        elif "MissingAccount" in str(error):
            hint = "set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or other credentials"
        raise StoreError(_in_short(error), code=code, where=address.url, hint=hint) from error


def _options(address: StoreAddress, timeout: float, retries: int) -> dict[str, Any]:
    if address.is_local:
        return {"mkdir": address.writes}
    whole, connect = timedelta(seconds=timeout), timedelta(seconds=min(timeout, _CONNECT))
    client: dict[str, Any] = {"timeout": whole, "connect_timeout": connect}
    if address.scheme == "http":
        client["allow_http"] = True
    elif prefix := _PREFIXES.get(address.scheme):
        for name in _FROM_ENVIRONMENT:
            if value := os.environ.get(prefix + name):
                client[name.lower()] = value
    return {"client_options": client, "retry_config": {"max_retries": retries, "retry_timeout": whole}}


def _stored(meta: Any, *pieces: Iterator[bytes]) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp(), *pieces)


def _is_of_obstore(error: BaseException) -> bool:
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _in_short(error: BaseException) -> str:
    """Return what a message of obstore says, without the request, the rest of the answer and the dump that follows."""
    text = re.sub(r"[^\n\x20-\x7e\xa1-\uffff]", "?", str(error)).strip()  # control characters of objects' names
    if answer := _ANSWER.search(text):
        code = re.search("<Code>([^<]{1,100})</Code>", text)
        return f"the store answers {answer[1]} {answer[2].strip()}" + (f" ({code[1]})" if code else "")
    if (endpoint := _ENDPOINT.search(text)) and "BadScheme" in text:
        return f"the endpoint {endpoint[1]} is without TLS, which is not allowed"
    if endpoint and _NO_CONNECTION.search(text):
        cause = _CAUSE.search(text)
        if cause is None and re.search("Timeout|TimedOut|timed out", text):
            return f"{endpoint[1]} does not reply: timed out after {float(endpoint[2]):.0f} {endpoint[3]}"
        return f"{endpoint[1]} cannot be reached: {(cause[1] or cause[2] + ')') if cause else 'no connection'}"
    text = _REQUEST.sub("", text.partition("\n")[0])
    return (text[:300] + "...") if len(text) > 300 else text or type(error).__name__


def _forked(address: StoreAddress) -> StoreError:
    what = "a process that was forked from one that uses stores cannot use them"
    hint = "start processes with the start method 'spawn' or 'forkserver'"
    return StoreError(what, code="store-forked", where=address.url, hint=hint)
