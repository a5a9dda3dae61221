"""The upkeep of a store: what is used stays, what is damaged is found, and nothing else is touched."""

import hashlib
import os
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores import upkeep
from jitlto.stores.address import StoreAddress, parse_store
from jitlto.stores.backend import Backend, open_backend
from jitlto.stores.entry import encode, object_name
from jitlto.stores.signatures import SigningKey, TrustedKeys
from jitlto.stores.upkeep import Damage
from tests.support.errors import raises
from tests.support.stores import config, public_of, write_key

DAY = 86400.0
NOW = float(int(time.time()))


@pytest.fixture
def backend(store_url: str) -> Backend:
    """An empty store."""
    return open_backend(parse_store(store_url, writes=True))


def verified(backend: Backend, trusted: TrustedKeys | None, *, delete: bool = False) -> list[Damage]:
    """What is wrong with a store."""
    return [found for found in upkeep.verify(backend, trusted, delete=delete) if found is not None]


class DatedStore:
    """A store in a directory, whose objects get the dates that a test gives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.backend = open_backend(StoreAddress(directory.as_uri(), writes=True), makes=True)

    def put(self, name: str, data: bytes, days: float) -> str:
        """Write an object that is some days old."""
        self.backend.put(name, data)
        os.utime(self.directory / name, (NOW - days * DAY,) * 2)
        return name

    def entry(self, number: int, days: float, kind: str = "kernels", size: int = 100) -> str:
        """Write an entry."""
        key = hashlib.sha256(b"%d" % number).hexdigest()
        return self.put(object_name(kind, key), bytes(size), days)

    def artifact(self, data: bytes, days: float) -> str:
        """Write an artifact; returns its digest."""
        digest = hashlib.sha256(data).hexdigest()
        self.put(object_name("artifacts", digest), data, days)
        return digest

    @property
    def names(self) -> set[str]:
        """All objects."""
        return {each.name for each in self.backend.list()}


@pytest.fixture
def dated(tmp_path: Path) -> DatedStore:
    """An empty store."""
    return DatedStore(tmp_path / "dated")


CHECKSUM = Config.read({"JITLTO_STORE_TRUST": "checksum"})


class FakeStore:
    """A store in which one method is denied, or which loses what is written."""

    def __init__(self, denied: str = "") -> None:
        self.denied, self.objects = denied, dict[str, bytes]()

    def _do(self, method: str) -> None:
        if method == self.denied:
            raise StoreError("403 Forbidden", code="store-denied", where="s3://bucket", hint="ask for rights")

    def get(self, name: str) -> bytes | None:
        self._do("get")
        return self.objects.get(name)

    def put(self, name: str, data: bytes) -> None:
        self._do("put")
        self.objects[name] = data

    def delete(self, name: str) -> None:
        self._do("delete")
        del self.objects[name]


def wrong(store: FakeStore, settings: Config, *, writes: bool = True) -> list[str]:
    """What is wrong with a store, each with its remedy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "open_backend", lambda _: store)
        found = list(upkeep.examine(StoreAddress("s3://bucket", writes), settings))
    return [f"{value} {remedy}" for value, remedy in found if remedy is not None]


def test_a_store_that_works_is_found_so_and_left_as_it_was(backend: Backend) -> None:
    backend.put("v1/kernels/ab/cd", b"payload")
    ((value, remedy),) = upkeep.examine(backend.address, CHECKSUM)
    assert remedy is None
    assert value == f"{backend.address.url}: can be read and written"
    assert [each.name for each in backend.list()] == ["v1/kernels/ab/cd"]


@pytest.mark.parametrize(
    ("denied", "remedy"),
    [
        ("get", "ask for rights"),
        ("put", "s3://bucket#read"),
        ("delete", "ask for rights"),
    ],
)
def test_a_right_that_is_missing_is_named_with_its_remedy(denied: str, remedy: str) -> None:
    (said,) = wrong(FakeStore(denied), CHECKSUM)
    assert remedy in said


def test_keys_are_examined_where_signatures_count(tmp_path: Path) -> None:
    key = write_key(tmp_path / "key")
    assert wrong(FakeStore(), config(signers=f"{key}.pub", key=key)) == []
    assert wrong(FakeStore(), config(signers=f"{key}.pub"), writes=False) == []
    for settings, word in (
        ({"key": key}, "JITLTO_STORE_SIGNERS"),
        ({"signers": f"{key}.pub"}, "JITLTO_STORE_KEY"),
        ({"signers": tmp_path / "none", "key": key}, "cannot be read"),
        ({"signers": f"{key}.pub", "key": tmp_path / "none"}, "cannot be read"),
        ({"signers": key, "key": key}, "not a line of trusted keys"),
    ):
        (said,) = wrong(FakeStore(), config(**settings))
        assert word in said


def test_it_is_measured_by_kind_with_dates(dated: DatedStore) -> None:
    dated.entry(1, 5)
    dated.entry(2, 3, size=7)
    dated.entry(3, 1, kind="compiled")
    dated.put("v1/else", b"?", 2)
    dated.put("unrelated", b"not below v1", 2)
    measured = upkeep.measure(dated.backend)
    assert {kind: (each.objects, each.size) for kind, each in measured.items()} == {
        "compiled": (1, 100),
        "kernels": (2, 107),
    }
    assert (measured["kernels"].oldest, measured["kernels"].newest) == (NOW - 5 * DAY, NOW - 3 * DAY)


