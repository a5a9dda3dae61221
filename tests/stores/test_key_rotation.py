"""Whose entries are read: two trusted keys while one replaces the other, revoked keys, stores without signatures."""

import hashlib
from pathlib import Path

import pytest

from tests.support.shared_stores import KeyPair, opened, signed, trust

KEY = hashlib.sha256(b"plan").hexdigest()


def store_in(directory: Path, **variables: str) -> dict[str, str]:
    """The settings of a store in a directory."""
    directory.mkdir(exist_ok=True)
    return {"JITLTO_STORE": directory.as_uri(), **variables}


def get(settings: dict[str, str], key: str = KEY) -> bytes | None:
    """What a fresh process with these settings reads."""
    with opened(settings) as stores:
        return stores.get("kernels", key)


def put(settings: dict[str, str], payload: bytes, key: str = KEY) -> None:
    """Write as a fresh process with these settings does."""
    with opened(settings) as stores:
        stores.put("kernels", key, payload)
        assert stores.flush(10)


def test_a_key_is_replaced_by_another_without_a_gap(tmp_path: Path) -> None:
    old, new = KeyPair.create(tmp_path / "old"), KeyPair.create(tmp_path / "new")
    signers = tmp_path / "signers"
    store = store_in(tmp_path / "store")
    later = hashlib.sha256(b"later").hexdigest()

    trust(signers, old)  # 1. one key
    put(store | signed(signers, old), b"kernel")
    assert get(store | signed(signers)) == b"kernel"

    trust(signers, old, new)  # 2. readers trust both
    assert get(store | signed(signers)) == b"kernel"
    put(store | signed(signers, new), b"later kernel", later)  # 3. writers sign with the new one
    assert get(store | signed(signers)) == b"kernel"
    assert get(store | signed(signers), later) == b"later kernel"

    trust(signers, new)  # 4. the old one is dropped: what it signed is a miss, and is written anew
    assert get(store | signed(signers)) is None
    assert get(store | signed(signers), later) == b"later kernel"
    put(store | signed(signers, new), b"kernel")  # also by a process that has not read it
    assert get(store | signed(signers)) == b"kernel"


def test_a_directory_that_everybody_may_write_to_is_not_read_unless_it_is_trusted_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_in(tmp_path / "a store")
    put(store, b"kernel")
    (tmp_path / "a store").chmod(0o1777)
    assert get(store) is None
    assert get(store) is None
    assert len([record for record in caplog.records if "JITLTO_STORE_TRUST" in record.getMessage()]) == 1
    assert get(store | {"JITLTO_STORE_TRUST": "checksum"}) == b"kernel"
    key = KeyPair.create(tmp_path / "key")
    put(store | signed(trust(tmp_path / "signers", key), key), b"signed kernel", "ab" * 32)
    assert get(store | signed(tmp_path / "signers"), "ab" * 32) == b"signed kernel"


def test_without_a_private_key_nothing_is_written_where_signatures_are_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store_in(tmp_path / "store")
    readers = signed(trust(tmp_path / "signers", KeyPair.create(tmp_path / "key")))
    with opened(store | readers) as stores:
        for number in range(3):
            stores.put("kernels", hashlib.sha256(b"%d" % number).hexdigest(), b"kernel")
        stores.flush(10)
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len([record for record in caplog.records if "JITLTO_STORE_KEY" in record.getMessage()]) == 1
