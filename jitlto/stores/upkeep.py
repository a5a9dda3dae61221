"""The upkeep of a store: whether it works, what it holds, what is removed to make room, whether what it holds is right.

The date of an object is that of its last use, to a day: whoever may write puts an object again that it has read and
that is older (:mod:`jitlto.stores.shared`), so that reading needs no write.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from jitlto.base.config import Config
from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import artifacts
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, StoredObject, open_backend
from jitlto.stores.entry import A_PAGE, PAGE_HINT, decode, object_name
from jitlto.stores.trust import Trust

if TYPE_CHECKING:
    from jitlto.stores.signatures import TrustedKeys

T = TypeVar("T")
OTHER = "other"
_ROOT = "v1/"
_ENTRY = re.compile(r"v1/([a-z]+)/([0-9a-f]{2}/[0-9a-f]{62})")
_WORKERS = 16  # requests at a time: the time of each is mostly that of the way
_TIMEOUT = 3.0  # seconds for each request that finds out whether a store works


def examine(
    address: StoreAddress,
    settings: Config,
    *,
    open_store: Callable[[StoreAddress], Backend] = lambda address: open_backend(address, timeout=_TIMEOUT),
) -> Iterator[tuple[str, str | None]]:
    """Yield what is found of a store, keys first: each with what to do about it, None if it is right.

    Args:
        settings: Decide what is trusted, and what signs.
    """
    _, _, problems = Trust.of(settings, address).load(writes=address.writes)
    for what, why in problems.items():
        yield f"{address.url}: {what}: {why.where or ''} {why.what}", why.hint
    try:
        yield f"{address.url}: {_try(address, open_store)}", None
    except StoreError as error:
        yield f"{address.url}: {error.what}", error.hint


def _try(address: StoreAddress, open_store: Callable[[StoreAddress], Backend]) -> str:
    """Read and write an object that is removed again; return what a store can do."""
    if address.directory and not address.directory.exists():  # opening it would make it
        raise StoreError("does not exist", hint="create the directory, or mount it")
    name, can = f"{_ROOT}probes/{os.urandom(8).hex()}", "cannot be read"
    try:
        backend = open_store(address)
        backend.get(name)  # the first request connects
        begin = time.perf_counter()
        if backend.get(name) is not None:
            raise StoreError("a page came in place of an object that it cannot hold", hint=PAGE_HINT)
        read = f"can be read, {1000 * (time.perf_counter() - begin):.1f} ms a request"
        if not address.writes:
            return read
        can = "cannot be written"
        backend.put(name, b"jitlto doctor\n")
        if backend.get(name) is None:
            raise StoreError("it loses what is written", hint="use a store that can be read as soon as it is written")
        backend.delete(name)
    except StoreError as error:
        only = f"; or write {address.url}#read in JITLTO_STORE if the store is only to be read"
        hint = f"{error.hint}{only if can == 'cannot be written' else ''}"
        raise StoreError(f"{can}: {error.what}", hint=hint) from error
    return f"{read}; can be written"


@dataclass(frozen=True, slots=True)
class KindUsage:
    """The objects of a kind: how many, their bytes, and the dates of the least and the most recently used."""

    objects: int
    size: int
    oldest: float
    newest: float


def kind_of(name: str) -> str:
    """Return the kind of an object; ``other`` if jitlto gives no such name."""
    match = _ENTRY.fullmatch(name)
    return match[1] if match else OTHER


def measure(backend: Backend) -> dict[str, KindUsage]:
    """Return what a store holds, by kind.

    Raises:
        StoreError: If it cannot be listed.
    """
    kinds: dict[str, list[StoredObject]] = {}
    for each in backend.list(_ROOT):
        kinds.setdefault(kind_of(each.name), []).append(each)
    found = {}
    for kind, held in sorted(kinds.items()):
        dates = sorted(each.modified for each in held)
        found[kind] = KindUsage(len(held), sum(each.size for each in held), dates[0], dates[-1])
    return found


def prune(
    backend: Backend,
    *,
    older_than: float | None = None,
    size: int | None = None,
    with_artifacts: bool = False,
    dry_run: bool = False,
    now: float | None = None,
) -> tuple[list[StoredObject], list[StoredObject]]:
    """Remove what has not been used for long, and the least recently used until the rest is small enough.

    Args:
        older_than: Seconds without use after which an object is removed.
        size: Bytes that may be left.
        with_artifacts: Remove pushed files too, which nobody makes again.
        dry_run: Remove nothing, and return what would be.
        now: Seconds since 1970.

    Returns:
        What is removed, and what is left.

    Raises:
        StoreError: If the store cannot be listed, or an object cannot be removed.
    """
    now = time.time() if now is None else now
    kept = {OTHER} if with_artifacts else {OTHER, artifacts.KIND}
    held = [each for each in backend.list(_ROOT) if kind_of(each.name) not in kept]
    held.sort(key=lambda each: each.modified)
    total, count = sum(each.size for each in held), 0
    for each in held:
        too_old = older_than is not None and now - each.modified > older_than
        if not too_old and (size is None or total <= size):
            break
        total -= each.size
        count += 1
    if not dry_run:
        list(_side_by_side(lambda each: backend.delete(each.name), held[:count]))
    return held[:count], held[count:]


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that is not what its name says, and why.

    Args:
        untrusted: It is whole, but no trusted key has signed it.
        removed: It was removed.
    """

    name: str
    reason: str
    size: int
    untrusted: bool = False
    removed: bool = False


