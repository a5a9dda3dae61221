"""The objects of one store, through obstore: get, put, list, delete, with jitlto's errors.

obstore hangs in a process that was forked after it has been used. So a backend belongs to the process that opened it,
and a forked child can open none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from jitlto.base.errors import StoreError
from jitlto.stores.address import SCHEMES, StoreAddress

#: The largest object that is read, in bytes.
MOST_BYTES = 1 << 30
#: Objects above this size are received in pieces of it, in bytes.
PIECE = 1 << 20
#: Seconds: an object that is used and is older is written again, so that its date is that of its last use, to a day.
REFRESH_AFTER = 86400.0
_PARTS = 4  # of a large object, of 5 MB each, are sent side by side
_CONNECT = 2.0  # seconds at most until a connection stands
_INSTALL = "pip install 'jitlto[remote]'"
#: Options of the HTTP client that obstore reads from AWS_..., GOOGLE_... and AZURE_... only if it is given none itself.
_FROM_ENVIRONMENT = ("ALLOW_HTTP", "ALLOW_INVALID_CERTIFICATES", "PROXY_URL", "PROXY_CA_CERTIFICATE", "PROXY_EXCLUDES")
_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_DENIED = {"PermissionDeniedError", "UnauthenticatedError"}
_ANSWER = re.compile(r"status code: ([0-9]{3}) ([A-Za-z -]*)")
_REQUEST = re.compile(r"^.*Error performing [A-Z]+ \S+ in \S+( - |, after .* retries.*? - )")
_ENDPOINT = re.compile(r"Error performing [A-Z]+ (https?://[^/\s]+)\S* in ([0-9.]+)(s|ms|µs)")
_TIMED_OUT = re.compile(r"\bTimeout\b|\bTimedOut\b|timed out")
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
    """

    name: str
    size: int
    modified: float


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

    def get(
        self,
        name: str,
        on_piece: Callable[[bytes, int], None] | None = None,
        on_found: Callable[[StoredObject], None] | None = None,
    ) -> bytes | None:
        """Return an object, or None if there is none of this name.

        Args:
            name: The object's name.
            on_piece: For an object that comes in several pieces: called with each, and with the object's size.
            on_found: Called with the size and time of the object.

        Raises:
            StoreError: If the store fails, or the object is larger than 1 GiB.
        """
        data: bytes | None = self._call(name, lambda: self._get(name, on_piece, on_found), missing=None)
        return data

    def _get(
        self,
        name: str,
        on_piece: Callable[[bytes, int], None] | None,
        on_found: Callable[[StoredObject], None] | None,
    ) -> bytes:
        result = self._store.get(name)
        if on_found is not None:
            on_found(_stored(result.meta))
        size = result.meta["size"]
        if size > MOST_BYTES:
            what, hint = f"the object has {size} bytes, more than {MOST_BYTES} are not read", "delete the object"
            raise StoreError(what, code="store-too-large", where=self._where(name), hint=hint)
        if size <= PIECE:
            data: bytes = result.bytes().to_bytes()
            return data
        pieces = []
        for piece in result.stream(min_chunk_size=PIECE):
            pieces.append(bytes(piece))
            if on_piece is not None:
                on_piece(pieces[-1], size)
        return b"".join(pieces)

    def start(self, name: str, size: int) -> tuple[bytes, int] | None:
        """Return the first ``size`` bytes of an object, or all if it has fewer, and its size; None if there is none."""
        held = self.head(name)
        if held is None or not held.size:  # of nothing, no range is valid
            return None if held is None else (b"", 0)
        end = min(size, held.size)
        data = self._call(name, lambda: bytes(self._store.get_range(name, start=0, end=end)), missing=None)
        return None if data is None else (data, held.size)

    def read(self, name: str) -> Iterator[bytes] | None:
        """Return an object of any size in pieces, or None if there is none of this name."""
        result = self._call(name, lambda: self._store.get(name), missing=None)
        return None if result is None else self._pieces(name, iter(result.stream(min_chunk_size=PIECE)))

    def _pieces(self, name: str, stream: Iterator[bytes]) -> Iterator[bytes]:
        while (piece := self._call(name, lambda: next(stream, None))) is not None:
            yield bytes(piece)

    def write(self, name: str, pieces: Iterator[bytes]) -> None:
        """Write an object of any size: all of it, or nothing if the pieces end with an exception."""
        self._call(name, lambda: self._store.put(name, pieces, max_concurrency=_PARTS))

    def head(self, name: str) -> StoredObject | None:
        """Return name, size and time of an object, or None if there is none of this name."""
        found: StoredObject | None = self._call(name, lambda: _stored(self._store.head(name)), missing=None)
        return found

    def put(self, name: str, data: bytes) -> None:
        """Write an object: all of it or nothing."""
        self._call(name, lambda: self._store.put(name, data, use_multipart=False))

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
        self._call(name, lambda: self._store.delete(name), missing=None)

    def _call(self, name: str, work: Callable[[], Any], **otherwise: Any) -> Any:
        """Return what an operation returns, with obstore's exceptions as jitlto's.

        Args:
            name: The object.
            work: The operation.
            otherwise: What to return if the object is ``missing``.
        """
        if self._pid != os.getpid():
            raise _forked(self.address)
        try:
            return work()
        except StoreError:
            raise
        except FileNotFoundError as error:
            if _NO_BUCKET.search(str(error)):
                otherwise.pop("missing", None)
            return self._otherwise("missing", otherwise, name, error)
        except NotImplementedError as error:
            raise self._error("store-unsupported", name, error, "use a different kind of store") from error
        except BaseException as error:  # Rust's panics are no Exception
            if not _is_of_obstore(error):
                raise
            kind = type(error).__name__
            if kind in _DENIED or _status(error) in ("401", "403"):
                hint = "check the credentials, and that they may read, write and list below this URL"
                raise self._error("store-denied", name, error, hint) from error
            if "InvalidUri" in str(error):
                raise self._error(
                    "store-settings", name, error, "correct the URL, and the settings of the client"
                ) from error
            if "Encountered object with invalid path" in str(error):
                hint = "delete this object by the store's own means: nothing of jitlto has such a name"
                raise self._error("store-failed", name, error, hint) from error
            if "BadScheme" in str(error):
                hint = f"set {_PREFIXES.get(self.address.scheme, 'AWS_')}ALLOW_HTTP=true for an http:// endpoint"
                raise self._error("store-settings", name, error, hint) from error
            if _is_unreachable(error):
                hint = "check the URL, the network and its proxies"
                if self.address.scheme == "s3" and "AWS_ENDPOINT_URL" in os.environ:
                    hint = "check AWS_ENDPOINT_URL, the network and its proxies"
                raise self._error("store-unreachable", name, error, hint) from error
            if _status(error) == "501":
                raise self._error("store-unsupported", name, error, "use a different kind of store") from error
            if _status(error) == "404":
                return self._otherwise("missing", otherwise, name, error)
            raise self._error("store-failed", name, error, "see the store's answer") from error

    def _otherwise(self, case: str, otherwise: dict[str, Any], name: str, error: BaseException) -> Any:
        if case in otherwise:
            return otherwise[case]
        if case == "missing":  # what is written or listed is missing only where the whole bucket is
            hint = "create the bucket or container, or correct the URL"
            raise self._error("store-no-such-bucket", name, error, hint) from error
        raise self._error("store-failed", name, error, "check the URL") from error

    def _error(self, code: str, name: str, error: BaseException, hint: str) -> StoreError:
        return StoreError(_in_short(error), code=code, where=self._where(name), hint=hint)

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
        what = "shared stores need the package obstore, which is not installed"
        raise StoreError(what, code="store-missing-package", where=address.url, hint=_INSTALL) from error
    _check_endpoint(address)
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


