"""Stored entries: what is read is what was written under the same name, or nothing."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base import entry
from jitlto.base.cache_dir import CacheDir

KEY = "ab" * 32
NAME = f"kernels/{KEY}"


@given(st.binary(max_size=500), st.text(max_size=50))
def test_an_entry_is_read_back_by_its_name_and_schema_alone(payload: bytes, name: str) -> None:
    data = entry.encode(name, payload)
    assert entry.decode(name, data) == payload
    assert entry.decode(name + "x", data) is None
    assert entry.decode(name, data, schema=2) is None
    assert entry.decode(name, entry.encode(name, payload, schema=2), schema=2) == payload


@given(st.data())
def test_a_bit_less_or_another_is_a_miss(data: st.DataObject) -> None:
    whole = entry.encode(NAME, b"some payload")
    cut = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[cut] ^= 1 << data.draw(st.integers(0, 7))
    for wrong in (whole[:cut], bytes(flipped), whole + b"x"):
        assert entry.decode(NAME, wrong) is None


def test_a_head_says_what_follows_it() -> None:
    data = entry.encode(NAME, b"payload", sign=lambda head: hashlib.sha256(head).digest(), size=32)
    head = entry.Head(data[:-7])
    assert (head.name, head.schema, head.payload_size) == (NAME.encode(), 1, 7)
    assert head.signature == hashlib.sha256(head.signed).digest()
    assert data[head.size :] == b"payload"
    assert entry.decode(NAME, data) is None  # signed ones are those of stores
    with pytest.raises(ValueError, match="not an entry"):
        entry.Head(b"<html>")


@pytest.mark.parametrize(
    "earlier",
    [b"jitlto store 1\n" + hashlib.sha256(b"payload").digest() + b"payload", b"jitlto entry 1\n" + b"\0" * 90],
)
def test_an_entry_of_an_earlier_form_is_a_miss_without_a_word_and_is_replaced(
    tmp_path: Path, earlier: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 20)
    store.put("kernels", KEY, b"payload")
    path = Path(store._path("kernels", KEY))
    path.write_bytes(earlier)
    assert store.get("kernels", KEY) is None
    assert caplog.text == ""
    store.put("kernels", KEY, b"payload")
    assert store.get("kernels", KEY) == b"payload"