def test_what_is_old_goes(dated: DatedStore) -> None:
    old, young = dated.entry(1, 31), dated.entry(2, 29)
    removed, left = upkeep.prune(dated.backend, older_than=30 * DAY)
    assert dated.names == {young}
    assert ([each.name for each in removed], [each.name for each in left]) == ([old], [young])


@pytest.mark.parametrize("room", [0, 99, 100, 299, 300, 1000])
def test_the_oldest_go_until_the_rest_fits(dated: DatedStore, room: int) -> None:
    by_age = [dated.entry(number, days) for number, days in ((1, 9), (2, 1), (3, 5))]
    _, left = upkeep.prune(dated.backend, size=room)
    kept = min(3, room // 100)
    newest_first = [by_age[1], by_age[2], by_age[0]]
    assert dated.names == set(newest_first[:kept])
    assert {each.name for each in left} == dated.names


def test_pushed_files_and_foreign_objects_are_left_alone(dated: DatedStore) -> None:
    kept = {dated.put(name, b"", 900) for name in ("v1/readme", "v1/kernels/ab/short", "other/file")}
    kept.add(object_name("artifacts", dated.artifact(b"a database", 400)))
    removed, _ = upkeep.prune(dated.backend, older_than=0, size=0)
    assert dated.names == kept
    assert removed == []


_SIGNATURE = ("sign", "trusted")  # words of the reasons that are about signatures


def _key() -> SigningKey:
    return SigningKey(Ed25519PrivateKey.generate())


def _fill(backend: Backend, signing: SigningKey) -> dict[str, str]:
    """Put good objects and bad ones; returns the names of the bad ones and a word of the reason."""
    digests = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(6)]
    good = encode("kernels", digests[0], b"payload", signing)
    data = b"a database"
    sha = hashlib.sha256(data).hexdigest()
    objects = {
        object_name("kernels", digests[0]): (good, ""),
        object_name("kernels", digests[1]): (good, "of another name"),  # an old entry under another name
        object_name("kernels", digests[2]): (encode("kernels", digests[2], b"payload", None), "sign"),
        object_name("kernels", digests[3]): (encode("kernels", digests[3], b"payload", _key()), "trusted"),
        object_name("compiled", digests[4]): (encode("compiled", digests[4], b"payload", signing)[:-1], ""),
        object_name("compiled", digests[5]): (b"?", ""),
        object_name("artifacts", sha): (data, ""),
        object_name("artifacts", "0" * 64): (data, sha),
    }
    for name, (content, _) in objects.items():
        backend.put(name, content)
    intact = {object_name("kernels", digests[0]), object_name("artifacts", sha)}
    return {name: word for name, (_, word) in objects.items() if name not in intact}


def test_everything_that_is_not_what_its_name_says_is_found_and_removed(backend: Backend) -> None:
    key = _key()
    bad = _fill(backend, key)
    before = {each.name for each in backend.list()}
    found = verified(backend, public_of(key))
    assert {each.name for each in found} == set(bad)
    assert [each.reason for each in found if bad[each.name] not in each.reason] == []
    assert {each.name for each in backend.list()} == before
    unsigned = {name for name, word in bad.items() if word in _SIGNATURE}
    removed = verified(backend, public_of(key), delete=True)
    assert {each.name for each in removed if each.removed} == set(bad) - unsigned
    assert {each.name for each in removed if not each.removed} == unsigned
    assert {each.name for each in verified(backend, public_of(key))} == unsigned


def test_wrong_trusted_keys_remove_nothing(backend: Backend) -> None:
    signing, digests = _key(), [hashlib.sha256(b"%d" % number).hexdigest() for number in range(3)]
    for digest in digests:
        backend.put(object_name("kernels", digest), encode("kernels", digest, b"payload", signing))
    found = verified(backend, public_of(_key()), delete=True)
    assert [each.removed for each in found] == [False] * 3
    assert verified(backend, public_of(signing)) == []


def test_pages_in_place_of_objects_remove_nothing(backend: Backend) -> None:
    key = _key()
    digest = hashlib.sha256(b"").hexdigest()
    backend.put(object_name("kernels", digest), encode("kernels", digest, b"payload", key))
    backend.put(object_name("artifacts", digest), b"")
    with pytest.MonkeyPatch.context() as patch, raises(StoreError, "store-failed", hint="HTTPS_PROXY"):
        patch.setattr(Backend, "get", lambda *_: b"<html>Sign in</html>")
        verified(backend, public_of(key), delete=True)
    assert verified(backend, public_of(key)) == []


def test_a_store_that_fails_in_the_middle_ends_the_work(dated: DatedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not fail for each of the objects that are left."""
    for number in range(200):
        dated.entry(number, 50)
    asked: list[str] = []

    def fail(_: Backend, name: str) -> None:
        asked.append(name)
        time.sleep(0.001)
        raise StoreError("it is gone", code="store-unreachable")

    for method, work in (
        ("get", lambda: verified(dated.backend, None)),
        ("delete", lambda: upkeep.prune(dated.backend, older_than=DAY)),
    ):
        asked.clear()
        with monkeypatch.context() as patch, raises(StoreError, "store-unreachable"):
            patch.setattr(Backend, method, fail)
            work()
        assert len(asked) < 150
