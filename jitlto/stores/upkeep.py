"""The upkeep of a store: whether it works, what it holds, what is removed to make room, whether the rest is right."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from jitlto.base.config import Config
from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import artifacts
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, StoredObject, open_backend
from jitlto.stores.entry import decode, refuse_page
from jitlto.stores.trust import load_signing_key, load_trusted

if TYPE_CHECKING:
    from jitlto.stores.signatures import TrustedKeys

T = TypeVar("T")
_ROOT = "v1/"
_NAME = re.compile(r"v1/[a-z]+/[0-9a-f]{2}/[0-9a-f]{62}")
_WORKERS = 16  # requests at a time: the time of each is mostly that of the way


def examine(address: StoreAddress, settings: Config) -> Iterator[tuple[str, str | None]]:
    """Yield what is found of a store, keys first: each with what to do about it, None if it is right."""
    keys = [partial(load, settings, address) for load in (load_trusted, load_signing_key)]
    steps: list[Callable[[], object]] = [*keys, partial(_try, address)]
    for step in steps if address.writes else steps[::2]:
        try:
            found = step()
        except StoreError as error:
            yield f"{error.where or address.url}: {error.what}", error.hint
        else:
            if isinstance(found, str):
                yield f"{address.url}: {found}", None


def _try(address: StoreAddress) -> str:
    """Read and write an object that is removed again; return what a store can do."""
    backend = open_backend(address)
    name = f"{_ROOT}probes/{os.urandom(8).hex()}"
    refuse_page(backend.get(name) or b"", address.url)
    if not address.writes:
        return "can be read"
    try:
        backend.put(name, b"jitlto doctor\n")
        backend.delete(name)
    except StoreError as error:
        hint = f"{error.hint}; or write {address.url}#read in JITLTO_STORE if the store is only to be read"
        raise StoreError(f"cannot be written: {error.what}", hint=hint) from error
    return "can be read and written"


@dataclass(frozen=True, slots=True)
class KindUsage:
    """The objects of a kind: how many, their bytes, and the dates of the oldest and the newest."""

    objects: int
    size: int
    oldest: float
    newest: float


def _held(backend: Backend) -> list[StoredObject]:
    """Return the objects whose names jitlto gives, by age."""
    found = [each for each in backend.list(_ROOT) if _NAME.fullmatch(each.name)]
    return sorted(found, key=lambda each: each.modified)


def measure(backend: Backend) -> dict[str, KindUsage]:
    """Return what a store holds, by kind.

    Raises:
        StoreError: If it cannot be listed.
    """
    kinds: dict[str, list[StoredObject]] = {}
    for each in _held(backend):
        kinds.setdefault(each.name.split("/")[1], []).append(each)
    return {
        kind: KindUsage(len(held), sum(each.size for each in held), held[0].modified, held[-1].modified)
        for kind, held in sorted(kinds.items())
    }


def prune(
    backend: Backend, *, older_than: float | None = None, size: int | None = None, dry_run: bool = False
) -> tuple[list[StoredObject], list[StoredObject]]:
    """Remove the entries that are older than so many seconds, and the oldest until the rest has so many bytes.

    Pushed files stay: nobody makes them again. Return what is removed, or would be in a dry run, and what is left.

    Raises:
        StoreError: If the store cannot be listed, or an object cannot be removed.
    """
    held = [each for each in _held(backend) if each.name.split("/")[1] != artifacts.KIND]
    total, count = sum(each.size for each in held), 0
    for each in held:
        too_old = older_than is not None and time.time() - each.modified > older_than
        if not too_old and (size is None or total <= size):
            break
        total -= each.size
        count += 1
    if not dry_run:
        list(_side_by_side(lambda each: backend.delete(each.name), held[:count]))
    return held[:count], held[count:]


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that is not what its name says, why, its bytes, and whether it was removed."""

    name: str
    reason: str
    size: int
    removed: bool = False


def verify(backend: Backend, trusted: TrustedKeys | None, *, delete: bool = False) -> Iterator[Damage | None]:
    """Read and check everything in a store: checksums and, by trusted keys, signatures; yield what is wrong with each.

    What is damaged may be deleted, but not what is whole and that no trusted key has signed.

    Raises:
        StoreError: If the store cannot be listed, read or, with ``delete``, written, or sends a page.
    """

    def check(each: StoredObject) -> Damage | None:
        data = backend.get(each.name)
        if data is None or not (reason := _damage(each.name, data, trusted)):
            return None
        removed = delete and bool(_damage(each.name, data, None))
        if removed:
            backend.delete(each.name)
        return Damage(each.name, reason, each.size, removed)

    yield from _side_by_side(check, _held(backend))


def _side_by_side(work: Callable[[StoredObject], T], held: Iterable[StoredObject]) -> Iterator[T]:
    """Yield the results in order; after an error or an interrupt, no further work is begun."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        yield from pool.map(work, held)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _damage(name: str, data: bytes, trusted: TrustedKeys | None) -> str:
    """Return what is wrong with an object; nothing if it is good."""
    _, kind, *key = name.split("/")
    if kind == artifacts.KIND:
        digest = hashlib.sha256(data).hexdigest()
        if digest == "".join(key):
            return ""
        refuse_page(data, name)
        return f"its SHA-256 is {digest}"
    try:
        decode(kind, "".join(key), data, trusted)
    except RejectedEntryError as error:
        return error.what
    return ""
