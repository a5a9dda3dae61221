"""What is proved is not proved again; a failure is."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.base.versions import Architecture
from jitlto.build.proof import ENTRIES, Proofs
from jitlto.check.check import CheckResult, FamilyCheck, check
from jitlto.check.links import Work
from jitlto.database import FragmentDatabase
from jitlto.plan.plan import Plan
from tests.support.memory_stores import MemoryStores


@dataclass(frozen=True)
class Job:
    """A kernel without images, known by a number."""

    number: int

    @property
    def plan(self) -> SimpleNamespace:
        return SimpleNamespace(database=None, images=(), digest=self.number)


@pytest.fixture
def store(tmp_path: Path) -> CacheDir:
    return CacheDir(tmp_path / "store", 1 << 30)


def run(
    store: CacheDir | None, jobs: Sequence[int], failing: Sequence[int] = (), stores: MemoryStores | None = None
) -> tuple[list[int], list[int]]:
    """Do jobs; return those that were done and those that failed."""
    done: list[int] = []
    ended: list[int] = []

    def call(jobs: Sequence[Job]) -> list[None]:
        (job,) = jobs
        done.append(job.number)
        if job.number in failing:
            raise JitltoError("failed")
        return [None]

    totals: list[int] = []
    work = Work(Proofs(store, stores), None, totals.append, ended.append)
    failed, known = work.do(call, [Job(number) for number in jobs], "n")  # type: ignore[arg-type, list-item]
    assert totals == [len(done)]
    assert sorted(jobs[position] for position in ended) == sorted(done)
    assert known == len(jobs) - len(done)
    return sorted(done), [job.number for job, _ in failed]  # type: ignore[attr-defined]


def test_what_was_proved_is_known_and_what_failed_is_tried_again(store: CacheDir) -> None:
    assert run(store, [1, 2, 3], failing=[2]) == ([1, 2, 3], [2])
    assert run(store, [1, 2, 3, 4], failing=[2]) == ([2, 4], [2])
    assert run(store, [4, 2]) == ([2], [])
    assert run(store, [1, 2, 3, 4]) == ([], [])


def test_another_machine_knows_what_stores_have(tmp_path: Path) -> None:
    stores = MemoryStores()
    assert run(CacheDir(tmp_path / "one", 1 << 30), [1, 2], failing=[2], stores=stores) == ([1, 2], [2])
    stores.asked.clear()
    other = CacheDir(tmp_path / "other", 1 << 30)
    assert run(other, [1, 2], stores=stores) == ([2], [])
    assert [len(names) for names in stores.asked] == [2]
    assert run(other, [1, 2]) == ([], [])


def test_without_a_cache_everything_is_done_again() -> None:
    assert run(None, [1, 2]) == run(None, [1, 2]) == ([1, 2], [])


def test_a_proof_of_something_else_or_a_damaged_one_is_none(store: CacheDir) -> None:
    one, other = (Proofs(store).key("n", number) for number in (1, 2))
    Proofs(store).add(other, b"what is known")
    assert Proofs(store).find([other, None]) == {other: b"what is known"}
    file = {key: store.directory / ENTRIES / key[:2] / key[2:] for key in (one, other)}
    file[one].parent.mkdir(exist_ok=True)
    file[other].rename(file[one])
    assert not Proofs(store).find([one, None])
    assert Proofs(store).key("m", 1) != one


def test_jobs_that_are_alike_are_done_at_once_and_proved_each(store: CacheDir) -> None:
    done: list[list[int]] = []

    def call(jobs: Sequence[Job]) -> list[JitltoError | None]:
        done.append([job.number for job in jobs])
        return [JitltoError("failed") if job.number == 3 else None for job in jobs]

    work = Work(Proofs(store), 1, lambda _: None, lambda _: None)
    jobs = [Job(number) for number in range(6)]
    failed, _ = work.do(call, jobs, "n", lambda job: job.number % 2)  # type: ignore[arg-type, attr-defined]
    assert sorted(done) == [[0, 2, 4], [1, 3, 5]]
    assert [job.number for job, _ in failed] == [3]  # type: ignore[attr-defined]
    assert run(store, range(6)) == ([3], [])


Check = Callable[..., CheckResult]


@pytest.fixture
def run_check(mini_path: Path, store: CacheDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Check `mini`, with a cache of its own."""
    monkeypatch.setattr("jitlto.check.check.Proofs", lambda _, stores: Proofs(store, stores))
    with FragmentDatabase(mini_path) as database:
        yield lambda **how: check(database, targets=[Architecture(80), Architecture(90)], **how)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are linked, without linking them."""
    found: list[str] = []

    def link(plan: Plan, **_: object) -> SimpleNamespace:
        found.append(f"{dict(plan.configuration)} {plan.target.sm} {plan.link_mode}")
        return SimpleNamespace(warnings=[])

    monkeypatch.setattr("jitlto.plan.plan.Plan.link", link)
    return found


def links_of(result: CheckResult) -> FamilyCheck:
    return result.families[0]


def test_an_unchanged_kernel_is_linked_once(run_check: Check, linked: list[str]) -> None:
    assert links_of(run_check(compare=False)).known == 0
    assert len(set(linked)) == len(linked) == 8
    again = run_check(compare=False)
    assert (again.holds, len(linked), links_of(again).linked, links_of(again).known) == (True, 8, 4, 8)


def test_a_kernel_of_damaged_images_is_not_believed_to_link(
    mini_path: Path, tmp_path: Path, run_check: Check, linked: list[str]
) -> None:
    run_check(compare=False)
    damaged = Path(shutil.copy(mini_path, tmp_path / "damaged.fragdb"))
    with closing(sqlite3.connect(damaged)) as connection, connection:
        connection.execute("UPDATE blob SET data = zeroblob(length(data))")
    with FragmentDatabase(damaged) as database:
        result = check(database, targets=[Architecture(90)], compare=False)
        assert links_of(result).known == 0
        assert len(linked) == 8 + 4
        plan = SimpleNamespace(database=database, images=database.fragments()[0].images, digest="hidden")
        assert Proofs(None).plan_key(plan, "link") is None  # type: ignore[arg-type]


def test_of_very_many_kernels_those_are_linked_in_which_every_two_fragments_meet(
    run_check: Check, linked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jitlto.check.check.MOST_KERNELS", 3)
    monkeypatch.setattr("jitlto.check.check.choose_kernels", lambda kernels: kernels[1:])
    assert links_of(run_check(compare=False)).linked == 3
    assert len(linked) == 2 * 3
