"""Readers wait for no private key, and whoever waits for anything hears of the end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores import opening
from jitlto.stores.address import StoreAddress
from jitlto.stores.keys import SigningKey
from jitlto.stores.messages import Messages
from jitlto.stores.opening import Opening
from jitlto.stores.trust import Trust
from tests.support.stores import write_key

ADDRESS = StoreAddress("s3://bucket", True, True)


class Store(Messages):
    """A store, and what is said about it while it is opened."""

    def __init__(self, trust: Trust) -> None:
        self.said: list[str] = []
        self.opening = Opening(ADDRESS, trust, 10, self)

    def warn(self, what: str, why: str, subject: str | None = None) -> None:
        self.said.append(what)


@pytest.fixture(autouse=True)
def backend(monkeypatch: pytest.MonkeyPatch) -> object:
    made = object()
    monkeypatch.setattr(opening, "open_backend", lambda address, *, timeout: made)
    return made


def test_readers_do_not_wait_for_the_private_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = write_key(tmp_path / "key")
    store, load, held = Store(Trust(True, tmp_path / "key.pub", key)), SigningKey.load, threading.Event()
    monkeypatch.setattr(SigningKey, "load", lambda path: held.wait(10) and load(path))
    loading = threading.Thread(target=lambda: (store.opening.prepare(), store.opening.load_signing_key()))
    loading.start()
    assert store.opening.prepared.wait(10)
    assert not store.opening.can_sign.is_set()
    held.set()
    loading.join()
    assert store.opening.can_sign.is_set()
    assert store.opening.key is not None
    assert store.said == []


def test_without_a_private_key_it_is_known_at_once_that_nothing_is_written(tmp_path: Path) -> None:
    write_key(tmp_path / "key")
    store = Store(Trust(True, tmp_path / "key.pub"))
    store.opening.prepare()
    assert store.opening.can_sign.is_set()
    assert (store.opening.reads, store.opening.writes) == (True, False)
    assert store.said == ["nothing is written"]


def test_a_key_that_readers_here_do_not_trust_is_said(tmp_path: Path) -> None:
    write_key(tmp_path / "other")
    store = Store(Trust(True, tmp_path / "other.pub", write_key(tmp_path / "key")))
    store.opening.prepare()
    store.opening.load_signing_key()
    store.opening.load_signing_key()
    assert store.said == ["what is written here is not read here"]


def test_whoever_waits_goes_on_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: StoreAddress, *, timeout: float) -> object:
        raise StoreError("no", code="store-settings")

    monkeypatch.setattr(opening, "open_backend", fail)
    store = Store(Trust(False))
    with pytest.raises(StoreError):
        store.opening.prepare()
    store.opening.finish()
    assert store.opening.prepared.is_set()
    assert store.opening.can_sign.is_set()
    assert store.opening.finished.is_set()
    assert store.opening.backend is None
