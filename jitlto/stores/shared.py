"""The shared stores of a process: what they hold is checked, and they never raise.

The first store, in the order of ``JITLTO_STORE``, that has a good entry answers. What an earlier store lacked is
written to it too, if it is writable and its readers would trust it: a directory near by fills from a bucket far away.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable
from dataclasses import replace

from jitlto.base.config import Config
from jitlto.base.log import log
from jitlto.stores.address import StoreAddress, parse_addresses
from jitlto.stores.patience import DEFAULT
from jitlto.stores.store import Store, StoreStatistics
from jitlto.stores.trust import Trust

_AT_EXIT = 2.0  # seconds at most for what is not written yet
_by_settings: dict[tuple[object, ...], SharedStores] = {}


class SharedStores:
    """The shared stores of a process.

    Args:
        addresses: The stores, in order, each with what is trusted there.
        patience: Seconds that this process loses at most by waiting for one of them that fails.
    """

    def __init__(self, addresses: Iterable[tuple[StoreAddress, Trust]], patience: float = DEFAULT) -> None:
        self._pid = os.getpid()
        self._is_fork_logged = False
        self._counts = StoreStatistics()
        self._stores = [Store(address, trust, patience, self._counts) for address, trust in addresses]
        atexit.register(self.finish, _AT_EXIT)

    @classmethod
    def from_config(cls, config: Config) -> SharedStores | None:
        """Return the stores of ``JITLTO_STORE``, the same for the same settings; None if there are none.

        Raises:
            StoreError: If an address is malformed.
        """
        if not config.store:
            return None
        addresses = parse_addresses(config.store, "JITLTO_STORE")
        patience = DEFAULT if config.store_patience is None else config.store_patience
        settings = (os.getpid(), addresses, config.store_trust, config.store_signers, config.store_key, patience)
        stores = _by_settings.get(settings)
        if stores is None:
            stores = _by_settings.setdefault(
                settings, cls([(address, Trust.of(config, address)) for address in addresses], patience)
            )
        return stores

    def open_soon(self) -> None:
        """Open the stores in the background: before the first use this saves its caller the wait."""
        if self._is_usable():
            for store in self._stores:
                store.open_soon()

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the checked payload of an entry from the first store that has it; None if none has, in time."""
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the checked payloads of those entries that stores have, by key; they are read side by side."""
        missing = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        if self._is_usable():
            for place, store in enumerate(self._stores):
                if not missing:
                    break
                if store.address.reads:
                    for key, (payload, data) in store.get_many(kind, missing).items():
                        found[key] = payload
                        for earlier in self._stores[:place]:
                            if earlier.address.reads:
                                earlier.put_object(kind, key, data)
                    missing = [key for key in missing if key not in found]
        self._counts.hits += len(found)
        self._counts.misses += len(missing)
        return found

    @property
    def takes_writes(self) -> bool:
        """Whether entries are written to a store, as far as is known yet."""
        return self._is_usable() and any(store.writes for store in self._stores)

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Write an entry to every store that is written to and has no good one; later, and in the background."""
        if self._is_usable():
            for store in self._stores:
                store.put(kind, key, payload)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything is written or given up; return False if something is left after ``timeout`` seconds."""
        if not self._is_usable():
            return True
        end = None if timeout is None else time.monotonic() + timeout
        flushed = True
        for store in self._stores:
            flushed &= store.flush(None if end is None else max(0.0, end - time.monotonic()))
        return flushed

    def finish(self, timeout: float, stall: float | None = None) -> None:
        """Flush at the end of a build or a process, and say which stores did not write everything.

        Args:
            timeout: Seconds to wait at most.
            stall: Seconds in which a store has to write something, unless it has failed before; by default half of what
                is left of its patience.
        """
        if self._is_usable():
            until = time.monotonic() + timeout
            for store in self._stores:
                store.finish(max(0.0, until - time.monotonic()), stall)

    @property
    def is_opening(self) -> bool:
        """Whether a store is still being opened: what was not found may be there."""
        return self._is_usable() and any(store.is_opening for store in self._stores if store.address.reads)

    @property
    def statistics(self) -> StoreStatistics:
        """What the stores did until now."""
        return replace(self._counts)

    def _is_usable(self) -> bool:
        """Return whether this is the process that made the stores, and not one forked from it, where obstore hangs."""
        if self._pid == os.getpid():
            return True
        if not self._is_fork_logged:
            self._is_fork_logged = True
            log(__name__, "debug", "shared stores are off in a forked process")
        return False
