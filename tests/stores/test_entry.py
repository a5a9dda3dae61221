"""Entries: what was encoded comes back, and nothing else is taken for it."""

import functools

import pytest
from hypothesis import strategies as st

from jitlto.base.errors import RejectedEntryError, StoreError
from jitlto.stores import entry
from jitlto.stores.signatures import SigningKey
from tests.support.errors import raises
from tests.support.stores import KEY, new_key, public_of

OURS, STRANGER = functools.cache(new_key), functools.cache(lambda: new_key())
payloads = st.binary(max_size=300)
kinds = st.sampled_from(["kernels", "compiled", "requests"])
keys = st.text("0123456789abcdef", min_size=3, max_size=64)


@pytest.fixture(params=["signed", "checksum"])
def key(request: pytest.FixtureRequest) -> SigningKey | None:
    return OURS() if request.param == "signed" else None


def test_every_change_of_one_byte_is_rejected(key: SigningKey | None) -> None:
    data = entry.encode("kernels", KEY, b"payload", key)
    for place in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= change
            assert_rejected(bytes(changed), key)


def test_every_truncation_and_extension_is_rejected(key: SigningKey | None) -> None:
    data = entry.encode("kernels", KEY, b"payload", key)
    for size in range(len(data)):
        assert_rejected(data[:size], key)
    for more in (b"\0", b"payload", data):
        assert_rejected(data + more, key)
        assert_rejected(more + data, key)


def test_where_signatures_are_required_an_unsigned_entry_is_rejected() -> None:
    data = entry.encode("kernels", KEY, b"payload", None)
    with raises(RejectedEntryError, "store-rejected", where=entry.object_name("kernels", KEY)) as caught:
        entry.decode("kernels", KEY, data, public_of(OURS()))
    assert "not signed" in caught.value.what


def test_a_signature_by_a_key_that_is_not_trusted_is_rejected() -> None:
    data = entry.encode("kernels", KEY, b"payload", STRANGER())
    with raises(RejectedEntryError, "store-rejected"):
        entry.decode("kernels", KEY, data, public_of(OURS()))
    forged = data.replace(STRANGER().id, OURS().id)
    with raises(RejectedEntryError, "store-rejected"):
        entry.decode("kernels", KEY, forged, public_of(OURS()))


def test_the_header_of_one_entry_does_not_go_with_the_payload_of_another() -> None:
    one, other = (entry.encode("kernels", KEY, payload, OURS()) for payload in (b"payload", b"another"))
    assert_rejected(one[: -len(b"payload")] + other[-len(b"another") :], OURS())


def assert_rejected(data: bytes, key: SigningKey | None, kind: str = "kernels", name: str = KEY) -> None:
    with raises(RejectedEntryError, "store-rejected", where=entry.object_name(kind, name)):
        entry.decode(kind, name, data, key and public_of(key))


def test_a_page_is_an_error_that_says_what_to_do() -> None:
    for data in (b"<!DOCTYPE html><html></html>", b"\n <?xml version='1.0'?>" + bytes(200)):
        with raises(StoreError, "store-failed", where=entry.object_name("kernels", KEY), hint="HTTPS_PROXY"):
            entry.decode("kernels", KEY, data, None)
    for data in (b"", b"not found"):
        with raises(RejectedEntryError, "store-rejected"):
            entry.decode("kernels", KEY, data, None)
