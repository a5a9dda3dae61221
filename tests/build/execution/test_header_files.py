"""Headers in files: what is read is what was written, and each content is there once."""

from __future__ import annotations

import errno
import os
import pickle
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import JitltoError
from jitlto.build.execution.header_files import HeaderFiles, SentHeaders, names_of
from jitlto.record.headers import HeaderSet, digest_headers
from tests.support.errors import raises

SETS = st.dictionaries(st.text(max_size=3), st.binary(max_size=3), max_size=4)


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir() if path.suffix != ".set")


def received(sent: SentHeaders) -> HeaderSet:
    found = pickle.loads(pickle.dumps(sent))  # noqa: S301
    assert isinstance(found, HeaderSet)
    return found


@given(st.lists(SETS, max_size=5))
def test_every_set_is_read_as_it_was_written(sets: list[dict[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = HeaderFiles(Path(directory))
        for sent, headers in zip([files.send(each) for each in sets], sets, strict=True):
            assert received(sent) == headers
        if sets:
            assert size(Path(directory)) == sum(map(len, {data for each in sets for data in each.values()}))


def test_a_name_may_be_any_that_a_file_has(tmp_path: Path) -> None:
    headers = {os.fsdecode(b"\xff.cuh"): b"1", 'a"b\n': b"2"}
    assert received(HeaderFiles(tmp_path).send(headers)) == headers


def test_another_program_sends_only_what_is_lacking(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    files.send({"a": b"first"})
    headers = {"a": b"first", "b": b"second"}
    names = names_of(headers)
    assert files.lacking(names.values()) == {names["b"]}
    files.add({names["b"]: b"second"})
    assert not files.lacking(names.values())
    assert received(files.join(digest_headers(headers), names)) == headers


def test_threads_write_at_the_same_time(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    sets = [{"common": b"c" * 1000, f"{n % 20}.cuh": b"%d" % (n % 20) * 100} for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(files.send, sets))
    assert list(map(received, sent)) == sets


def test_a_full_disk_is_an_error_and_leaves_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = HeaderFiles(tmp_path)
    first: Mapping[str, bytes] = {"a": b"first"}
    sent = files.send(first)

    def full(path: Path, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, raises(JitltoError, code="jitlto-no-temporary-directory"):
        patch.setattr(Path, "write_bytes", full)
        files.send({"a": b"second"})
    again = files.send({"a": b"third", "b": b"first"})
    assert received(sent) == first
    assert received(again) == {"a": b"third", "b": b"first"}
    assert size(tmp_path) == len(b"firstthird")
