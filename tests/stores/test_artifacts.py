"""Files in a store, by content: what is pulled is what was pushed, or an error."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores import artifacts
from jitlto.stores.address import MARK, parse_store
from jitlto.stores.artifacts import decode_index, encode_index, open_store, pull, push
from jitlto.stores.backend import Backend
from jitlto.stores.entry import object_name
from tests.support.errors import raises

pytestmark = pytest.mark.one_major

DAY = 86400.0
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
    assert pull(pushed.address, tmp_path / "copy") == [tmp_path / "copy"]
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()


def test_pushing_again_sends_nothing_until_the_object_is_a_day_old(backend: Backend, tmp_path: Path) -> None:
    source = _file(tmp_path / "a", b"content")
    first = push(backend, source)
    (held,) = backend.list("v1/")
    for age, refreshed in ((0.9 * DAY, False), (1.1 * DAY, True)):
        sent = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Backend, "put", lambda _, name, data, sent=sent: sent.append((name, data)))
            patch.setattr(artifacts.time, "time", lambda age=age: held.modified + age)
            again = push(backend, source)
        assert (again.was_there, again.address) == (True, first.address)
        assert sent == ([(held.name, b"content")] if refreshed else [])


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


def test_a_database_goes_with_the_packs_beside_it_and_takes_its_new_name(backend: Backend, tmp_path: Path) -> None:
    database = _file(tmp_path / "search.fragdb", b"a database")
    for name in ("search.pack", "search.sm_90.pack", "other.pack"):
        _file(tmp_path / name, name.encode())
    index, *members = artifacts.push_with_packs(backend, database)
    assert [each.path.name for each in members] == ["search.fragdb", "search.pack", "search.sm_90.pack"]
    assert len(_objects(backend)) == 4
    (tmp_path / "copy").mkdir()
    written = pull(index.address, tmp_path / "copy" / "mine.fragdb")
    assert {path.name: path.read_bytes() for path in written} == {
        "mine.fragdb": b"a database",
        "mine.pack": b"search.pack",
        "mine.sm_90.pack": b"search.sm_90.pack",
    }
    again = artifacts.push_with_packs(backend, database)
    assert [each.address for each in again] == [each.address for each in (index, *members)]
    assert all(each.was_there for each in again)


def test_a_database_is_as_it_was_if_a_pack_of_it_is_damaged(backend: Backend, tmp_path: Path) -> None:
    database, pack = _file(tmp_path / "a.fragdb", b"a database"), _file(tmp_path / "a.pack", b"a pack")
    index, _, packed = artifacts.push_with_packs(backend, database)
    backend.put(object_name("artifacts", packed.address.rpartition(MARK)[2]), b"A pack")
    database.write_bytes(b"as it was")
    pack.unlink()
    with raises(StoreError, "store-digest", packed.address.rpartition(MARK)[2]):
        pull(index.address, database)
    assert database.read_bytes() == b"as it was"
    assert not pack.exists()


@pytest.mark.parametrize(
    "names", [["../a.fragdb"], [".pack"], [], [".fragdb", "b.pack"], [".fragdb", ".a/../x.pack"], [".fragdb", ".so"]]
)
def test_an_index_names_files_beside_each_other_and_no_others(names: list[str]) -> None:
    listed = {".fragdb": "0" * 64, ".pack": "1" * 64, ".b.pack": "2" * 64}
    assert decode_index(encode_index(listed)) == listed
    assert decode_index(encode_index(dict.fromkeys(names, "0" * 64))) is None
