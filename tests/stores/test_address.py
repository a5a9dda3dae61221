"""Addresses of stores: what is accepted and what it means."""

import pytest

from jitlto.base.errors import StoreError
from jitlto.stores.address import StoreAddress, parse_store
from tests.support.errors import raises

DIGEST = "0a" * 32


@pytest.mark.parametrize(
    ("text", "url", "writes"),
    [
        ("s3://bucket", "s3://bucket", True),
        ("s3://bucket/prefix/", "s3://bucket/prefix", True),
        ("gs://bucket/a/b#read", "gs://bucket/a/b", False),
        ("az://container/prefix", "az://container/prefix", True),
        ("file:///mnt/store", "file:///mnt/store", True),
        ("file:///", "file:///", True),
        ("http://host:8080/path", "http://host:8080/path", False),
        ("https://host#read", "https://host", False),
    ],
)
def test_what_an_address_means(text: str, url: str, writes: bool) -> None:
    address = parse_store(text)
    assert address == StoreAddress(url, writes)
    assert (address.directory is not None) == url.startswith("file")
    assert parse_store(text, writes=False) == StoreAddress(url, writes=False)
    if not writes:
        with raises(StoreError, "store-address", "only be read"):
            parse_store(text, writes=True)


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
        "s3://bucket#write",
        "s3://bucket#",
        "https://user:password@host/path",
        "https://host/path?token=secret",
        "s3://bucket s3://other",
        "s3://a,s3://b",
        "s3://bucket/\x00",
        f"s3://bucket#sha256={DIGEST}",
    ],
)
def test_what_is_no_address_is_an_error(text: str) -> None:
    for where in ("pyproject.toml", ""):
        with raises(StoreError, "store-address", hint="s3://bucket/prefix") as caught:
            parse_store(text, where)
        assert "secret" not in str(caught.value)
        assert "password" not in str(caught.value)
    with raises(StoreError, "store-address", where="pyproject.toml"):
        parse_store(text, "pyproject.toml")
