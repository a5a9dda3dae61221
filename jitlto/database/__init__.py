"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Format (schema 2; ``docs/database.md`` describes it for readers in other languages)::

    meta(name, value)       root: JSON, the number of buckets and rows, the hash of the top node, and those of the rest
                            digest: SHA-256 of root
                            part: JSON, a PartRecord; only in the part that one shard built
                            gaps: JSON, the keys of fragments that a merge left out; only if it left any out
    bucket(number, rows)    JSON, the rows whose keys fall into it (module _index_rows), by kind and key
    node(number, hashes)    the hashes of the buckets or nodes below it (module _hash_tree)
    blob(sha256, data)      the bytes of images, by content

Only what is asked for is read, and checked up to the digest. Times, paths and machine names stay outside, so that the
same inputs give the same bytes.
"""

from jitlto.database._database import APPLICATION_ID, MERGE_HINT, FragmentDatabase
from jitlto.database._sqlite_reader import BUILD_HINT, REBUILD_HINT

__all__ = ["APPLICATION_ID", "BUILD_HINT", "MERGE_HINT", "REBUILD_HINT", "FragmentDatabase"]
