"""The hash tree: made of nothing but the rows, and no row can be moved, removed, repeated or added unnoticed."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.database import FragmentDatabase, writer
from jitlto.database import _hash_tree as hash_tree
from jitlto.database._hash_tree import (
    FAN_OUT,
    HASH,
    SortedRows,
    bucket_count,
    bucket_of,
    hash_of,
    levels,
    make_nodes,
    path_to,
    sha256,
)
from jitlto.database._serialization import encode
from jitlto.runtime.family import load
from tests.support.errors import raises
from tests.support.fuzz_targets import rows, with_rows


@pytest.mark.slow
@given(st.integers(0, 20), st.data())
def test_the_path_to_a_bucket_leads_to_its_hash(exponent: int, data: st.DataObject) -> None:
    buckets = 1 << exponent
    widths = levels(buckets)
    assert widths[0] == 1
    assert widths[-1] == -(-buckets // FAN_OUT)
    bucket = data.draw(st.integers(0, buckets - 1))
    path = list(path_to(bucket, buckets))
    assert len(path) == len(widths) <= 4
    assert [number for number, _ in path] == sorted(number for number, _ in path)
    assert all(number < sum(widths) and place < FAN_OUT for number, place in path)


@pytest.mark.parametrize("buckets", [1, 2, 64, 128, 4096, 8192])
def test_every_bucket_can_be_checked_from_the_top(buckets: int) -> None:
    hashes = [hash_of(str(number).encode()) for number in range(buckets)]
    nodes = make_nodes(hashes)
    assert len(nodes) == sum(levels(buckets))
    for bucket in {0, 1, 63, 64, buckets // 2, buckets - 1} & set(range(buckets)):
        expected = hash_of(nodes[0])
        for number, place in path_to(bucket, buckets):
            assert hash_of(nodes[number]) == expected
            expected = nodes[number][place * HASH : (place + 1) * HASH]
        assert expected == hashes[bucket]


def test_a_bucket_holds_few_rows() -> None:
    assert [bucket_count(rows) for rows in (0, 1, 8, 9, 16, 17, 100_000)] == [1, 1, 1, 2, 2, 4, 16384]


def test_many_rows_are_sorted_on_disk_as_few_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ["é\U00010000\uffff"[: number % 4] + str(number) for number in range(100)]
    rows = [(kind, key, b"0") for kind in ("a", "b") for key in keys]
    expected = list(SortedRows(rows).buckets())
    monkeypatch.setattr(hash_tree, "_MOST_IN_MEMORY", 10)
    assert list(SortedRows(rows).buckets()) == list(SortedRows(rows, in_memory=True).buckets()) == expected


@pytest.mark.slow
@settings(max_examples=50)
@given(
    st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.text(max_size=3)), st.integers(), max_size=60),
    st.randoms(),
)
def test_buckets_depend_on_nothing_but_the_rows(rows: dict[tuple[str, str], int], random: Any) -> None:
    listed = [(kind, key, str(value).encode()) for (kind, key), value in rows.items()]
    made = list(SortedRows(listed).buckets())
    random.shuffle(listed)
    assert list(SortedRows(listed).buckets()) == made
    assert len(made) == bucket_count(len(rows))
    found = {}
    for number, text in enumerate(made):
        for kind, several in json.loads(text).items():
            assert list(several) == sorted(several)
            assert {bucket_of(kind, key, len(made)) for key in several} == {number}
            found |= {(kind, key): value for key, value in several.items()}
    assert found == rows


# --- forged trees, whose hashes are right ---


class Forged(SortedRows):
    """Buckets made by hand."""

    def __init__(self, buckets: list[dict[str, Any]], count: int) -> None:
        self.count, self._made = count, buckets

    def buckets(self) -> Iterator[bytes]:
        return (json.dumps(each, sort_keys=True, separators=(",", ":")).encode() for each in self._made)


def holder(buckets: list[dict[str, Any]], kind: str) -> tuple[int, str]:
    """The first bucket that holds a row of a kind, and the row's key."""
    return next((number, min(rows[kind])) for number, rows in enumerate(buckets) if rows.get(kind))


