"""Leases: objects that a store creates for one machine alone, so that the others wait for an entry and do not make it.

A lease that is older than its time was left by a machine that died, or that takes long. It is not deleted, which two
machines could do one after the other, but gets a successor, which again only one can create.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from jitlto.storage.remote import entry
from jitlto.storage.remote.backend import Backend

#: Seconds after which the holder of a lease is taken for dead.
LEASE = 10.0
_CONTENT = b"jitlto lease\n"
_MOST_SUCCESSORS = 16


def lease_name(kind: str, key: str) -> str:
    """Return the name of the object that is there while somebody makes the entry of a key."""
    return entry.object_name("leases", hashlib.sha256(f"{kind}/{key}".encode()).hexdigest())


def take(backend: Backend, name: str, on_reply: Callable[[], object]) -> tuple[str, ...] | None:
    """Take a lease, unless another machine has it.

    Args:
        backend: The store.
        name: The lease's name.
        on_reply: Called after each of several requests.

    Returns:
        tuple of str or None: The objects to be deleted when it ends; None if another machine has it.

    Raises:
        StoreError: If the store fails.
    """
    names: tuple[str, ...] = ()
    for number in range(_MOST_SUCCESSORS):
        names = (*names, f"{name}-{number}" if number else name)
        if backend.put(names[-1], _CONTENT, if_absent=True):
            return names
        on_reply()
        held = backend.head(names[-1])
        # If it was released meanwhile, the entry is there: its maker writes it first.
        if held is None or time.time() - held.modified < LEASE:
            return None
        on_reply()
    return None


def release(backend: Backend, names: tuple[str, ...]) -> None:
    """Delete a lease's objects, the first one last: until then, nobody can take a new one of the name.

    Raises:
        StoreError: If the store fails.
    """
    for name in reversed(names):
        backend.delete(name)
