"""The fragment database: one SQLite file, written once by the build side, read by the run side.

Only what is asked for is read, and checked. Times, paths and machine names stay outside, so that the same inputs give
the same bytes. ``docs/database.md`` describes the format, whose rows are those of module ``_rows``.
"""

from jitlto.database.database import MERGE_HINT, FragmentDatabase

__all__ = ["MERGE_HINT", "FragmentDatabase"]