def _check_endpoint(address: StoreAddress) -> None:
    """Check what makes the client of S3 panic, with a dump of Rust's stack."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT") if address.scheme == "s3" else ():
        value = os.environ.get(name)
        if value and not _is_endpoint(value):
            what, hint = f"{name} is not the URL of a server: {value!r}", f"write it as in {name}=http://host:9000"
            raise StoreError(what, code="store-settings", where=address.url, hint=hint)


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_host = bool(re.fullmatch(r"[\w.:-]+", parts.hostname or "", re.ASCII)) and parts.port != 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and has_host and bool(re.fullmatch("[!-~]+", text))


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


def _stored(meta: Any) -> StoredObject:
    return StoredObject(meta["path"], meta["size"], meta["last_modified"].timestamp())


def _is_of_obstore(error: BaseException) -> bool:
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _is_unreachable(error: BaseException) -> bool:
    text = str(error)  # there is no class for it
    return "error sending request" in text or "Timeout" in text or "timed out" in text or "dns error" in text


def _status(error: BaseException) -> str | None:
    """Return the HTTP status of an answer; obstore has classes for some of them, and not where it lists objects."""
    match = _ANSWER.search(str(error))
    return match[1] if match else None


def _in_short(error: BaseException) -> str:
    """Return what a message of obstore says, without the request, the rest of the answer and the dump that follows."""
    text = re.sub(r"[^\n\x20-\x7e\xa1-\uffff]", "?", str(error)).strip()  # control characters of objects' names
    if answer := _ANSWER.search(text):
        code = re.search("<Code>([^<]{1,100})</Code>", text)
        return f"the store answers {answer[1]} {answer[2].strip()}" + (f" ({code[1]})" if code else "")
    if (endpoint := _ENDPOINT.search(text)) and "BadScheme" in text:
        return f"the endpoint {endpoint[1]} is without TLS, which is not allowed"
    if endpoint and _is_unreachable(error):
        cause = _CAUSE.search(text)
        if cause is None and _TIMED_OUT.search(text):
            return f"{endpoint[1]} does not reply: timed out after {float(endpoint[2]):.0f} {endpoint[3]}"
        return f"{endpoint[1]} cannot be reached: {(cause[1] or cause[2] + ')') if cause else 'no connection'}"
    text = _REQUEST.sub("", text.partition("\n")[0])
    return (text[:300] + "...") if len(text) > 300 else text or type(error).__name__


def _forked(address: StoreAddress) -> StoreError:
    what = "a process that was forked from one that uses stores cannot use them"
    hint = "start processes with the start method 'spawn' or 'forkserver'"
    return StoreError(what, code="store-forked", where=address.url, hint=hint)
