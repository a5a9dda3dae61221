"""Leases: objects that a store creates for one machine alone, so that the others wait for an entry and do not make it.

A lease that is older than its time was left by a machine that died, or that takes long. It is not deleted, which two
machines could do one after the other, but gets a successor, which again only one can create.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from jitlto.base.errors import StoreError
from jitlto.stores import entry
from jitlto.stores.backend import Backend
from jitlto.stores.keys import SigningKey, TrustedKeys

#: Seconds after which the holder of a lease is taken for dead.
LEASE = 10.0
_KIND = "leases"
_MOST_SUCCESSORS = 16


def lease_name(kind: str, key: str) -> str:
    """Return the name of the object that is there while somebody makes the entry of a key."""
    return entry.object_name(_KIND, hashlib.sha256(f"{kind}/{key}".encode()).hexdigest())


def take(
    backend: Backend,
    name: str,
    on_reply: Callable[[], object],
    key: SigningKey | None = None,
    trusted: TrustedKeys | None = None,
) -> tuple[str, ...] | None:
    """Take a lease, unless another machine has it.

    Args:
        backend: The store.
        name: The lease's name.
        on_reply: Called after each of several requests.
        key: What signs it, if anything does.
        trusted: The keys of which one has to have signed another machine's, if one has to.

    Returns:
        tuple of str or None: The objects to be deleted when it ends; None if another machine has it.

    Raises:
        StoreError: If the store fails, or contradicts itself.
        RejectedEntryError: If what is there is no lease of anybody who may write entries.
    """
    names: tuple[str, ...] = ()
    for number in range(_MOST_SUCCESSORS):
        names = (*names, f"{name}-{number}" if number else name)
        for _ in range(2):  # it may be released meanwhile
            if backend.put(names[-1], _content(names[-1], key), if_absent=True):
                return names
            on_reply()
            if (data := backend.get(names[-1])) is not None:
                break
            on_reply()
        else:
            what = "an object is there when it is written, and is not when it is read"
            raise StoreError(what, code="store-failed", where=names[-1], hint="see whether it is a store of this kind")
        on_reply()
        since = float(entry.decode(_KIND, names[-1], data, trusted))
        held = backend.head(names[-1])
        if held is None or time.time() - min(since, held.modified) < LEASE:
            return None
        on_reply()
    # The holders of all of them have died. Several machines may get the last one now, which costs each a link.
    backend.put(names[-1], _content(names[-1], key))
    return names


def _content(name: str, key: SigningKey | None) -> bytes:
    """Return a lease: an entry of the time, so that only those who may write entries can make others wait."""
    return entry.encode(_KIND, name, str(time.time()).encode(), key)


def release(backend: Backend, names: tuple[str, ...]) -> None:
    """Delete a lease's objects, the first one last: until then, nobody can take a new one of the name.

    Raises:
        StoreError: If the store fails.
    """
    for name in reversed(names):
        backend.delete(name)
