"""Linked kernels in shared stores: the last place to look for one, and leases, so that a fleet links each kernel once.

A lease is an object that a store creates for one machine alone. It only saves work, and never decides whether a kernel
is right: a process that has waited long enough for another machine links the kernel itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jitlto.plan.cache_entry import LinkedKernel, LinkKey

if TYPE_CHECKING:
    from jitlto.base.config import Config
    from jitlto.stores.shared import Lease, SharedStores

_ENTRIES = "kernels"  # the kind of object
_PATIENCE = 30.0  # seconds that a process waits in vain for other machines, in all: three leases
_POLLS = (0.01, 0.25)  # seconds: the first and the longest pause between two look-ups
_LEASE_POLL = 1.0  # seconds between two requests for a lease that another machine has


class SharedKernels:
    """The linked kernels in a process's shared stores, which are opened when they are first needed.

    Args:
        settings: They name at least one store.
        readonly: Whether nothing is written to them.
    """

    def __init__(self, settings: Config, *, readonly: bool = False) -> None:
        self._settings = settings
        self._readonly = readonly
        self._stores: SharedStores | None = None
        self._patience = _PATIENCE

    @property
    def stores(self) -> SharedStores:
        """The stores.

        Raises:
            StoreError: If the address of one is malformed.
        """
        if self._stores is None:
            from jitlto.stores.shared import SharedStores  # 10 ms, for a kernel that is not on this machine

            self._stores = SharedStores.from_config(self._settings)
            assert self._stores is not None  # noqa: S101 - the settings name one
        return self._stores

    def find(self, digest: str) -> LinkedKernel | None:
        """Look a kernel up by digest; None if no store has it or can be used."""
        begin = time.perf_counter()
        payload = self.stores.get(_ENTRIES, digest)
        return None if payload is None else LinkedKernel.decode(digest, payload, time.perf_counter() - begin, "store")

    def put(self, key: LinkKey, kernel: LinkedKernel, lease: Lease | None = None) -> None:
        """Store a kernel behind the caller's back, and release a lease after that."""
        if not self._readonly:
            self.stores.put(_ENTRIES, key.digest, key.encode(kernel), lease)

    def get_or_link(self, key: LinkKey, link: Callable[[], LinkedKernel]) -> tuple[LinkedKernel, float]:
        """Find a kernel, or link and store it. Of the machines that request it at the same time, one links it.

        Returns:
            kernel (LinkedKernel)
            waited (float): Seconds spent waiting for another machine.
        """
        found, lease, waited = self._find_or_lease(key.digest)
        if found is not None:
            return found, waited
        try:
            kernel = link()
        except BaseException:
            if lease is not None:
                lease.release()
            raise
        self.put(key, kernel, lease)
        return kernel, waited

    def _find_or_lease(self, digest: str) -> tuple[LinkedKernel | None, Lease | None, float]:
        """Return a kernel, or a lease if there is none, and the seconds of waiting for another machine."""
        found = self.find(digest)
        if found is not None or self._readonly or self._patience <= 0:
            return found, None, 0.0
        begin = asked = time.perf_counter()
        lease, pause, waited = self.stores.lease(_ENTRIES, digest), _POLLS[0], 0.0
        while lease is None and waited < self._patience:
            time.sleep(pause)
            pause = min(2 * pause, _POLLS[1])
            found = self.find(digest)
            now = time.perf_counter()
            waited = now - begin
            if found is not None:
                return found, None, waited
            if now - asked > _LEASE_POLL or not self.stores.is_waited_for:  # its holder, or the store, may have died
                lease, asked = self.stores.lease(_ENTRIES, digest), now
        self._patience -= waited
        if lease is not None and lease.client is not None:
            # Another machine may have stored the kernel and released its lease between the look-up and the lease,
            # or while this one waited for an answer.
            found = self.find(digest)
            if found is not None:
                lease.release()
        return found, lease, waited
