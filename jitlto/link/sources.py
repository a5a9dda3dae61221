"""Where linked kernels, and the look-ups that lead to them, lie: packs, the user's cache, shared stores.

Each place is a source of two verbs, and the sources of a process are one list, the nearest first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitlto.base.cached import cached_property

if TYPE_CHECKING:
    from typing import Protocol

    from jitlto.base.cache_dir import CacheDir
    from jitlto.base.config import Config
    from jitlto.stores.shared import SharedStore

    class KernelSource(Protocol):
        """A place where entries lie, by kind and SHA-256; what it returns is what was stored.

        Attributes:
            layer: ``pack``, ``disk`` or ``store``.
        """

        @property
        def layer(self) -> str: ...

        def find(self, digest: str, kind: str = ...) -> bytes | None:
            """Return an entry; None if it is missing or damaged."""

        def put(self, digest: str, payload: bytes, kind: str = ...) -> None:
            """Store an entry, if this place takes any."""


#: Kinds of entries: linked kernels, answers to requests, the contents of databases.
KERNELS, REQUESTS, CONTENTS = "kernels", "requests", "databases"


class Disk:
    """The user's cache."""

    layer = "disk"

    def __init__(self, store: CacheDir) -> None:
        self._store = store

    def find(self, digest: str, kind: str = KERNELS) -> bytes | None:
        """Return an entry; None if it is missing or damaged."""
        return self._store.get(kind, digest)

    def put(self, digest: str, payload: bytes, kind: str = KERNELS) -> None:
        """Store an entry, unless the cache is read-only."""
        self._store.put(kind, digest, payload)


class SharedKernels:
    """A process's shared stores, which are opened when they are first needed.

    Args:
        settings: They name at least one store.
        readonly: Whether nothing is written to them.
    """

    layer = "store"

    def __init__(self, settings: Config, *, readonly: bool = False) -> None:
        self._settings = settings
        self._readonly = readonly

    @cached_property
    def stores(self) -> SharedStore:
        """The stores.

        Raises:
            StoreError: If the address of one is malformed.
        """
        from jitlto.stores.shared import SharedStore  # 10 ms, for a kernel that is not on this machine

        stores = SharedStore.from_config(self._settings)
        assert stores is not None  # noqa: S101 - the settings name one
        return stores

    def find(self, digest: str, kind: str = KERNELS) -> bytes | None:
        """Return an entry; None if no store has it or can be used."""
        return self.stores.get(kind, digest)

    def put(self, digest: str, payload: bytes, kind: str = KERNELS) -> None:
        """Store an entry behind the caller's back."""
        if not self._readonly:
            self.stores.put(kind, digest, payload)
