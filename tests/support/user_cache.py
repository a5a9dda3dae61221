"""The user's cache of the default session, and the compiled sources in it."""

from jitlto.base.cache_dir import CacheDir
from jitlto.plan.user_code.compilation import ENTRIES
from jitlto.runtime import session


def user_cache() -> CacheDir:
    """Return the user's cache, which is not off."""
    store = session.default.kernel_cache.store
    assert store is not None
    return store


def source_keys(store: CacheDir) -> list[str]:
    """Return the keys of the compiled sources in a cache."""
    return [path.parent.name + path.name for path in (store.directory / ENTRIES).rglob("*") if path.is_file()]


def read_source(store: CacheDir, key: str) -> bytes:
    """Return the entry of a compiled source."""
    payload = store.get(ENTRIES, key)
    assert payload is not None
    return payload
