"""The build cache: what compilers made, by fingerprint, shared between processes and checkouts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from jitlto import config
from jitlto.build.cache import keys
from jitlto.build.cache.keys import Recipe
from jitlto.build.compilers.compiled_source import Unit
from jitlto.errors import JitltoError
from jitlto.model.fragment import FragmentKey
from jitlto.storage.cache_dir import CacheDir, open_cache_dir

_MOST_MANIFESTS = 32  # header states remembered for one source
#: What reading a unit may end with that somebody else has put there.
NOT_A_UNIT = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, JitltoError)
_COSTS = keys.sha256(b"costs")


class Cache:
    """The build cache: compiled sources by key, costs and histories by fragment key, in a directory of the user's."""

    def __init__(self, store: CacheDir) -> None:
        self.store = store

    def find(self, first: str, recipe: Recipe) -> Unit | None:
        """The unit of a source whose headers are what they were when it was made."""
        for sha in self._manifests(first):
            manifest = self.store.get("headers", sha)
            if manifest is None or keys.sha256(manifest) != sha or not recipe.holds(sha, manifest):
                continue
            data = self.store.get("units", keys.second(first, sha))
            if data is not None:
                with contextlib.suppress(*NOT_A_UNIT):
                    return Unit.from_bytes(data)
        return None

    def keep(self, first: str, manifest: bytes, unit: Unit) -> None:
        """Store a unit under its fingerprint."""
        sha = keys.sha256(manifest)
        self.store.put("headers", sha, manifest)
        self.store.put("units", keys.second(first, sha), unit.to_bytes())
        known = [sha, *(other for other in self._manifests(first) if other != sha)]
        self.store.put("sources", first, keys.joined(known[:_MOST_MANIFESTS]))

    def costs(self) -> dict[str, float]:
        """Seconds that fragments took to compile, by the text of their keys."""
        data = self.store.get("costs", _COSTS)
        try:
            return {str(key): float(seconds) for key, seconds in json.loads(data or b"{}").items()}
        except (ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def record_costs(self, seconds: Mapping[str, float]) -> None:
        """Add to the costs."""
        if seconds:
            self.store.put("costs", _COSTS, json.dumps(self.costs() | dict(seconds), sort_keys=True).encode())

    def history(self, key: FragmentKey) -> dict[str, object] | None:
        """What a fragment was made from when it was last built with this cache."""
        data = self.store.get("history", keys.history_key(key))
        try:
            return dict(json.loads(data)) if data else None
        except (ValueError, TypeError, RecursionError):
            return None

    def record_history(self, key: FragmentKey, fields: Mapping[str, object]) -> None:
        """Keep what a fragment was made from."""
        self.store.put("history", keys.history_key(key), json.dumps(fields).encode())

    def _manifests(self, first: str) -> list[str]:
        data = self.store.get("sources", first)
        return data.decode("ascii", "replace").split("\n") if data else []


def open_cache(directory: Path | None = None) -> Cache | None:
    """The user's build cache, or the one below another cache directory; None if it cannot be used."""
    settings = config.current()
    store = open_cache_dir((directory or settings.cache_dir) / "build", settings.build_cache_size)
    return Cache(store) if store else None