def move(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(buckets: list[dict[str, Any]]) -> None:
        number, key = holder(buckets, kind)
        buckets[number ^ 1].setdefault(kind, {})[key] = buckets[number][kind].pop(key)

    return change


def repeat(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(buckets: list[dict[str, Any]]) -> None:
        number, key = holder(buckets, kind)
        buckets[number ^ 1].setdefault(kind, {})[key] = buckets[number][kind][key]

    return change


def remove(kind: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(buckets: list[dict[str, Any]]) -> None:
        number, key = holder(buckets, kind)
        del buckets[number][kind][key]

    return change


def edit(kind: str, **changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(buckets: list[dict[str, Any]]) -> None:
        number, key = holder(buckets, kind)
        assert buckets[number][kind][key].keys() >= changes.keys()
        buckets[number][kind][key].update(changes)

    return change


def swap(buckets: list[dict[str, Any]]) -> None:
    buckets[0], buckets[1] = buckets[1], buckets[0]


def add(buckets: list[dict[str, Any]]) -> None:
    buckets[0]["other"] = {"key": {}}


def miscount(_: list[dict[str, Any]]) -> None:
    """The rows are right, and their number in the root is one too many."""


KINDS = ("family", "fragment", "shapes", "entrypoints", "symbol")


@pytest.mark.parametrize(
    "change",
    [
        *(make(kind) for make in (move, repeat, remove) for kind in KINDS),
        edit("shapes", shapes=[]),
        edit("entrypoints", count=99),
        edit("entrypoints", keys=[]),
        edit("symbol", keys=[[7, ["float"]]], shapes=[7], count=1),
        edit("symbol", keys=[[0, []]], shapes=[0], count=1),
        edit("symbol", keys=[], shapes=[], count=0),
        swap,
        add,
        miscount,
    ],
)
def test_a_forged_tree_is_found_by_verifying_and_never_crashes_a_plan(
    mini_path: Path, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    with closing(sqlite3.connect(mini_path)) as connection:
        buckets = [json.loads(text) for (text,) in connection.execute("SELECT rows FROM bucket ORDER BY number")]
        blobs = dict(connection.execute("SELECT sha256, data FROM blob"))
    number = sum(len(several) for kinds in buckets for several in kinds.values())
    change(buckets)
    path = tmp_path / "forged.fragdb"
    writer._fill(path, {}, ("mini",), Forged(buckets, number + (change is miscount)), blobs)
    with raises(DatabaseError, "database-damaged"), FragmentDatabase(path) as database:
        database.verify()
    try:
        load("mini", path).plan(arch="sm_90", data_type="float")
    except JitltoError as error:
        assert str(path) in str(error) or error.code.startswith("plan-")


def test_rows_that_are_piled_up_in_one_bucket_are_refused(mini_path: Path, tmp_path: Path) -> None:
    """Each of a hundred look-ups would read all of them."""
    bucket: dict[str, Any] = {"more": {f"{number} symbol mini f": {"keys": []} for number in range(100)}}
    for kind, key, record in rows(mini_path):
        bucket.setdefault(kind, {})[key] = record
    path = tmp_path / "forged.fragdb"
    writer._fill(path, {}, ("mini",), Forged([bucket], 1), {})
    with raises(DatabaseError, "database-damaged", "too many rows"):
        load("mini", path)


@pytest.mark.parametrize(("more", "on_opening"), [(1, False), (FAN_OUT * HASH, True)])
def test_a_node_holds_nothing_but_hashes(mini_path: Path, tmp_path: Path, more: int, on_opening: bool) -> None:
    path = Path(shutil.copy(mini_path, tmp_path / "forged.fragdb"))
    with closing(sqlite3.connect(path)) as connection, connection:
        (node,) = connection.execute("SELECT hashes FROM node WHERE number = 0").fetchone()
        (root,) = connection.execute("SELECT value FROM meta WHERE name = 'root'").fetchone()
        root = encode(json.loads(root) | {"tree": sha256(node + bytes(more))}).decode()
        connection.execute("UPDATE node SET hashes = ? WHERE number = 0", (node + bytes(more),))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'root'", (root,))
        connection.execute("UPDATE meta SET value = ? WHERE name = 'digest'", (sha256(root.encode()),))
    with FragmentDatabase(path) as database, raises(DatabaseError, "database-damaged", "node"):
        database.families["mini"] if on_opening else database.verify()


def test_a_record_with_a_field_of_a_later_version_is_no_damage(mini_path: Path, tmp_path: Path) -> None:
    content = rows(mini_path)
    for kind, _, record in content:
        if kind in ("family", "fragment"):
            record["later"] = 1
    path = Path(shutil.copy(mini_path, tmp_path / "later.fragdb"))
    with_rows(path, content)
    with FragmentDatabase(mini_path) as plain, FragmentDatabase(path) as database:
        assert database.verify() == plain.verify()
        assert database.fragments() == plain.fragments()
