"""Files in a store, by content: what is pulled is what was pushed, or an error."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import MARK, parse_store
from jitlto.stores.artifacts import Pushed, open_store, pull, push
from jitlto.stores.backend import Backend
from jitlto.stores.entry import object_name
from jitlto.stores.upkeep import examine
from tests.support.errors import raises
from tests.support.store_server import Server

LARGE = 24 << 20  # several parts of an upload, and many pieces of a download


@pytest.fixture
def backend(store_url: str) -> Backend:
    """An empty store."""
    return open_store(parse_store(store_url, writes=True))


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _objects(backend: Backend) -> dict[str, int]:
    return {each.name: each.size for each in backend.list("v1/")}


@pytest.mark.parametrize("size", [0, 1, 5000, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_a_file_comes_back_by_the_address_that_it_was_pushed_to(backend: Backend, tmp_path: Path, size: int) -> None:
    source = _file(tmp_path / "used.jsonl", os.urandom(size))
    pushed = push(backend, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert (pushed.address.rpartition(MARK)[2], pushed.size, pushed.was_there) == (digest, size, False)
    assert _objects(backend) == {object_name("artifacts", digest): size}
    assert push(backend, source) == Pushed(pushed.address, size, was_there=True)
    pull(pushed.address, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"conten", b"contenT", b"content "])
def test_other_content_is_never_pulled(backend: Backend, tmp_path: Path, damage: bytes) -> None:
    address = push(backend, _file(tmp_path / "a", b"content")).address
    backend.put(object_name("artifacts", address.rpartition(MARK)[2]), damage)
    target = _file(tmp_path / "target", b"as it was")
    with raises(StoreError, "store-digest", address.rpartition(MARK)[2]):
        pull(address, target)
    assert target.read_bytes() == b"as it was"
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a", "target"]


@pytest.mark.parametrize("page", [b"<html></html>", b"\xef\xbb\xbf\r\n <!DOCTYPE html>"])
def test_a_page_in_place_of_an_artifact_sends_to_the_proxy_and_removes_nothing(
    backend: Backend, tmp_path: Path, page: bytes
) -> None:
    address = push(backend, _file(tmp_path / "a", b"content")).address
    backend.put(object_name("artifacts", address.rpartition(MARK)[2]), page)
    with raises(StoreError, "store-digest", address.rpartition(MARK)[2], hint="HTTPS_PROXY"):
        pull(address, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_the_store_lacks_is_an_error_that_names_the_address(backend: Backend, tmp_path: Path) -> None:
    backend.put("v1/kernels/a", b"")
    address = f"{backend.address.url}{MARK}{'0' * 64}"
    with raises(StoreError, "store-no-such-artifact", address):
        pull(address, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.slow
def test_a_missing_bucket_is_said_and_not_a_missing_file(
    s3: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By transfers, and by doctor, which does not say first that it can be read."""
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    address = f"s3://nobucket/ci#sha256={'0' * 64}"
    with raises(StoreError, "store-no-such-bucket"):
        pull(address, tmp_path / "out")
    ((_, remedy),) = examine(
        parse_store("s3://nobucket/ci", writes=False), Config.read({"JITLTO_STORE_TRUST": "checksum"})
    )
    assert "bucket" in (remedy or "")
