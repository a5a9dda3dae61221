"""The user's caches: looking at them creates nothing, and entries can be removed."""

import os
from pathlib import Path

import pytest

from jitlto.base.errors import JitltoError
from jitlto.base.user_caches import UserCache, user_caches
from tests.support.errors import raises


@pytest.fixture
def cache(tmp_path: Path) -> UserCache:
    return UserCache("cubins", "linked kernels", tmp_path / "cache" / "cubins", 1 << 20)


def test_the_caches_follow_the_settings(empty_cache: Path) -> None:
    assert [(each.name, each.directory) for each in user_caches()] == [
        ("cubins", empty_cache / "cubins"),
        ("build", empty_cache / "build"),
    ]


def test_looking_at_a_cache_does_not_make_it(cache: UserCache) -> None:
    assert (cache.problem(), cache.usage().entries) == (None, {})
    assert cache.prune(-1) == 0
    assert not cache.directory.exists()


def test_a_cache_is_cleared_or_pruned_to_a_bound(cache: UserCache) -> None:
    directory = cache.open()
    for key in ("ab", "cd", "ef"):
        directory.put("kernels", key * 32, b"payload")
    size = cache.usage().size
    assert (cache.prune(), cache.usage().size) == (0, size)
    assert cache.prune(size - 1) == 1
    assert cache.prune(-1) == 2
    assert cache.usage().size == 0


def test_a_directory_that_cannot_be_used_is_an_error_that_names_it(
    cache: UserCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.directory.parent.mkdir()
    cache.directory.touch()
    assert "is not a directory" in str(cache.problem())
    with raises(JitltoError, "jitlto-unusable-cache", where="cubins", hint="JITLTO_CACHE_DIR"):
        cache.open()
    cache.directory.unlink()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written" in str(cache.problem())
    with raises(JitltoError, "jitlto-unusable-cache", "cannot be written"):
        cache.open()
