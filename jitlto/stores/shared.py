"""The shared stores of a process, as both wings use them: what they hold is checked, and they never raise.

The first store, in the order of ``JITLTO_STORE``, that has a good entry answers. What an earlier store lacked is
written to it too, if it is writable and its readers would trust it: a directory near by fills from a bucket far away.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterable

from jitlto.base.config import Config
from jitlto.base.frozen import Frozen
from jitlto.stores.address import StoreAddress, parse_addresses
from jitlto.stores.client import StoreClient
from jitlto.stores.leases import lease_name
from jitlto.stores.patience import DEFAULT
from jitlto.stores.statistics import Counters, StoreStatistics
from jitlto.stores.trust import Trust

__all__ = ["Lease", "SharedStores", "StoreStatistics"]

_AT_EXIT = 2.0  # seconds at most for what is not written yet
_by_settings: dict[tuple[object, ...], SharedStores] = {}


class Lease(Frozen):
    """The right to make an entry; it only saves work, and ends by itself.

    Args:
        client: The store that it is of; None if there is none, and several may make the entry.
        names: Its objects; none if the store could not say whether another machine has it.
    """

    client: StoreClient | None = None
    names: tuple[str, ...] = ()

    def release(self) -> None:
        """End it, in the background; for one whose entry is written, :meth:`SharedStores.put` does that."""
        if self.client is not None and self.names:
            self.client.release_soon(self.names)


class SharedStores:
    """The shared stores of a process.

    Args:
        addresses: The stores, in order, each with what is trusted there.
        patience: Seconds that this process loses at most by waiting for one of them that fails.
    """

    def __init__(self, addresses: Iterable[tuple[StoreAddress, Trust]], patience: float = DEFAULT) -> None:
        self._pid = os.getpid()
        self._is_fork_logged = False
        self._counters = Counters()
        self._clients = [StoreClient(address, trust, patience, self._counters) for address, trust in addresses]
        atexit.register(self._at_exit)

    @classmethod
    def from_config(cls, config: Config, *, patience: float = DEFAULT) -> SharedStores | None:
        """Return the stores of ``JITLTO_STORE``, the same for the same settings; None if there are none.

        Args:
            config: The settings.
            patience: Seconds that waiting may cost where ``JITLTO_STORE_PATIENCE`` is not set.

        Raises:
            StoreError: If an address is malformed.
        """
        if not config.store:
            return None
        addresses = parse_addresses(config.store, "JITLTO_STORE")
        patience = patience if config.store_patience is None else config.store_patience
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
            for client in self._clients:
                client.open_soon()

    def get(self, kind: str, key: str) -> bytes | None:
        """Return the checked payload of an entry from the first store that has it; None if none has, in time."""
        return self.get_many(kind, (key,)).get(key)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the checked payloads of those entries that stores have, by key; they are read side by side."""
        missing = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        if self._is_usable():
            for place, client in enumerate(self._clients):
                if not missing:
                    break
                if client.address.reads:
                    for key, (payload, data) in client.get_many(kind, missing).items():
                        found[key] = payload
                        for earlier in self._clients[:place]:
                            if earlier.address.reads:
                                earlier.put_object(kind, key, data)
                    missing = [key for key in missing if key not in found]
        self._counters.add(hits=len(found), misses=len(missing))
        return found

    @property
    def takes_writes(self) -> bool:
        """Whether entries are written to a store, as far as is known yet."""
        return self._is_usable() and any(client.writes for client in self._clients)

    def put(
        self, kind: str, key: str, payload: bytes, lease: Lease | None = None, *, may_be_there: bool = False
    ) -> None:
        """Write an entry to every store that is written to, where there is none; later, and in the background.

        Args:
            kind, key, payload: The entry.
            lease: The right to make it, which ends when it is written.
            may_be_there: Whether nobody has asked the stores for it before.
        """
        if self._is_usable():
            for client in self._clients:
                names = lease.names if lease and lease.client is client else ()
                client.put(kind, key, payload, names, may_be_there)

    def lease(self, kind: str, key: str) -> Lease | None:
        """Return the right to make an entry, or None while somebody else has it.

        Without a store that could say, it is given at once: then several may make the same entry, which is never wrong.
        """
        if self._is_usable():
            for client in self._clients:
                if client.writes:
                    names = client.lease(lease_name(kind, key))
                    return None if names == () else Lease(client, names or ())
        return Lease()

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything is written or given up; return False if something is left after ``timeout`` seconds."""
        if not self._is_usable():
            return True
        end = None if timeout is None else time.monotonic() + timeout
        flushed = True
        for client in self._clients:
            flushed &= client.flush(None if end is None else max(0.0, end - time.monotonic()))
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
            for client in self._clients:
                client.finish(until, stall)

    @property
    def is_opening(self) -> bool:
        """Whether a store is still being opened: what was not found may be there."""
        return self._is_usable() and any(client.is_opening for client in self._clients if client.address.reads)

    @property
    def is_waited_for(self) -> bool:
        """Whether a store is still waited for: it has not failed."""
        return self._is_usable() and any(client.is_waited_for for client in self._clients)

    @property
    def statistics(self) -> StoreStatistics:
        """What the stores did until now."""
        return self._counters.snapshot()

    def _is_usable(self) -> bool:
        """Return whether this is the process that made the stores, and not one forked from it, where obstore hangs."""
        if self._pid == os.getpid():
            return True
        if not self._is_fork_logged:
            self._is_fork_logged = True
            import logging  # imported lazily: takes 2 ms, and few processes fork

            logging.getLogger(__name__).debug("shared stores are off in a forked process")
        return False

    def _at_exit(self) -> None:
        self.finish(_AT_EXIT)
