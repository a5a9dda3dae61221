"""What the settings trust: signatures everywhere but in directories, and nothing where keys are missing."""

from pathlib import Path

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress
from jitlto.stores.trust import is_signed, load_signers, load_signing_key, load_trusted
from tests.support.stores import config, write_key

BUCKET = StoreAddress("s3://bucket", writes=True)


@pytest.mark.parametrize(
    ("setting", "url", "signed"),
    [
        ("", "s3://bucket", True),
        ("", "https://host", True),
        ("", "file:///mnt", False),
        ("signed", "file:///mnt", True),
        ("checksum", "s3://bucket", False),
    ],
)
def test_what_has_to_be_signed(setting: str, url: str, signed: bool) -> None:
    assert is_signed(config(trust=setting), StoreAddress(url, writes=True)) is signed


def test_without_trusted_keys_nothing_is_read(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# none yet\n")
    malformed = tmp_path / "malformed"
    malformed.write_text("ssh-ed25519 AAAA\n")
    for signers in (None, empty, malformed, tmp_path / "missing"):
        with pytest.raises(StoreError):
            load_signers(signers)
    with pytest.raises(StoreError):
        load_trusted(config(), BUCKET)
    assert load_trusted(config(trust="checksum"), BUCKET) is None


def test_without_a_private_key_nothing_is_written_that_has_to_be_signed(tmp_path: Path) -> None:
    for settings in (config(), config(trust="checksum", key=tmp_path / "missing")):
        with pytest.raises(StoreError):
            load_signing_key(settings, BUCKET)
    assert load_signing_key(config(trust="checksum"), BUCKET) is None
    assert load_signing_key(config(key=write_key(tmp_path / "key")), BUCKET) is not None
