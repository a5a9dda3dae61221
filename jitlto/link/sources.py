"""Where linked kernels, and the look-ups that lead to them, lie: packs, the user's cache, shared stores.

Each place is a source of two verbs, and the sources of a process are one list, looked into in this order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from jitlto.base.config import Config
    from jitlto.stores.shared import SharedStore

    class KernelSource(Protocol):
        """A place where entries lie, by kind and SHA-256; what it returns is what was stored.

        Attributes:
            layer: ``pack``, ``disk`` or ``store``.
        """

        @property
        def layer(self) -> str: ...

        def get(self, kind: str, key: str) -> bytes | None:
            """Return an entry; None if it is missing or damaged."""

        def put(self, kind: str, key: str, payload: bytes) -> None:
            """Store an entry, if this place takes any."""


T = TypeVar("T")
_PATIENCE = 0.05  # seconds that a process loses at most by waiting for a store that fails
#: Kinds of entries: linked kernels, answers to requests, the contents of databases.
KERNELS, REQUESTS, CONTENTS = "kernels", "requests", "databases"


def find_first(
    sources: Iterable[KernelSource], kind: str, digest: str, decode: Callable[[bytes, str], T | None]
) -> T | None:
    """Return what the first place holds that has an entry which decodes, with its layer; None if none has."""
    for source in sources:
        payload = source.get(kind, digest)
        if payload is not None and (found := decode(payload, source.layer)) is not None:
            return found
    return None


def put_all(sources: Iterable[KernelSource], kind: str, digest: str, payload: bytes) -> None:
    """Store an entry in each place that takes any."""
    for source in sources:
        source.put(kind, digest, payload)


def open_shared(settings: Config, patience: float = _PATIENCE) -> SharedStore | None:
    """Return the shared store of a process, which is not asked anything yet; None if the settings name none.

    They may have another patience; see :class:`~jitlto.stores.shared.SharedStore`.

    Raises:
        StoreError: If its address is malformed.
    """
    if not settings.store:
        return None
    from jitlto.stores.shared import store_of  # 10 ms, for a kernel that is not on this machine

    return store_of(settings, patience if settings.store_patience is None else settings.store_patience)
