"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Format (schema 4; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)           root: JSON, what identifies the content (Root in module _records)
                                digest: SHA-256 of root
                                part: JSON, a PartRecord; only in the part that one shard built
    TABLE(key, record, sha256)  the rows of a kind (module _rows), each with a checksum: family, shape, entrypoint,
                                symbol, provider and fragment
    blob(sha256, data)          the bytes of images, by content

Only what is asked for is read, and checked. Times, paths and machine names stay outside, so that the same inputs give
the same bytes.
"""

from jitlto.database.database import MERGE_HINT, FragmentDatabase

__all__ = ["MERGE_HINT", "FragmentDatabase"]
