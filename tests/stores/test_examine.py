"""What is wrong with a store is said, with what to do about it, within a bound and without an exception."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jitlto.base.config import Config
from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress, parse_store
from jitlto.stores.artifacts import open_store
from jitlto.stores.backend import StoredObject
from jitlto.stores.examine import Finding, examine_store
from tests.support.store_server import fault_proxy
from tests.support.stores import config, write_key

pytestmark = pytest.mark.one_major

CHECKSUM = Config.read({"JITLTO_STORE_TRUST": "checksum"})
ADDRESS = StoreAddress("s3://bucket", writes=True)


class FakeStore:
    """A store with given faults: ``denied`` and ``lost`` methods, and a clock that is ahead."""

    def __init__(self, denied: tuple[str, ...] = (), *, ahead: float = 0.0, delay: float = 0.0) -> None:
        self.denied, self.ahead, self.delay = denied, ahead, delay
        self.objects: dict[str, StoredObject] = {}

    def _do(self, method: str) -> None:
        time.sleep(self.delay)
        if method in self.denied:
            raise StoreError("403 Forbidden", code="store-denied", where="s3://bucket", hint="ask for rights")

    def get(self, name: str) -> bytes | None:
        self._do("get")
        return b"" if name in self.objects else None

    def list(self, prefix: str = "") -> Iterator[StoredObject]:
        self._do("list")
        yield from self.objects.values()

    def put(self, name: str, data: bytes) -> None:
        self._do("put")
        if "lose" not in self.denied:
            self.objects[name] = StoredObject(name, len(data), int(time.time() + self.ahead))

    def head(self, name: str) -> StoredObject | None:
        self._do("head")
        return self.objects.get(name)

    def delete(self, name: str) -> None:
        self._do("delete")
        self.objects.pop(name, None)


def _examine(store: object, address: StoreAddress = ADDRESS, **how: Any) -> list[Finding]:
    return examine_store(address, CHECKSUM, open_store=lambda _: store, **how)  # type: ignore[arg-type,return-value]


def test_a_store_that_works_is_found_so_and_left_as_it_was(store_url: str) -> None:
    backend = open_store(parse_store(store_url, writes=True))
    backend.put("v1/kernels/ab/cd", b"payload")
    (found,) = examine_store(parse_store(store_url, writes=True), CHECKSUM)
    assert found.ok
    assert found.value.startswith(f"{store_url}: ")
    assert [each.name for each in backend.list()] == ["v1/kernels/ab/cd"]


@pytest.mark.parametrize(
    ("denied", "remedy"),
    [
        ("get", "ask for rights"),
        ("put", "s3://bucket#read"),
        ("delete", "ask for rights"),
        ("lose", "as soon as"),
    ],
)
def test_a_right_that_is_missing_is_named_with_its_remedy(denied: str, remedy: str) -> None:
    (finding,) = [each for each in _examine(FakeStore((denied,))) if not each.ok]
    assert remedy in (finding.remedy or "")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"fault": "status", "status": 403}, {"fault": "html"}, {"fault": "silent"}])
def test_a_server_that_fails_is_said_within_the_bound(fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with fault_proxy(None) as proxy:
        for name, value in proxy.variables.items():
            monkeypatch.setenv(name, value)
        proxy.set(**fault)
        begin = time.monotonic()
        found = examine_store(parse_store(proxy.url, writes=True), CHECKSUM)
    assert time.monotonic() - begin < 12
    assert not all(finding.ok for finding in found)
    assert all(finding.remedy for finding in found if not finding.ok)


def test_keys_are_examined_where_signatures_count(tmp_path: Path) -> None:
    key, other = write_key(tmp_path / "key"), write_key(tmp_path / "other")

    def wrong(writes: bool = True, **settings: object) -> list[str]:
        address = StoreAddress("s3://bucket", writes=writes)
        found = examine_store(address, config(**settings), open_store=lambda _: FakeStore())  # type: ignore[arg-type,return-value]
        assert all(each.remedy for each in found if not each.ok)
        return [f"{each.value} {each.remedy}" for each in found if not each.ok]

    assert wrong(trust="checksum") == []
    assert wrong(signers=f"{key}.pub", key=key) == []
    assert wrong(writes=False, signers=f"{key}.pub") == []
    for settings, word in (
        ({"key": key}, "JITLTO_STORE_SIGNERS"),
        ({"signers": f"{key}.pub"}, "JITLTO_STORE_KEY"),
        ({"signers": f"{key}.pub", "key": other}, "lacks the key"),
        ({"signers": tmp_path / "none", "key": key}, "cannot be read"),
        ({"signers": f"{key}.pub", "key": tmp_path / "none"}, "cannot be read"),
        ({"signers": key, "key": key}, "not a line of trusted keys"),
    ):
        (found,) = wrong(**settings)
        assert word in found


def test_a_directory_is_examined_as_programs_see_it(tmp_path: Path) -> None:
    """One that everybody may write to is not read by them, and none is made."""
    (directory := tmp_path / "store").mkdir()
    directory.chmod(0o777)
    address = parse_store(directory.as_uri())
    opened, reached = examine_store(address, config())
    (missing,) = examine_store(parse_store((tmp_path / "none").as_uri()), config())
    assert (opened.ok, reached.ok, missing.ok) == (False, True, False)
    assert "JITLTO_STORE_TRUST" in (opened.remedy or "")
    assert not (tmp_path / "none").exists()
    assert [each.ok for each in examine_store(address, CHECKSUM)] == [True]
