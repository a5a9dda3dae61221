"""Shared stores in the memory of one process, which count what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jitlto.stores.shared import SharedStore as Base
else:
    Base = object  # without its threads


class MemoryStores(Base):
    """Objects by kind and key, written once."""

    def __init__(self, objects: dict[tuple[str, str], bytes] | None = None) -> None:
        self.objects = dict(objects or {})
        self.asked: list[list[tuple[str, str]]] = []  # by round trip
        self.is_read_only = False
        self.counts = Counter()
        self.writes: Counter[tuple[str, str]] = Counter()

    def copy(self) -> MemoryStores:
        """Return stores with the same objects."""
        return MemoryStores(self.objects)

    def get_many(self, kind: str, keys: Iterable[str]) -> dict[str, bytes]:
        names = [(kind, key) for key in keys]
        if names:
            self.asked.append(names)
        return {key: self.objects[kind, key] for kind, key in names if (kind, key) in self.objects}

    @property
    def takes_writes(self) -> bool:
        return not self.is_read_only

    def put(self, kind: str, key: str, payload: bytes) -> None:
        if (kind, key) not in self.objects:
            self.objects[kind, key] = payload
            self.writes[kind, key] += 1

    def flush(self, timeout: float, stall: float | None = None) -> bool:
        """Nothing is left to be written."""
        return True
