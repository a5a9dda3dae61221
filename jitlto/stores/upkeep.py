"""The upkeep of a store: what it holds, what is removed to make room, whether what it holds is right.

The date of an object is that of its last use, to a day: whoever may write puts an object again that it has read and
that is older (:mod:`jitlto.stores.shared`), so that reading needs no write.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import artifacts
from jitlto.stores.backend import Backend, StoredObject
from jitlto.stores.entry import A_PAGE, PAGE_HINT, decode, object_name

if TYPE_CHECKING:
    from jitlto.stores.signatures import TrustedKeys

T = TypeVar("T")
OTHER = "other"
_ROOT = "v1/"
_ENTRY = re.compile(r"v1/([a-z]+)/([0-9a-f]{2}/[0-9a-f]{62})")
_WORKERS = 16  # requests at a time: the time of each is mostly that of the way


@dataclass(frozen=True, slots=True)
class KindUsage:
    """The objects of a kind: how many, their bytes, and the dates of the least and the most recently used."""

    objects: int
    size: int
    oldest: float
    newest: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """What a pruning removed, and what is left.

    Args:
        removed: Number of objects by kind.
    """

    removed: Mapping[str, int]
    size: int
    left: int
    size_left: int


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
) -> Pruned:
    """Remove what has not been used for long, and the least recently used until the rest is small enough.

    Args:
        older_than: Seconds without use after which an object is removed.
        size: Bytes that may be left.
        with_artifacts: Remove pushed files too, which nobody makes again.
        dry_run: Remove nothing, and return what would be.
        now: Seconds since 1970.

    Raises:
        StoreError: If the store cannot be listed, or an object cannot be removed.
    """
    now = time.time() if now is None else now
    kept = {OTHER} if with_artifacts else {OTHER, artifacts.KIND}
    held = [each for each in backend.list(_ROOT) if kind_of(each.name) not in kept]
    held.sort(key=lambda each: each.modified)
    left = sum(each.size for each in held)
    doomed = []
    for each in held:
        too_old = older_than is not None and now - each.modified > older_than
        if too_old or (size is not None and left > size):
            doomed.append(each)
            left -= each.size
    for _ in _side_by_side(lambda each: backend.delete(each.name), [] if dry_run else doomed):
        pass
    removed = Counter(kind_of(each.name) for each in doomed)
    return Pruned(dict(removed), sum(each.size for each in doomed), len(held) - len(doomed), left)


def verify(
    backend: Backend,
    trusted: TrustedKeys | None,
    *,
    delete: bool = False,
) -> Iterator[Damage | None]:
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
        reason, untrusted = _damage(backend, each, trusted, names)
        if reason is None:
            return None
        removes = delete and not untrusted and kind_of(each.name) != OTHER
        if removes:
            backend.delete(each.name)
        return Damage(each.name, reason, each.size, untrusted, removes)

    yield from _side_by_side(check, held)


def _side_by_side(work: Callable[[StoredObject], T], held: Iterable[StoredObject]) -> Iterator[T]:
    """Yield the results in order; after an error or an interrupt, no further work is begun."""
    pool = ThreadPoolExecutor(_WORKERS)
    try:
        yield from pool.map(work, held)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _damage(
    backend: Backend, it: StoredObject, trusted: TrustedKeys | None, names: set[str]
) -> tuple[str | None, bool]:
    """Return what is wrong with an object, None if nothing is, and whether that is the signature alone."""
    kind, key = kind_of(it.name), "".join(it.name.split("/")[2:])
    if kind == OTHER:
        return "jitlto gives no such name", False
    data, is_whole = backend.get(it.name), False
    try:
        if data is None:
            return None, False
        if kind == artifacts.KIND:
            if (digest := hashlib.sha256(data).hexdigest()) != key:
                return f"its SHA-256 is {digest}", False
            listed = artifacts.decode_index(data) or {}
            missing = [file for file, each in listed.items() if object_name(kind, each) not in names]
            return f"lists files that the store does not hold: {', '.join(missing)}" if missing else None, False
        decode(kind, key, data, None)
        is_whole = True
        decode(kind, key, data, trusted)
    except RejectedEntryError as error:
        if error.reason == A_PAGE and len(data or b"") != it.size:
            raise StoreError("a page came in place of it", code="store-failed", where=it.name, hint=PAGE_HINT) from None
        return error.reason, is_whole
    except StoreError as error:  # of the index
        return error.what, False
    return None, False
