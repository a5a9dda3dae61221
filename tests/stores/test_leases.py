"""Leases: one machine has it, until it releases it or is taken for dead; then again only one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jitlto.base.errors import RejectedEntryError
from jitlto.stores import leases
from jitlto.stores.address import StoreAddress
from jitlto.stores.backend import Backend, open_backend
from tests.support.shared_stores import KeyPair

NAME = leases.lease_name("kernels", "0123")


@pytest.fixture
def backend(tmp_path: Path) -> Backend:
    return open_backend(StoreAddress(tmp_path.as_uri(), reads=True, writes=True), timeout=5)


def take(backend: Backend) -> tuple[str, ...] | None:
    return leases.take(backend, NAME, lambda: None)


def expire(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - leases.LEASE - 5,) * 2)


def test_one_has_the_lease_until_it_is_released(backend: Backend) -> None:
    taken = take(backend)
    assert taken
    assert take(backend) is None
    leases.release(backend, taken)
    assert take(backend)


def test_a_lease_that_ran_out_goes_to_one_alone_each_time(backend: Backend, tmp_path: Path) -> None:
    take(backend)
    for _ in range(3):
        expire(tmp_path)
        taken = take(backend)
        assert taken
        assert take(backend) is None
    leases.release(backend, taken)
    assert list(backend.list()) == []


def test_a_release_leaves_nothing_that_a_dead_holder_left(backend: Backend, tmp_path: Path) -> None:
    take(backend)
    expire(tmp_path)
    taken = take(backend)
    assert taken is not None
    leases.release(backend, taken)
    fresh = take(backend)
    assert fresh is not None
    assert len(fresh) == 1


def test_there_is_an_end_to_successors_and_none_to_leases(backend: Backend, tmp_path: Path) -> None:
    for _ in range(20):
        taken = take(backend)
        assert taken
        assert take(backend) is None
        expire(tmp_path)
    assert len(list(backend.list())) == len(taken) == 16
    leases.release(backend, taken)
    assert list(backend.list()) == []


def test_only_those_who_may_write_entries_make_others_wait(backend: Backend, tmp_path: Path) -> None:
    ours, stranger = KeyPair.create(tmp_path / "ours"), KeyPair.create(tmp_path / "stranger")
    trusts = ours.signing.public
    for key in (None, stranger.signing):
        taken = leases.take(backend, NAME, lambda: None, key)
        assert taken
        with pytest.raises(RejectedEntryError):
            leases.take(backend, NAME, lambda: None, ours.signing, trusts)
        leases.release(backend, taken)
    assert leases.take(backend, NAME, lambda: None, ours.signing, trusts)
    assert leases.take(backend, NAME, lambda: None, ours.signing, trusts) is None
