"""Lock files: equal ones make equal bytes, they merge, and what is none is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import StoreError
from jitlto.stores.lock_file import LockFile, is_lock_file
from tests.support.errors import raises

_DIGESTS = st.integers(0, 50).map(lambda number: f"{number:064x}")
_TABLES = st.dictionaries(_DIGESTS, st.text(max_size=5), max_size=5)
_LOCKS = st.builds(LockFile, st.sampled_from(["a", "Production-1.0_x"]), _TABLES, _TABLES)
SMALL = LockFile("production", {"a" * 64: "search.fragdb"}, {"b" * 64: "search/kernel for sm_90"})


@settings(max_examples=20)
@given(_LOCKS)
def test_a_lock_file_reads_back_as_what_was_written(lock: LockFile) -> None:
    data = lock.encode()
    assert LockFile.decode(data, "x") == lock
    assert LockFile.decode(data, "x").encode() == data


@settings(max_examples=20)
@given(_LOCKS, _LOCKS)
def test_merged_lock_files_hold_what_each_holds_in_any_order(one: LockFile, other: LockFile) -> None:
    merged = LockFile.merged("both", [one, other])
    assert merged.artifacts.keys() == one.artifacts.keys() | other.artifacts.keys()
    assert merged.kernels.keys() == one.kernels.keys() | other.kernels.keys()
    assert merged.kernels.keys() == LockFile.merged("both", [other, one]).kernels.keys()


def test_one_line_for_each_digest_in_order() -> None:
    lines = LockFile("p", {"b" * 64: "b", "a" * 64: "a"}).encode().decode().splitlines()
    assert lines[4:6] == [f'    "{"a" * 64}": "a",', f'    "{"b" * 64}": "b"']


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a b", "ä", "-x", "a" * 101])
def test_a_name_is_one_that_an_object_of_a_store_can_have(name: str) -> None:
    with raises(StoreError, "store-lock-name", hint="--name"):
        LockFile(name)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        SMALL.encode()[:-3],
        SMALL.encode().replace(b"a" * 64, b"a" * 63),
        SMALL.encode().replace(b'"kernels"', b'"kernel"'),
        json.dumps({"jitlto_lock": 1, "name": "a", "artifacts": [], "kernels": {}}).encode(),
    ],
)
def test_what_is_no_lock_file_is_an_error_that_names_it(data: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "jitlto.lock").write_bytes(data)
    with raises(StoreError, "store-lock-malformed", where="jitlto.lock"):
        LockFile.read(path)


def test_one_of_a_newer_version_is_not_understood_in_part(tmp_path: Path) -> None:
    (path := tmp_path / "jitlto.lock").write_bytes(SMALL.encode().replace(b'"jitlto_lock": 1', b'"jitlto_lock": 2'))
    with raises(StoreError, "store-lock-schema", where="jitlto.lock"):
        LockFile.read(path)
    with raises(StoreError, "store-lock-unreadable", where="none"):
        LockFile.read(tmp_path / "none")


def test_it_is_recognised_by_its_beginning(tmp_path: Path) -> None:
    for data, expected in ((SMALL.encode(), True), (b'{"jitlto_lock":9', True), (b'{"arch": "sm_90"}', False)):
        (path := tmp_path / "file").write_bytes(data)
        assert is_lock_file(path) is expected
