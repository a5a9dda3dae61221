"""Callers' device code, compiled once per content: what a process has compiled, others find in the user's cache.

Entries are JSON by the SHA-256 of all that determines them. What cannot be read back is a miss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from jitlto.storage.cache_dir import CacheDir

ENTRIES = "sources"


def find(store: CacheDir | None, recipe: Mapping[str, object]) -> dict[str, object] | None:
    """What was kept for a recipe, None if nothing was or it cannot be read."""
    if store is None:
        return None
    key = _key(recipe)
    payload = store.get(ENTRIES, key)
    try:
        found = json.loads(payload) if payload is not None else None
    except (ValueError, RecursionError):
        return None
    # The key stands in the entry too: a file may have been given another's name.
    if not isinstance(found, dict) or found.get("key") != key or not isinstance(found.get("entry"), dict):
        return None
    entry: dict[str, object] = found["entry"]
    return entry


def keep(store: CacheDir | None, recipe: Mapping[str, object], entry: Mapping[str, object]) -> None:
    """Keep what a recipe made, for other processes; both are plain JSON values."""
    if store is None or store.readonly:
        return
    key = _key(recipe)
    store.put(ENTRIES, key, json.dumps({"key": key, "entry": entry}, sort_keys=True).encode())
    store.prune_if_due()


def _key(recipe: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
