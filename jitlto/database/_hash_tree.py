"""The hash tree of a fragment database: rows in buckets, and hashes of buckets in nodes up to one root.

A row has a kind, a key and a record in JSON. Kind and key choose its bucket, the number of rows chooses how many
buckets there are, and a bucket is the JSON of its rows in order: so the tree depends on nothing but the rows. A node
holds the hashes of up to 64 buckets or nodes below; nodes are numbered from the top, level by level.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby, islice
from json.encoder import encode_basestring_ascii
from operator import itemgetter

FAN_OUT = 64
#: The bytes of one hash in a node.
HASH = 32
_ROWS_PER_BUCKET = 8
#: More rows than any bucket has that was filled by hash.
MOST_ROWS = 64
#: A row: kind, key and record.
Row = tuple[str, str, bytes]
# With its place, or with its bucket.
_Placed = tuple[int, str, str, bytes]
#: More rows than these are sorted on disk.
_MOST_IN_MEMORY = 1 << 14


def hash_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def sha256(data: bytes) -> str:
    return hash_of(data).hex()


def bucket_count(rows: int) -> int:
    """Return the number of buckets of so many rows: a power of two, with four to eight rows in each on average."""
    return 1 << max(0, (rows - 1) // _ROWS_PER_BUCKET).bit_length()


def bucket_of(kind: str, key: str, buckets: int) -> int:
    """Return the number of the bucket of a row."""
    return _place(kind, key) % buckets


def _place(kind: str, key: str) -> int:
    # 7 bytes, because SQLite's integers are signed.
    return int.from_bytes(hash_of(f"{kind} {key}".encode("utf-8", "surrogatepass"))[:7], "big")


def levels(buckets: int) -> list[int]:
    """Return the number of nodes of each level, the top first."""
    widths: list[int] = []
    below = buckets
    while not widths or below > 1:
        below = -(-below // FAN_OUT)
        widths.insert(0, below)
    return widths


def path_to(bucket: int, buckets: int) -> Iterator[tuple[int, int]]:
    """Yield the nodes above a bucket from the top down, each with the place in it of the hash of what is below."""
    widths = levels(buckets)
    first = 0
    for depth, width in enumerate(widths):
        below = bucket // FAN_OUT ** (len(widths) - depth - 1)
        yield first + below // FAN_OUT, below % FAN_OUT
        first += width


def make_nodes(hashes: Sequence[bytes]) -> list[bytes]:
    """Return all nodes above the buckets with these hashes, in the order of their numbers."""
    nodes: list[bytes] = []
    while not nodes or len(hashes) > 1:
        level = [b"".join(hashes[at : at + FAN_OUT]) for at in range(0, len(hashes), FAN_OUT)]
        nodes[:0] = level
        hashes = [hash_of(node) for node in level]
    return nodes


class SortedRows:
    """Rows in the order of their buckets, sorted on disk if they are many.

    Args:
        rows: In any order.
        in_memory: Never write to the disk.
    """

    def __init__(self, rows: Iterable[Row], *, in_memory: bool = False) -> None:
        placed = ((_place(kind, key), kind, key, record) for kind, key, record in rows)
        self._held = list(placed if in_memory else islice(placed, _MOST_IN_MEMORY))
        self._connection: sqlite3.Connection | None = None
        #: The number of rows.
        self.count = len(self._held)
        if not in_memory and self.count == _MOST_IN_MEMORY:
            self._sort_on_disk(placed)

    def _sort_on_disk(self, others: Iterable[_Placed]) -> None:
        # Without a name: in a temporary file, once it exceeds SQLite's cache.
        self._connection = connection = sqlite3.connect("", isolation_level=None)
        connection.executescript(
            "PRAGMA journal_mode=OFF; BEGIN; CREATE TABLE row(place INTEGER, kind TEXT, key TEXT, record BLOB)"
        )
        for several in (self._held, others):
            connection.executemany("INSERT INTO row VALUES (?, ?, ?, ?)", several)
        self._held.clear()
        self.count = connection.execute("SELECT count(*) FROM row").fetchone()[0]

    def buckets(self) -> Iterator[bytes]:
        """Yield all buckets in order; then the rows are gone."""
        buckets, number = bucket_count(self.count), 0
        for bucket, several in groupby(self._sorted(buckets - 1), itemgetter(0)):
            yield from (b"{}" for _ in range(number, bucket))
            yield _encode_bucket(several)
            number = bucket + 1
        yield from (b"{}" for _ in range(number, buckets))

    def _sorted(self, mask: int) -> Iterator[_Placed]:
        """Yield bucket, kind, key and record of all rows in that order."""
        if self._connection is None:
            held = [(place & mask, kind, key, record) for place, kind, key, record in self._held]
            self._held.clear()
            yield from sorted(held)
            return
        with closing(self._connection) as connection:
            query = "SELECT place & ? AS bucket, kind, key, record FROM row ORDER BY bucket, kind, key"
            yield from connection.execute(query, (mask,))


def _encode_bucket(rows: Iterable[_Placed]) -> bytes:
    kinds = []
    for kind, several in groupby(rows, itemgetter(1)):
        members = [f"{encode_basestring_ascii(key)}:{record.decode()}" for _, _, key, record in several]
        kinds.append(f"{encode_basestring_ascii(kind)}:{{{','.join(members)}}}")
    return f"{{{','.join(kinds)}}}".encode()
