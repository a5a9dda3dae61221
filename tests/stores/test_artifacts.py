"""Files in a store, by content: what is pulled is what was pushed, or an error."""

import hashlib
import os
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.address import parse_store
from jitlto.stores.artifacts import MARK, pull, push
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.entry import object_name
from tests.support.errors import raises

DIGEST = "0a" * 32
LARGE = 24 << 20  # several parts of an upload, and many pieces of a download


@pytest.fixture
def backend(store_url: str) -> Backend:
    """An empty store."""
    return open_backend(parse_store(store_url, writes=True))


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _objects(backend: Backend) -> dict[str, int]:
    return {each.name: each.size for each in backend.list("v1/")}


@pytest.mark.parametrize("size", [0, 1, 5000, pytest.param(LARGE, marks=pytest.mark.slow)])
def test_a_file_comes_back_by_the_address_that_it_was_pushed_to(backend: Backend, tmp_path: Path, size: int) -> None:
    source = _file(tmp_path / "used.jsonl", os.urandom(size))
    address, *pushed = push(backend, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert (address.rpartition(MARK)[2], *pushed) == (digest, size, False)
    assert _objects(backend) == {object_name("artifacts", digest): size}
    assert push(backend, source) == (address, size, True)
    pull(address, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"conten", b"contenT", b"content "])
def test_other_content_is_never_pulled(backend: Backend, tmp_path: Path, damage: bytes) -> None:
    address = push(backend, _file(tmp_path / "a", b"content"))[0]
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
    address = push(backend, _file(tmp_path / "a", b"content"))[0]
    backend.put(object_name("artifacts", address.rpartition(MARK)[2]), page)
    with raises(StoreError, "store-failed", where=address, hint="HTTPS_PROXY"):
        pull(address, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("s3://bucket/prefix", "store-no-digest"),
        ("s3://bucket#read", "store-no-digest"),
        ("s3://bucket#sha256=", "store-no-digest"),
        (f"s3://bucket#sha256={DIGEST[1:]}", "store-no-digest"),
        (f"s3://bucket#sha256={DIGEST.upper()}", "store-no-digest"),
        (f"s3://bucket#sha256={DIGEST} s3://other", "store-no-digest"),
        (f"ftp://bucket#sha256={DIGEST}", "store-address"),
        (f"s3://a s3://b#sha256={DIGEST}", "store-address"),
        (f"#sha256={DIGEST}", "store-address"),
    ],
)
def test_an_address_without_one_digest_is_refused(text: str, code: str, tmp_path: Path) -> None:
    with raises(StoreError, code, hint="s"):
        pull(text, tmp_path / "file")
    assert not (tmp_path / "file").exists()
