"""A database from a store is fetched once, by content, and opened from the user's cache from then on."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.base.user_caches import kept_databases
from jitlto.stores.address import parse_store
from jitlto.stores.artifacts import copy_of, open_store, push
from jitlto.stores.backend import Backend
from tests.support.errors import raises


@pytest.fixture
def backend(store_url: str) -> Backend:
    """An empty store."""
    return open_store(parse_store(store_url, writes=True))


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    """Of a user with an empty cache."""
    return Config.read({"JITLTO_CACHE_DIR": str(tmp_path / "cache")})


def _refuse_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Backend:
        raise AssertionError("a store was opened")

    monkeypatch.setattr("jitlto.stores.artifacts.open_backend", refuse)


def test_it_is_fetched_once_and_for_this_user_alone(
    backend: Backend, database: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = push(backend, database).address
    path = copy_of(address, settings)
    assert path.name == "database.fragdb"
    assert path.read_bytes() == database.read_bytes()
    assert {stat.S_IMODE(each.stat().st_mode) for each in _below(settings) if each.is_dir()} == {0o700}
    _refuse_stores(monkeypatch)
    assert copy_of(address, settings) == path
    assert copy_of(f"s3://elsewhere/{address[address.index('#') :]}", settings) == path  # the content is what counts


def _below(settings: Config) -> list[Path]:
    return [settings.cache_dir, *settings.cache_dir.rglob("*")]


@pytest.mark.parametrize("damage", ["cut", "gone", "empty"])
def test_a_copy_that_was_cut_off_is_fetched_again(
    backend: Backend, database: Path, settings: Config, damage: str
) -> None:
    address = push(backend, database).address
    path = copy_of(address, settings)
    if damage == "gone":
        path.unlink()
    else:
        os.truncate(path, 0 if damage == "empty" else 5000)
    assert copy_of(address, settings).read_bytes() == database.read_bytes()
    assert kept_databases(settings)[1].usage().entries == {"databases": 1}


def test_what_is_no_database_leaves_nothing(backend: Backend, tmp_path: Path, settings: Config) -> None:
    (other := tmp_path / "used.jsonl").write_bytes(b"recorded plans")
    with raises(DatabaseError, "database-foreign", hint="jitlto pull"):
        copy_of(push(backend, other).address, settings)
    assert [path for path in _below(settings) if path.is_file() and path.suffix != ".lock"] == []


def test_a_copy_is_found_in_a_cache_that_can_only_be_read(
    backend: Backend, database: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = push(backend, database).address
    path = copy_of(address, settings)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode == os.R_OK)  # root may write everywhere
    assert copy_of(address, settings) == path
    with raises(JitltoError, "jitlto-unusable-cache", where="fetched"):
        copy_of(address[:-64] + "0" * 64, settings)
