"""Entries are written where no good one is, and written again so that their date is that of their last use."""

from __future__ import annotations

import time
from contextlib import suppress

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import entry
from jitlto.stores.backend import REFRESH_AFTER, Backend
from jitlto.stores.keys import TrustedKeys


def write(
    backend: Backend,
    kind: str,
    key: str,
    data: bytes,
    trusted: TrustedKeys | None,
    *,
    replace: bool = False,
    may_be_there: bool = False,
) -> bool:
    """Write an entry, unless one is there that readers accept as far as its header says.

    Args:
        backend: The store.
        kind, key, data: The entry.
        trusted: The keys of which one has to have signed what is there, if one has to.
        replace: Whether what is there has been read and rejected.
        may_be_there: Whether to ask for it first, which sends less than an entry.

    Returns:
        bool: Whether it was written.

    Raises:
        StoreError: If the store fails.
    """
    name = entry.object_name(kind, key)
    if may_be_there and not replace and backend.head(name) is not None:
        return False
    try:
        if backend.put(name, data, if_absent=True):
            return True
    except StoreError as error:
        if error.code != "store-unsupported":
            raise
        # Without conditional writes, two writers may both write: what they write is the same.
    with suppress(RejectedEntryError):
        start = None if replace else backend.start(name, entry.MOST_HEADER_BYTES)
        if start is not None:
            entry.read_header(kind, key, *start, trusted)
            return False
    return backend.put(name, data)


def refresh(backend: Backend, name: str, data: bytes) -> None:
    """Write an object again, if its date is not that of its last use; it may have been read since then.

    Raises:
        StoreError: If the store fails.
    """
    held = backend.head(name)
    if held is not None and time.time() - held.modified > REFRESH_AFTER:
        backend.put(name, data)
