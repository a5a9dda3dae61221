"""Linked kernels in shared stores: the last place to look for one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jitlto.plan.cache_entry import LinkedKernel, LinkKey

if TYPE_CHECKING:
    from jitlto.base.config import Config
    from jitlto.stores.shared import SharedStores

_ENTRIES = "kernels"  # the kind of object


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

    def put(self, key: LinkKey, kernel: LinkedKernel) -> None:
        """Store a kernel behind the caller's back."""
        if not self._readonly:
            self.stores.put(_ENTRIES, key.digest, key.encode(kernel))

    def get_or_link(self, key: LinkKey, link: Callable[[], LinkedKernel]) -> LinkedKernel:
        """Find a kernel, or link and store it."""
        kernel = self.find(key.digest)
        if kernel is None:
            kernel = link()
            self.put(key, kernel)
        return kernel
