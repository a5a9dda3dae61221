"""Linking ahead as library calls: the selected kernels, their destination, and no repeated links."""

from pathlib import Path

import pytest

from jitlto.base.errors import JitltoError, UnknownValueError
from jitlto.base.versions import Architecture
from jitlto.runtime import session
from jitlto.runtime.family import KernelFamily
from jitlto.runtime.warming import family_jobs, link_jobs
from tests.support.errors import raises
from tests.support.kernels import packed_digests

SM_90 = Architecture(90)


def test_settings_select_kernels_and_repeated_names_add_up(mini: KernelFamily) -> None:
    def count(*settings: tuple[str, str]) -> int:
        return len(family_jobs(mini, settings, [SM_90]).jobs)

    assert count() == 4
    assert count(("data_type", "float")) == 2
    assert count(("data_type", "float,double")) == count(("data_type", "float"), ("data_type", "double")) == 4
    assert count(("entry", "kern"), ("data_type", "float")) == 2
    with raises(UnknownValueError, "plan-unknown-value", "'kern'"):
        count(("entry", "kren"))


def test_a_combination_of_values_that_no_kernel_has_is_an_error(
    mini: KernelFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitlto.runtime.warming.allowed_values", lambda *_: {"data_type": {"int"}})
    with raises(JitltoError, "jitlto-no-such-kernel", where="mini"):
        family_jobs(mini, [], [SM_90])


def test_a_pack_is_written_and_its_kernels_are_not_linked_again(
    mini: KernelFamily, empty_cache: Path, tmp_path: Path
) -> None:
    pack = tmp_path / "mini.pack"
    jobs = family_jobs(mini, [("op_name", "twice")], [SM_90]).jobs
    first = link_jobs([*jobs, *jobs], pack)
    assert (first.linked, first.found, first.packed) == (2, 0, 2)
    assert packed_digests(pack) == sorted(each.plan.digest for each in first.outcomes if each.plan)
    again = link_jobs(jobs, pack)
    assert (again.linked, again.found, again.failures) == (0, 2, [])


@pytest.fixture
def store(tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shared store, of this process too."""
    directory = tmp_path / "store"
    directory.mkdir()
    monkeypatch.setenv("JITLTO_STORE", directory.as_uri())
    monkeypatch.setenv("JITLTO_STORE_PATIENCE", "10")
    session.default.reset()
    return directory


def test_shared_stores_get_what_is_linked_and_what_is_in_the_cache(
    mini: KernelFamily, store: Path, tmp_path: Path
) -> None:
    jobs = family_jobs(mini, [("op_name", "twice"), ("data_type", "float")], [SM_90]).jobs
    first = link_jobs(jobs)
    assert (first.linked, first.shared, first.unshared) == (1, 1, 0)
    (written,) = (path for path in store.rglob("*") if path.is_file())
    assert link_jobs(jobs).shared == 0
    written.unlink()
    again = link_jobs(jobs)
    assert (again.linked, again.shared) == (0, 1)
    own = session.default.kernel_cache.store
    assert own is not None
    own.prune(-1)
    assert mini.plan_request(jobs[0].request, SM_90).link().layer == "store"
    own.prune(-1)
    assert link_jobs(jobs, tmp_path / "mini.pack").linked == 0
