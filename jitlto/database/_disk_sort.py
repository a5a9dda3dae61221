"""Sorting of more records than memory should hold: by SQLite, in a temporary file once they exceed its cache."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing

from jitlto.record.fragment import FragmentKey


def sort_on_disk(records: Iterable[tuple[FragmentKey, bytes]]) -> Iterator[bytes]:
    """Yield records in the order of their keys; all are read before the first.

    Raises:
        sqlite3.Error: If the temporary file cannot be written.
    """
    with closing(sqlite3.connect("", isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode=OFF; BEGIN; CREATE TABLE item(place BLOB, record BLOB)")
        connection.executemany("INSERT INTO item VALUES (?, ?)", ((_place(key), record) for key, record in records))
        for (record,) in connection.execute("SELECT record FROM item ORDER BY place"):
            yield record


def _place(key: FragmentKey) -> bytes:
    """Return bytes that sort as keys do."""
    texts = (key.family, key.group, *(text for parameter in key.parameters for text in parameter))
    return b"\0\0".join(text.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\1") for text in texts)
