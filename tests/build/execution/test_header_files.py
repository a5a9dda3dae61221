"""Headers in files: what is read is what was written, and each content is there once."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.build.execution.header_files import HeaderFiles, read_headers
from jitlto.record.headers import HeaderSet, digest_headers
from tests.support.errors import raises

SETS = st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=4)


def size(directory: Path) -> int:
    return (directory / "headers").stat().st_size


@given(st.lists(SETS, max_size=5))
def test_every_set_is_read_as_it_was_written(sets: list[dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = HeaderFiles(Path(directory))
        digests = [files.write(each) for each in sets]
        assert digests == [digest_headers(each) for each in sets]
        for digest, headers in zip(digests, sets, strict=True):
            found = read_headers(directory, digest)
            assert found == headers
            assert found.hashes == HeaderSet(headers).hashes
        if sets:
            assert size(Path(directory)) == sum(map(len, {data for each in sets for data in each.values()}))


def test_a_name_may_be_any_that_a_file_has(tmp_path: Path) -> None:
    headers = {os.fsdecode(b"\xff.cuh"): b"1", 'a"b\n': b"2"}
    assert read_headers(str(tmp_path), HeaderFiles(tmp_path).write(headers)) == headers


def test_threads_write_at_the_same_time(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    sets = [{"common": b"c" * 1000, f"{n % 20}.cuh": b"%d" % (n % 20) * 100} for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(files.write, sets))
    assert [read_headers(str(tmp_path), digest) for digest in digests] == sets


def test_a_full_disk_is_an_error_and_leaves_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = HeaderFiles(tmp_path)
    first: Mapping[str, bytes] = {"a": b"first"}
    digest = files.write(first)

    def full(path: Path, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, raises(JitltoError, code="jitlto-no-temporary-directory"):
        patch.setattr(Path, "write_text", full)
        files.write({"a": b"second"})
    again = files.write({"a": b"third", "b": b"first"})
    assert read_headers(str(tmp_path), digest) == first
    assert read_headers(str(tmp_path), again) == {"a": b"third", "b": b"first"}
    assert size(tmp_path) == len(b"firstthird")
