"""The check of a database as a library call: its result and its callbacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base.errors import DatabaseError
from jitlto.base.versions import Architecture
from jitlto.check.check import check
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from tests.support.errors import raises


def test_kernels_are_planned_and_nothing_is_linked_by_default(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        result = check(database)
        assert (result.digest, result.holds, result.link) == (database.digest, True, None)
    (family,) = result.families
    assert (family.family, family.fragments, family.kernels, family.completed_by_callers) == ("mini", 6, 4, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("strength", "linked", "tuples"), [(None, 4, None), (1, 2, 4), (2, 4, 4)])
def test_all_kernels_or_a_covering_array_are_linked(
    mini_path: Path, strength: int | None, linked: int, tuples: int | None
) -> None:
    totals: list[int] = []
    done: list[int] = []
    with FragmentDatabase(mini_path) as database:
        result = check(
            database,
            targets=[Architecture(80), Architecture(90)],
            strength=strength,
            compare=False,
            on_links=totals.append,
            on_link=done.append,
        )
    assert result.link is not None
    (links,) = result.link.families
    assert result.link.archs == ("sm_80", "sm_90")
    assert (links.holds, links.linked, links.kernels, links.tuples) == (True, linked, 4, tuples)
    assert (totals, sorted(done)) == ([2 * linked], list(range(2 * linked)))


def test_a_database_without_families_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "empty.fragdb", [], [], {})
    with FragmentDatabase(tmp_path / "empty.fragdb") as database, raises(DatabaseError, "database-empty"):
        check(database)
