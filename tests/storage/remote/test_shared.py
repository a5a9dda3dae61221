"""Stores as both wings use them: what is found, what is trusted, what it costs when a store fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.errors import StoreError
from jitlto.storage.remote.shared import SharedStores
from jitlto.storage.remote.trust import Trust
from tests.support.errors import raises
from tests.support.stores import KEY, config, directory_store, write_key

pytest.importorskip("obstore")


def test_without_a_setting_there_are_no_stores() -> None:
    assert SharedStores.from_config(config()) is None


def test_a_wrong_address_is_an_error_at_once() -> None:
    with raises(StoreError, "store-address", where="JITLTO_STORE"):
        SharedStores.from_config(config(**{"": "ftp://host"}))


def test_the_same_settings_give_the_same_stores(tmp_path: Path) -> None:
    settings = config(**{"": f"file://{tmp_path}"})
    assert SharedStores.from_config(settings) is SharedStores.from_config(settings)


def test_what_one_process_writes_another_reads(tmp_path: Path) -> None:
    writer, reader = directory_store(tmp_path), directory_store(tmp_path)
    assert writer.get("kernels", KEY) is None
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert reader.get("kernels", KEY) == b"linked"
    assert reader.get("compiled", KEY) is None
    assert (reader.statistics.hits, reader.statistics.misses) == (1, 1)
    assert writer.statistics.writes == 1


def test_signed_entries_are_read_by_those_who_trust_the_key(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key")
    trust = Trust(True, tmp_path / "key.pub", key)
    writer = directory_store(tmp_path / "store", trust)
    writer.put("kernels", KEY, b"linked")
    assert writer.flush(10)
    assert directory_store(tmp_path / "store", Trust(True, tmp_path / "key.pub")).get("kernels", KEY) == b"linked"
    write_key(tmp_path / "other")
    reader = directory_store(tmp_path / "store", Trust(True, tmp_path / "other.pub"))
    assert reader.get("kernels", KEY) is None
    assert reader.statistics.rejected == 1


def test_a_lease_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    one, other = directory_store(tmp_path), directory_store(tmp_path)
    lease = one.lease("kernels", KEY)
    assert lease is not None
    assert other.lease("kernels", KEY) is None
    lease.release()
    assert one.flush(10)
    assert other.lease("kernels", KEY) is not None
