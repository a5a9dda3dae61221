"""The upkeep of a store: what it holds, what is removed to make room, whether what it holds is right.

The date of an object is that of its last use, to a day: whoever may write puts an object again that it has read and
that is older (:mod:`jitlto.stores.shared`), so that reading needs no write.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import artifacts
from jitlto.stores.backend import Backend, StoredObject
from jitlto.stores.entry import A_PAGE, PAGE_HINT, decode, object_name, read_header
from jitlto.stores.keys import TrustedKeys
from jitlto.stores.lock_file import LockFile

T = TypeVar("T")
LOCKS, LEASES, OTHER = "locks", "leases", "other"
_ROOT = "v1/"
_ENTRY = re.compile(r"v1/([a-z]+)/([0-9a-f]{2})/([0-9a-f]{62})")
_LOCK = re.compile(r"v1/locks/([^/]+)\.json")
_LEASE_LOST = 86400.0  # seconds: whoever took an older lease is gone
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
    """What a pruning removed, and what is left; ``locked`` is the part of it that lock files keep.

    Args:
        removed: Number of objects by kind.
    """

    removed: Mapping[str, int]
    size: int
    left: int
    size_left: int
    locked: int
    size_locked: int


@dataclass(frozen=True, slots=True)
class Damage:
    """An object that is not what its name says, and why.

    Args:
        untrusted: It is whole, but no trusted key has signed it.
        removed: It was removed, or would be but for ``dry_run``.
    """

    name: str
    reason: str
    size: int
    untrusted: bool = False
    removed: bool = False


def lock_name(name: str) -> str:
    """Return the name of the object of a lock file."""
    return f"{_ROOT}{LOCKS}/{name}.json"


def kind_of(name: str) -> str:
    """Return the kind of an object; ``other`` if jitlto gives no such name."""
    if name.startswith(f"{_ROOT}{LEASES}/"):  # also successors of leases, whose names are longer
        return LEASES
    if match := _ENTRY.fullmatch(name):
        return match[1]
    return LOCKS if _LOCK.fullmatch(name) else OTHER


def put_lock(backend: Backend, lock: LockFile) -> None:
    """Have a store keep what a lock file names; an earlier one of the same name is replaced.

    Raises:
        StoreError: If the store cannot be written.
    """
    backend.put(lock_name(lock.name), lock.encode())


def remove_lock(backend: Backend, name: str) -> None:
    """Remove a lock file from a store.

    Raises:
        StoreError: If there is none of that name, or the store cannot be written.
    """
    if backend.head(lock_name(name)) is None:
        known = ", ".join(sorted(m[1] for o in backend.list(f"{_ROOT}{LOCKS}/") if (m := _LOCK.fullmatch(o.name))))
        hint = f"it holds {known}" if known else "it holds none"
        raise StoreError("the store holds no lock file of this name", code="store-no-such-lock", where=name, hint=hint)
    backend.delete(lock_name(name))


def read_locks(backend: Backend, damaged: dict[str, StoreError] | None = None) -> dict[str, LockFile]:
    """Return the lock files in a store, by name.

    Args:
        damaged: Gets the errors of those that are damaged, by name; without it, the first is raised.

    Raises:
        StoreError: If the store cannot be read, or one of them is damaged: what it kept is not known.
    """
    locks = {}
    for each in backend.list(f"{_ROOT}{LOCKS}/"):
        match = _LOCK.fullmatch(each.name)
        data = backend.get(each.name) if match else None
        if match and data is not None:
            try:
                locks[match[1]] = LockFile.decode(data, each.name)
            except StoreError as error:
                error.hint = f"push it again, or remove it with `jitlto store unlock URL {match[1]}`"
                if damaged is None:
                    raise
                damaged[match[1]] = error
    return locks


def measure(backend: Backend) -> dict[str, KindUsage]:
    """Return what a store holds, by kind.

    Raises:
        StoreError: If it cannot be listed.
    """
    kinds: dict[str, KindUsage] = {}
    for each in backend.list(_ROOT):
        kind = kind_of(each.name)
        old = kinds.get(kind, KindUsage(0, 0, each.modified, each.modified))
        oldest, newest = min(old.oldest, each.modified), max(old.newest, each.modified)
        kinds[kind] = KindUsage(old.objects + 1, old.size + each.size, oldest, newest)
    return dict(sorted(kinds.items()))


def prune(
    backend: Backend,
    *,
    older_than: float | None = None,
    size: int | None = None,
    locks: Iterable[LockFile] = (),
    dry_run: bool = False,
    now: float | None = None,
    on_removal: Callable[[str], object] = lambda _: None,
) -> Pruned:
    """Remove what has not been used for long, and the least recently used until the rest is small enough.

    What a lock file names, in the store or given, stays; what a database's address names stays as long as the address.

    Args:
        older_than: Seconds without use after which an object is removed.
        size: Bytes that may be left; what lock files keep may be more.
        locks: Lock files beside those in the store.
        dry_run: Remove nothing, and return what would be.
        now: Seconds since 1970.
        on_removal: Called with each name.

    Raises:
        StoreError: If the store cannot be listed or read, a lock file in it is damaged, or an object cannot be removed.
    """
    now = time.time() if now is None else now
    needed = _needed([*locks, *read_locks(backend).values()])
    kinds: dict[str, list[StoredObject]] = {}
    for each in backend.list(_ROOT):
        kinds.setdefault(kind_of(each.name), []).append(each)
    lost = [each for each in kinds.pop(LEASES, []) if now - each.modified > _LEASE_LOST]
    for kept in (LOCKS, OTHER):
        kinds.pop(kept, None)
    _keep_members(backend, kinds.get(artifacts.KIND, []), needed)
    held = sorted((each for found in kinds.values() for each in found), key=lambda each: each.modified)
    locked = [each for each in held if each.name in needed]
    left = sum(each.size for each in held)
    doomed = []
    for each in held:
        too_old = older_than is not None and now - each.modified > older_than
        if each.name not in needed and (too_old or (size is not None and left > size)):
            doomed.append(each)
            left -= each.size
    if not dry_run:
        _delete(backend, [*lost, *doomed], on_removal)
    removed: dict[str, int] = {}
    for each in [*lost, *doomed]:
        kind = kind_of(each.name)
        removed[kind] = removed.get(kind, 0) + 1
    freed = sum(each.size for each in [*lost, *doomed])
    size_locked = sum(each.size for each in locked)
    return Pruned(removed, freed, len(held) - len(doomed), left, len(locked), size_locked)


def verify(
    backend: Backend,
    trusted: TrustedKeys | None,
    *,
    delete: bool = False,
    delete_untrusted: bool = False,
    dry_run: bool = False,
    on_start: Callable[[int], object] = lambda _: None,
    on_object: Callable[[str], object] = lambda _: None,
) -> list[Damage]:
    """Read and check everything in a store: names, checksums and signatures.

    Args:
        trusted: The keys of which one must have signed each entry; None if signatures do not count.
        delete: Remove what is damaged, but neither lock files nor what jitlto gives no such name.
        delete_untrusted: Remove what is whole and that no trusted key has signed.
        dry_run: Remove nothing, and return what would be.
        on_start: Called with the number of objects.
        on_object: Called with the name of each checked object.

    Raises:
        StoreError: If the store cannot be listed, read or, with ``delete``, written.
    """
    held = sorted(backend.list(_ROOT), key=lambda each: each.name)
    names = {each.name for each in held}
    on_start(len(held))
    backend = artifacts.open_store(backend.address, max((each.size for each in held), default=0))

    def check(each: StoredObject) -> Damage | None:
        reason, untrusted = _damage(backend, each, trusted, names)
        on_object(each.name)
        if reason is None:
            return None
        # Without its lock file, what a deployment needs would go with the next pruning.
        removes = (delete_untrusted if untrusted else delete) and kind_of(each.name) not in (OTHER, LOCKS)
        if removes and not dry_run:
            backend.delete(each.name)
        return Damage(each.name, reason, each.size, untrusted, removes)

    return [found for found in _side_by_side(check, held) if found is not None]


def _needed(locks: Iterable[LockFile]) -> set[str]:
    """Return the names of the objects that lock files keep."""
    tables = [
        (kind, table) for lock in locks for kind, table in ((artifacts.KIND, lock.artifacts), ("kernels", lock.kernels))
    ]
    return {object_name(kind, digest) for kind, table in tables for digest in table}


def _keep_members(backend: Backend, held: list[StoredObject], needed: set[str]) -> None:
    """Have what an index lists stay as long as the index: make it needed too, or as recently used."""
    dates: dict[str, float] = {}
    small = [each for each in held if each.size <= artifacts.LARGEST_INDEX]
    for index, listed in zip(small, _side_by_side(lambda each: _members(backend, each.name), small), strict=True):
        for name in listed:
            # Later than its index, so that an interrupted pruning leaves no index without what it lists.
            dates[name] = max(dates.get(name, 0.0), index.modified + 1e-6)
            if index.name in needed:
                needed.add(name)
    held[:] = [StoredObject(each.name, each.size, max(each.modified, dates.get(each.name, 0.0))) for each in held]


def _members(backend: Backend, name: str) -> list[str]:
    """Return the names of the objects that an index lists; none if it is a different artifact, or damaged."""
    data = backend.get(name)
    with suppress(StoreError):
        listed = artifacts.decode_index(data) if data is not None else None
        return [object_name(artifacts.KIND, digest) for digest in (listed or {}).values()]
    return []


def _delete(backend: Backend, doomed: list[StoredObject], on_removal: Callable[[str], object]) -> None:
    def remove(each: StoredObject) -> None:
        backend.delete(each.name)
        on_removal(each.name)

    # One after the other where order counts: an index goes before what it lists.
    for each in doomed:
        if kind_of(each.name) == artifacts.KIND:
            remove(each)
    for _ in _side_by_side(remove, [each for each in doomed if kind_of(each.name) != artifacts.KIND]):
        pass


def _side_by_side(work: Callable[[StoredObject], T], held: list[StoredObject]) -> Iterator[T]:
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
    name, kind = it.name, kind_of(it.name)
    if kind == OTHER:
        return "jitlto gives no such name", False
    if kind == artifacts.KIND:
        return _artifact_damage(backend, name, names), False
    data = backend.get(name) if kind != LEASES else None
    if data is None:
        return None, False
    is_whole = False
    try:
        if kind == LOCKS:
            LockFile.decode(data, name)
            return None, False
        decode(kind, _key_of(name), data, None)
        is_whole = True
        read_header(kind, _key_of(name), data, len(data), trusted)
    except RejectedEntryError as error:
        if error.reason == A_PAGE and len(data) != it.size:
            raise StoreError("a page came in place of it", code="store-failed", where=name, hint=PAGE_HINT) from None
        return error.reason, is_whole
    except StoreError as error:
        return error.what, False
    return None, False


def _artifact_damage(backend: Backend, name: str, names: set[str]) -> str | None:
    pieces = backend.read(name)
    if pieces is None:
        return None
    sha, head = hashlib.sha256(), b""
    for piece in pieces:
        sha.update(piece)
        if len(head) <= artifacts.LARGEST_INDEX:
            head += piece
    if sha.hexdigest() != _key_of(name):
        return f"its SHA-256 is {sha.hexdigest()}"
    if len(head) > artifacts.LARGEST_INDEX:
        return None
    try:
        listed = artifacts.decode_index(head) or {}
    except StoreError as error:
        return error.what
    missing = [file for file, each in listed.items() if object_name(artifacts.KIND, each) not in names]
    return f"lists files that the store does not hold: {', '.join(missing)}" if missing else None


def _key_of(name: str) -> str:
    return "".join(name.split("/")[2:])
