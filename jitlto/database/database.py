"""Fragment databases opened for reading."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from jitlto.base.cached import cached_property
from jitlto.base.errors import DatabaseError
from jitlto.base.frozen import Shared
from jitlto.base.text import check_type
from jitlto.database import _records as records
from jitlto.database._reader import SqliteReader
from jitlto.database._rows import INDEXES, Shape, StoredRows, digest_rows, make_index, sha256
from jitlto.database.index import Index
from jitlto.record.family_record import FamilyRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image

#: Hint for a database that is a part of a build.
MERGE_HINT = "merge all parts first: jitlto merge -o DB PART..."


class FragmentDatabase(Shared):
    """A fragment database, opened for reading.

    It returns exactly the data that was written, or raises a :class:`~jitlto.base.errors.DatabaseError` that names the
    file.
    A look-up reads and checks only what it needs, so its cost does not grow with the file. Thread-safe.

    Args:
        path: The file.
        fragments: All that was just written to it, sorted by key; None to read them when they are needed.

    Raises:
        DatabaseError: If the file is missing, is not a fragment database, was made by a newer jitlto, or is damaged
            where it is read first. All methods raise it if what they read is damaged.
    """

    def __init__(self, path: str | os.PathLike[str], fragments: list[Fragment] | None = None) -> None:
        self.path = Path(path)
        self._reader = reader = SqliteReader(self.path)
        #: The absolute path, so that a later chdir has no effect.
        self.location = reader.location
        try:
            self._rows = StoredRows(reader)
        except BaseException:
            reader.close()
            raise
        #: SHA-256 of the content; equal digests mean equal databases.
        self.digest = self._rows.digest
        if fragments is not None:
            self._fragments = fragments

    @cached_property
    def part(self) -> PartRecord | None:
        """The part of a sharded build that it is; None if it is complete."""
        return self._rows.part()

    @cached_property
    def families(self) -> Mapping[str, FamilyRecord]:
        """The families in it, by name."""
        rows = self._rows
        families = {key: rows.decode(records.decode_family, record) for key, record in rows.scan("family")}
        for name, family in families.items():
            if family.name != name:
                raise self._reader.damaged(f"family {family.name} is stored under a different name")
            if missing := sorted(set(family.uses).difference(families)):
                raise self._reader.damaged(f"family {name} uses {', '.join(missing)}, which is not in it")
        return families

    def fragments(self, family: str | None = None) -> list[Fragment]:
        """Return all fragments, or those of one family, sorted by key. All are read at the first call, and kept."""
        return [fragment for fragment in self._fragments if family in (None, fragment.key.family)]

    @cached_property
    def _fragments(self) -> list[Fragment]:
        return self._rows.fragments()

    def index(self, family: str) -> Index:
        """Return what a family's kernels are made of: its fragments and those it uses, read when they are looked up."""
        record = self.families[family].with_used(self.families)
        return Index(self._rows, record, self.shapes, lambda: record.select(self._fragments))

    @cached_property
    def shapes(self) -> Mapping[str, tuple[Shape, ...]]:
        """Groups and parameters of the fragments of each family that has some."""
        rows, decode = self._rows, partial(records.decode, tuple[Shape, ...])
        return {key: rows.decode(decode, record) for key, record in rows.scan("shape")}

    @cached_property
    def is_as_digested(self) -> bool:
        """Whether all rows are those that the digest is of.

        A look-up checks its row alone, and a forged file may name the digest of another: what look-ups have found is
        kept under the digest only if this holds.
        """
        scan, hashes = self._reader.scan, self._rows.root.tables.items()
        with suppress(DatabaseError):
            return all(digest_rows(own for _, own in scan(table, "key", "sha256")) == each for table, each in hashes)
        return False

    def get(self, key: FragmentKey) -> Fragment | None:
        """Return the fragment with a key, or None if there is no such fragment."""
        check_type(key, FragmentKey, "key must be a FragmentKey")
        return self._rows.find_fragment(key)

    def read(self, image: Image) -> bytes:
        """Return the bytes of an image.

        Raises:
            DatabaseError: If they are missing or do not match the image's SHA-256.
        """
        row = self._reader.find("blob", "sha256", image.sha256, "data")
        if row is None:
            raise self._reader.damaged(f"image {image.sha256} is missing")
        (data,) = row
        if not isinstance(data, bytes) or sha256(data) != image.sha256:
            raise self._reader.damaged(f"image {image.sha256} does not match its SHA-256")
        return data

    def images(self) -> Iterator[tuple[str, bytes]]:
        """Yield the bytes of all images by their SHA-256; errors as of :meth:`read`."""
        for name, data in self._reader.scan("blob", "sha256", "data"):
            sha = name.decode("ascii", "replace")
            if sha256(data) != sha:
                raise self._reader.damaged(f"image {sha} does not match its SHA-256")
            yield sha, data

    def verify(self) -> int:
        """Read and check everything, SQLite's own structures too, and return the number of images.

        Raises:
            DatabaseError: At the first check that fails.
        """
        verdict = self._reader.pragma("integrity_check(1)")
        if isinstance(verdict, bytes) and verdict != b"ok":
            raise self._reader.damaged(verdict.decode("utf-8", "replace"))
        meta = {name for name, _ in self._reader.scan("meta", "name", "value")}
        if meta != {b"digest", b"root", *([b"part"] if self.part else [])}:
            raise self._reader.damaged("invalid row in table meta")
        for family in self.families.values():
            family.with_used(self.families)
        self._fragments = fragments = self._rows.fragments()
        index = [(table, *row) for table in INDEXES for row in self._rows.scan(table)]
        if sorted(index) != make_index(fragments):  # the rows that are made from fragments
            raise self._reader.damaged("its index rows are not those of its fragments")
        images = {image.sha256: image for fragment in fragments for image in fragment.images}
        for sha, data in self.images():
            image = images.pop(sha, None)
            if image is None:
                raise self._reader.damaged(f"image {sha} belongs to no fragment")
            if len(data) != image.size:
                raise self._reader.damaged(f"image {sha} does not have the recorded {image.size} bytes")
        if images:
            raise self._reader.damaged(f"image {min(images)} is missing")
        return len({image.sha256 for fragment in fragments for image in fragment.images})

    def close(self) -> None:
        """Close the file; the database cannot be used afterwards."""
        self._reader.close()

    def __enter__(self) -> FragmentDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
