"""How much a build took from each layer of the cache, and what that saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from jitlto.base.text import format_bytes
from jitlto.build.cache.cache import Cache


class Layer(StrEnum):
    """Where a compiled source came from: one of this build, the user's directory or a shared store."""

    MEMORY = "memory"
    DIRECTORY = "directory"
    STORE = "store"


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Fragments that were not compiled, by the layer that they came from, and the traffic with shared stores."""

    memory: int = 0
    directory: int = 0
    store: int = 0
    seconds_saved: float = 0.0  # of compiling, where it is known how long that took
    bytes_read: int = 0
    bytes_written: int = 0
    rejected: int = 0  # objects that were damaged, or not signed by a trusted key
    failures: int = 0  # requests that failed

    def describe_stores(self) -> Iterator[str]:
        """Describe what was taken from stores and written to them, if anything was."""
        if self.store:
            yield f"{self.store} from the store ({format_bytes(self.bytes_read)})"
            yield f"{self.seconds_saved:.0f} s of compiling saved"
        if self.bytes_written:
            yield f"{format_bytes(self.bytes_written)} written to it"


def find_use(layers: Mapping[Layer, int], seconds_saved: float, cache: Cache | None) -> CacheUse:
    """Return the use of a cache in a build that took so many fragments from each layer."""
    memory, directory, store = (layers.get(layer, 0) for layer in Layer)
    use = CacheUse(memory, directory, store, round(seconds_saved, 3))
    if cache is None or cache.shared is None:
        return use
    counts = cache.shared.stores.statistics
    return replace(
        use,
        bytes_read=counts.bytes_read,
        bytes_written=counts.bytes_written,
        rejected=counts.rejected,
        failures=counts.failures,
    )
