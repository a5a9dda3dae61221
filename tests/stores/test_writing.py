"""Entries are written where no good one is, and what is there is not read whole to see that."""

from __future__ import annotations

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores import entry
from jitlto.stores.backend import REFRESH_AFTER, Backend, StoredObject
from jitlto.stores.writing import refresh, write
from tests.support.stores import KEY

NAME = entry.object_name("kernels", KEY)
GOOD = entry.encode("kernels", KEY, b"linked" * 1000, None)


class Objects(Backend):
    """A store in memory that counts what it sends."""

    def __init__(self, there: bytes | None = None) -> None:
        self.held = {} if there is None else {NAME: there}
        self.sent = 0
        self.modified = 0.0

    def put(self, name: str, data: bytes, *, if_absent: bool = False) -> bool:
        if if_absent and name in self.held:
            return False
        self.held[name] = data
        return True

    def start(self, name: str, size: int) -> tuple[bytes, int] | None:
        data = self.held.get(name)
        self.sent += size if data else 0
        return (data[:size], len(data)) if data is not None else None

    def head(self, name: str) -> StoredObject | None:
        return StoredObject(name, len(self.held[name]), self.modified) if name in self.held else None


def test_an_entry_is_written_where_none_is() -> None:
    store = Objects()
    assert write(store, "kernels", KEY, GOOD, None)
    assert store.held == {NAME: GOOD}
    assert store.sent == 0


def test_of_an_entry_that_is_there_only_the_header_is_read() -> None:
    store = Objects(there=entry.encode("kernels", KEY, bytes(100_000), None))
    before = dict(store.held)
    assert not write(store, "kernels", KEY, GOOD, None)
    assert store.held == before
    assert store.sent <= entry.MOST_HEADER_BYTES


@pytest.mark.parametrize("there", [b"", b"<html>", GOOD[:-1], entry.encode("kernels", KEY[::-1], b"", None)])
def test_what_readers_would_reject_is_replaced(there: bytes) -> None:
    store = Objects(there=there)
    assert write(store, "kernels", KEY, GOOD, None)
    assert store.held == {NAME: GOOD}


def test_what_was_read_and_rejected_is_replaced_whatever_its_header_says() -> None:
    store = Objects(there=GOOD[:-1] + b"?")
    assert write(store, "kernels", KEY, GOOD, None, replace=True)
    assert store.held == {NAME: GOOD}


@pytest.mark.parametrize("there", [None, GOOD])
def test_a_store_without_conditional_writes_is_written_too(there: bytes | None) -> None:
    class Unconditional(Objects):
        def put(self, name: str, data: bytes, *, if_absent: bool = False) -> bool:
            if if_absent:
                raise StoreError("not implemented", code="store-unsupported")
            return super().put(name, data)

    store = Unconditional(there)
    assert write(store, "kernels", KEY, GOOD, None) == (there is None)
    assert store.held == {NAME: GOOD}


@pytest.mark.parametrize(("age", "is_written"), [(0.0, False), (REFRESH_AFTER - 60, False), (REFRESH_AFTER + 60, True)])
def test_the_date_of_last_use_is_right_to_a_day(age: float, is_written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Objects(there=b"old")
    monkeypatch.setattr("jitlto.stores.writing.time.time", lambda: age)
    refresh(store, NAME, b"new")
    assert (store.held[NAME] == b"new") == is_written


def test_what_was_deleted_meanwhile_is_not_written_again() -> None:
    store = Objects()
    refresh(store, NAME, b"new")
    assert store.held == {}
