"""A container of Azure is a store like others; against Microsoft's emulator, where it is installed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress, parse_store
from jitlto.stores.backend import Backend, open_backend
from tests.support.azurite import azurite
from tests.support.errors import raises
from tests.support.shared_stores import KeyPair, opened, signed, trust

pytestmark = pytest.mark.slow
KEY = hashlib.sha256(b"kernel").hexdigest()


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with azurite(tmp_path_factory.mktemp("azurite")) as found:
        yield found


@pytest.fixture
def store(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Backend:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return open_backend(parse_store(variables["JITLTO_STORE"]), timeout=10)


def test_objects_are_put_read_listed_and_deleted(store: Backend) -> None:
    assert store.get("a/b") is None
    store.put("a/b", b"data")
    assert store.get("a/b") == b"data"
    store.put("a/b", b"new")
    assert [(found.name, found.size) for found in store.list("a/")] == [("a/b", 3)]
    store.delete("a/b")
    store.delete("a/b")
    assert list(store.list("a/")) == []


def test_large_objects_are_written_and_read(store: Backend) -> None:
    data = bytes(range(256)) * (20 << 12)
    store.put("large", data)
    assert store.get("large") == data


@pytest.mark.usefixtures("store")
def test_a_missing_container_is_no_missing_object() -> None:
    missing = open_backend(StoreAddress("az://elsewhere/store", writes=True), timeout=10)
    for request in (lambda: missing.put("a", b""), lambda: missing.delete("a"), lambda: list(missing.list())):
        with raises(StoreError, "store-no-such-bucket"):
            request()


def test_entries_are_signed_and_shared(variables: dict[str, str], tmp_path: Path) -> None:
    key = KeyPair.create(tmp_path / "key")
    settings = variables | signed(trust(tmp_path / "signers", key), key, patience=10)
    with opened(settings) as first:
        first.put("kernels", KEY, b"linked")
        assert first.flush(10)
        with opened(settings) as second:
            assert second.get("kernels", KEY) == b"linked"
        assert first.counts["writes"] == 1
