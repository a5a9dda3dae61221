"""Addresses of stores: what is accepted, what it means, and that an address parses back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import StoreError
from jitlto.stores.address import SCHEMES, StoreAddress, parse_addresses
from tests.support.errors import raises

names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1)
urls = st.builds(lambda scheme, parts: f"{scheme}://{'/'.join(parts)}", st.sampled_from(["s3", "gs", "az"]), st.lists(names, min_size=1)) | names.map("file:///{}".format)  # fmt: skip  # noqa: E501
purposes = st.sampled_from([(True, True), (True, False), (False, True)])


@pytest.mark.slow
@given(st.dictionaries(urls, purposes, max_size=4))
def test_addresses_parse_back(given: dict[str, tuple[bool, bool]]) -> None:
    addresses = tuple(StoreAddress(url, *purpose) for url, purpose in given.items())
    assert parse_addresses(" \n".join(map(str, addresses)), "X") == addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s3://bucket", ("s3://bucket", True, True)),
        ("s3://bucket/prefix/", ("s3://bucket/prefix", True, True)),
        ("gs://bucket/a/b#read", ("gs://bucket/a/b", True, False)),
        ("az://container/prefix#write", ("az://container/prefix", False, True)),
        ("file:///mnt/store", ("file:///mnt/store", True, True)),
        ("http://host:8080/path", ("http://host:8080/path", True, False)),
        ("https://host#read", ("https://host", True, False)),
    ],
)
def test_what_an_address_means(text: str, expected: tuple[str, bool, bool]) -> None:
    (address,) = parse_addresses(text, "X")
    assert (address.url, address.reads, address.writes) == expected
    assert parse_addresses(str(address), "X") == (address,)
    assert address.is_local == (address.scheme == "file")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("s3://a,s3://b", "white space"),
        ("/mnt/store", "write file:///mnt/store"),
        (f"s3://bucket/ci#sha256={'0' * 64}", "write s3://bucket/ci"),
    ],
)
def test_what_is_mistaken_for_an_address_gets_its_own_hint(text: str, hint: str) -> None:
    with raises(StoreError, "store-address", text, hint=hint):
        parse_addresses(text, "JITLTO_STORE")
    with raises(StoreError, "store-address", where=text) as caught:
        parse_addresses(text, text)
    assert text not in caught.value.what


def test_stores_keep_their_order() -> None:
    assert [each.scheme for each in parse_addresses("file:///a  s3://b\thttps://c", "X")] == ["file", "s3", "https"]
    assert parse_addresses(" \n", "X") == ()


@pytest.mark.parametrize(
    "text",
    [
        "bucket",
        "/mnt/store",
        "ftp://host",
        "S3://bucket",
        "s3://",
        "s3:///prefix",
        "file://mnt/store",
        "s3://bucket#readwrite",
        "s3://bucket#",
        "https://host/path#write",
        "https://user:password@host/path",
        "https://host/path?token=secret",
        "s3://bucket s3://bucket#read",
        "s3://bucket/\x00",
    ],
)
def test_what_is_no_address_is_an_error(text: str) -> None:
    with raises(StoreError, "store-address", where="pyproject.toml") as caught:
        parse_addresses(text, "pyproject.toml")
    assert "secret" not in str(caught.value)
    assert "password" not in str(caught.value)


def test_a_store_can_be_opened_for_reading_alone() -> None:
    (address,) = parse_addresses("s3://bucket", "X")
    assert address.only(writes=False) == StoreAddress("s3://bucket", True, False)
    assert set(SCHEMES) == {"s3", "gs", "az", "file", "http", "https"}