def verify(backend: Backend, trusted: TrustedKeys | None, *, delete: bool = False) -> Iterator[Damage | None]:
    """Read and check everything in a store: names, checksums and signatures; yield what is wrong with each object.

    Args:
        trusted: The keys of which one must have signed each entry; None if signatures do not count.
        delete: Remove what is damaged, but neither what is whole and that no trusted key has signed, nor what jitlto
            gives no such name.

    Raises:
        StoreError: If the store cannot be listed, read or, with ``delete``, written.
    """
    held = sorted(backend.list(_ROOT), key=lambda each: each.name)
    names = {each.name for each in held}

    def check(each: StoredObject) -> Damage | None:
        if kind_of(each.name) == OTHER:
            return Damage(each.name, "jitlto gives no such name", each.size)
        data = backend.get(each.name)
        if data is None:
            return None
        reason = _damage(each, data, None, names)
        untrusted = not reason and trusted is not None
        if untrusted:
            reason = _damage(each, data, trusted, names)
        if not reason:
            return None
        if delete and not untrusted:
            backend.delete(each.name)
        return Damage(each.name, reason, each.size, untrusted, delete and not untrusted)

    yield from _side_by_side(check, held)


def _side_by_side(work: Callable[[StoredObject], T], held: Iterable[StoredObject]) -> Iterator[T]:
    """Yield the results in order; after an error or an interrupt, no further work is begun."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        yield from pool.map(work, held)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _damage(it: StoredObject, data: bytes, trusted: TrustedKeys | None, names: set[str]) -> str:
    """Return what is wrong with an object; nothing if it is good."""
    kind, key = kind_of(it.name), "".join(it.name.split("/")[2:])
    if kind == artifacts.KIND:
        if (digest := hashlib.sha256(data).hexdigest()) != key:
            return f"its SHA-256 is {digest}"
        listed = artifacts.decode_index(data) or {}
        missing = [file for file, each in listed.items() if object_name(kind, each) not in names]
        return f"lists files that the store does not hold: {', '.join(missing)}" if missing else ""
    try:
        decode(kind, key, data, trusted)
    except RejectedEntryError as error:
        if error.reason == A_PAGE and len(data) != it.size:
            raise StoreError("a page came in place of it", code="store-failed", where=it.name, hint=PAGE_HINT) from None
        return error.reason
    return ""
