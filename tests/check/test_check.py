"""The check of a database as a library call: its result and its callbacks."""

from pathlib import Path

from jitlto.base.errors import DatabaseError
from jitlto.base.versions import Architecture
from jitlto.check.check import check
from jitlto.database import FragmentDatabase
from jitlto.database.writer import write
from tests.support.errors import raises


def test_kernels_are_planned_and_nothing_is_linked_by_default(mini_path: Path) -> None:
    with FragmentDatabase(mini_path) as database:
        result = check(database)
        assert (result.digest, result.holds, result.archs) == (database.digest, True, ())
    (family,) = result.families
    assert (family.family, family.fragments, family.kernels, family.completed_by_callers) == ("mini", 6, 4, 0)


def test_kernels_link_from_their_cubins_too(sass_path: Path) -> None:
    with FragmentDatabase(sass_path) as database:
        (family,) = check(database, compare=False, targets=[Architecture(90), Architecture(120)]).families
    assert family.holds
    assert (family.linked, family.cubins) == (4, 4), "no fragment has a cubin for sm_120"


def test_a_database_without_families_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "empty.fragdb", [], [], {})
    with FragmentDatabase(tmp_path / "empty.fragdb") as database, raises(DatabaseError, "database-empty"):
        check(database)
