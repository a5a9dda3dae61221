"""The rows of a stored fragment database, each checked up to the root of the hash tree when it is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from jitlto.base.errors import DatabaseError, JitltoError
from jitlto.database import _hash_tree as hash_tree
from jitlto.database import _serialization as serialization
from jitlto.database._hash_tree import sha256
from jitlto.database._serialization import Bucket, Root
from jitlto.database._sqlite_reader import SqliteReader, list_schema
from jitlto.record.fragment import Fragment, FragmentKey

T = TypeVar("T")
SCHEMA = 2
DDL = """
CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE node(number INTEGER PRIMARY KEY, hashes BLOB NOT NULL);
CREATE TABLE bucket(number INTEGER PRIMARY KEY, rows TEXT NOT NULL);
CREATE TABLE blob(sha256 TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE VIEW family AS SELECT r.key AS name, r.value AS record FROM bucket b, json_each(b.rows, '$.family') r;
CREATE VIEW fragment AS SELECT r.key, r.value AS record FROM bucket b, json_each(b.rows, '$.fragment') r;
CREATE VIEW image AS SELECT f.key, json_extract(i.value, '$.kind') AS kind,
    json_extract(i.value, '$.architecture') AS architecture, json_extract(i.value, '$.sha256') AS sha256,
    json_extract(i.value, '$.size') AS size FROM fragment f, json_each(f.record, '$.images') i;
CREATE VIEW provides AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.provides') s;
CREATE VIEW requires AS SELECT f.key, json_extract(s.value, '$.name') AS symbol,
    json_extract(s.value, '$.layout') AS layout FROM fragment f, json_each(f.record, '$.requires') s;
"""
_LISTED = list_schema(DDL)
_SHORT = "CASE WHEN name IN ('digest', 'root') THEN value ELSE '' END"


class StoredRows:
    """The rows of a database of schema 2.

    Args:
        reader: The open file.

    Raises:
        DatabaseError: If its tables are not those of the schema, or its root is damaged. All methods raise it if what
            they read is damaged.
    """

    #: SHA-256 of the content; equal digests mean equal databases.
    digest: str
    #: What the digest is computed from.
    root: Root

    def __init__(self, reader: SqliteReader) -> None:
        self._reader = reader
        self._nodes: dict[int, bytes] = {}  # those that were read and checked
        # Buckets that were read, and the bytes that the others may have: in a forged file, rows may share pages.
        self._known: dict[int, object] = {}
        self._remaining = reader.identity[2]
        self._read_root()

    def _read_root(self) -> None:
        # The schema must match exactly: a file with views, triggers, virtual tables, indexes or defaults of its own is
        # rejected before a statement could use them.
        if self._reader.schema() != _LISTED:
            raise self._reader.damaged(f"its tables are not those of schema {SCHEMA}")
        # Look-ups would read the record of a part, which is long, to compare its name.
        meta = {name.decode("utf-8", "replace"): value for name, value in self._reader.scan("meta", "name", _SHORT)}
        text = meta.get("root", b"")
        self.digest = sha256(text)
        if meta.get("digest") != self.digest.encode():
            raise self._reader.damaged("its digest is not that of its content")
        self.root = root = self.decode(lambda: serialization.decode(Root, text))
        expected = {"digest", "root"}.union(name for name in ("part", "gaps") if getattr(root, name))
        if meta.keys() != expected:
            raise self._reader.damaged("invalid row in table meta")
        of_rows = root.schema == SCHEMA and root.buckets == hash_tree.bucket_count(root.rows)
        if not of_rows or list(root.families) != sorted(set(root.families)):
            raise self._reader.damaged("invalid root")

    def decode(self, decode: Callable[[], T]) -> T:
        """Return what a decoder returns; its errors become a DatabaseError."""
        try:
            return decode()
        except (serialization.InvalidRecordError, JitltoError) as error:
            if isinstance(error, DatabaseError):
                raise
            # The checksums match, so the file was forged rather than damaged.
            raise self._reader.damaged(f"a record is not what its schema says ({error!r:.200})") from error

    def _meta(self, name: str) -> bytes:
        value = self._reader.find("meta", "name", name, "value")
        if not isinstance(value, bytes):
            raise self._reader.damaged(f"invalid row in table meta: {name}")
        return value

    def find_meta(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded record ``part`` or ``gaps``; None if there is none."""
        sha = getattr(self.root, name)
        if sha is None:
            return None
        record = self._meta(name)
        if sha256(record) != sha:
            raise self._reader.damaged(f"invalid row in table meta: {name}")
        return self.decode(lambda: decode(record))

    def _node(self, number: int, expected: bytes) -> bytes:
        node = self._nodes.get(number)
        if node is None:
            node = self._checked("node", "hashes", number, expected)
            if len(node) > hash_tree.FAN_OUT * hash_tree.HASH:
                raise self._reader.damaged(f"node {number} is too long")
            self._nodes[number] = node
        return node

    def _checked(self, table: str, column: str, number: int, expected: bytes) -> bytes:
        return self._check(self._reader.find(table, "number", number, column), table, number, expected)

    def _check(self, value: object, table: str, number: int, expected: bytes) -> bytes:
        if not isinstance(value, bytes) or hash_tree.hash_of(value) != expected:
            raise self._reader.damaged(f"{table} {number} does not match its SHA-256")
        return value

    def hash_of_bucket(self, number: int) -> bytes:
        """Return the hash that the tree has for a bucket, checked up to the root."""
        expected = bytes.fromhex(self.root.tree)
        for node, place in hash_tree.path_to(number, self.root.buckets):
            hashes = self._node(node, expected)
            expected = hashes[place * hash_tree.HASH : (place + 1) * hash_tree.HASH]
        return expected

    def bucket(self, number: int) -> bytes:
        """Return the text of a bucket, checked up to the root."""
        return self._counted(number, self._checked("bucket", "rows", number, self.hash_of_bucket(number)))

    def _counted(self, number: int, text: bytes) -> bytes:
        this = object()
        if self._known.setdefault(number, this) is this:  # atomic: another thread may read the same bucket
            self._remaining -= len(text)
        if self._remaining < 0:
            raise self._reader.damaged("its buckets are longer than the file")
        return text

    def buckets(self) -> Iterator[bytes]:
        """Yield all buckets in order, checked up to the root."""
        texts = self._reader.in_order("bucket", "rows")
        for number in range(self.root.buckets):
            yield self._counted(number, self._check(next(texts, None), "bucket", number, self.hash_of_bucket(number)))

    def read_kind(self, kind: str) -> Iterator[tuple[str, bytes]]:
        """Yield keys and records of all rows of a kind, in no particular order."""
        for number, text in enumerate(self.buckets()):
            for key, record in self._decode_bucket(text).get(kind, {}).items():
                if hash_tree.bucket_of(kind, key, self.root.buckets) != number:
                    raise self._reader.damaged(f"{kind} {key} is in the wrong bucket")
                yield key, bytes(record)

    def _decode_bucket(self, text: bytes) -> Bucket:
        rows = self.decode(lambda: serialization.decode_bucket(text))
        # Each look-up reads a whole bucket: a forged one with all rows would make every plan read the file many times.
        if sum(map(len, rows.values())) > hash_tree.MOST_ROWS:
            raise self._reader.damaged("a bucket has too many rows")
        return rows

    def find(self, kind: str, key: str, decode: Callable[[bytes], T]) -> T | None:
        """Return the decoded record of a row; None if there is no such row."""
        return self.find_all(kind, (key,), decode).get(key)

    def find_all(self, kind: str, keys: Iterable[str], decode: Callable[[bytes], T]) -> dict[str, T]:
        """Return the decoded records of the rows with some keys, as far as there are such rows; read a bucket once."""
        buckets: dict[int, list[str]] = defaultdict(list)
        for key in keys:
            buckets[hash_tree.bucket_of(kind, key, self.root.buckets)].append(key)
        found = {}
        for number, several in buckets.items():
            rows = self._decode_bucket(self.bucket(number)).get(kind, {})
            for key in several:
                if (record := rows.get(key)) is not None:
                    found[key] = self.decode(partial(decode, bytes(record)))
        return found

    def find_fragment(self, key: FragmentKey) -> Fragment | None:
        """Return the fragment with a key; None if there is none."""
        record = self.find("fragment", key.text, bytes)
        return None if record is None else self.decode_fragment(key.text, record)

    def decode_fragment(self, key: str, record: bytes) -> Fragment:
        """Return the fragment of a row."""
        fragment = self.decode(lambda: serialization.decode_fragment(record))
        if fragment.key.text != key:
            raise self._reader.damaged(f"{key} is the key of a different fragment")
        return fragment

    def require(self, kind: str, key: str, decode: Callable[[bytes], T]) -> T:
        """Return the decoded record of a row that another row refers to."""
        record = self.find(kind, key, decode)
        if record is None:
            raise self.inconsistent(f"there is no {kind} {key}")
        return record

    def inconsistent(self, why: str) -> DatabaseError:
        """Return the error for rows that contradict each other."""
        return self._reader.damaged(why)

    def check_tree(self, hashes: Sequence[bytes]) -> None:
        """Check, given the hashes of all buckets, that nothing is there that no look-up reads."""
        nodes = hash_tree.make_nodes(hashes)
        if sha256(nodes[0]) != self.root.tree:
            raise self._reader.damaged("its nodes hold more than hashes")
        for table, count in (("bucket", len(hashes)), ("node", len(nodes))):
            if self._reader.count(table) != count:
                raise self._reader.damaged(f"the number of rows in table {table} is wrong")
